"""What a job holds, will hold, and gets of devices that are exclusive."""

from msgspec.structs import replace

from allotment.core.dimensions import occupancy_of
from allotment.core.request import Request
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Resources
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World
from tests.unit.core.books import POLICIES, a_cluster, a_standing, place


def test_a_job_holds_its_place_or_will_or_has_none() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp")))
    borrower = world.submit(a_job().of("nlp").gpus(8))
    world.cycle()
    world.runs(borrower)
    owner, waits = world.submit(a_job().gpus(8)), world.submit(a_job().of("nlp").gpus(1))
    world.cycle()
    cluster = world.state.cluster
    now, then = occupancy_of(cluster, borrower), occupancy_of(cluster, owner)
    assert now is not None
    assert then is not None
    assert (now.tenant, now.entitlement) == ("nlp", Entitlement.OPPORTUNISTIC)
    assert (then.tenant, then.entitlement) == ("vision", Entitlement.GUARANTEED)
    assert now.slots == then.slots
    assert occupancy_of(cluster, waits) is None


def test_a_part_of_an_exclusive_device_is_alone_on_it() -> None:
    cluster = a_cluster("1x2", replace(POLICIES, exclusive=True))
    half = (Request(1, Resources(gpu_milli=DEVICE // 2)),)
    slots = cluster.find(half)
    assert slots is not None
    assert (slots[0].gpu_milli, len(slots[0].devices)) == (DEVICE // 2, 1)
    assert cluster.asked_free(half) == (Request(1, Resources(gpu_milli=DEVICE)),)
    place(cluster, a_standing(1, 2))
    assert cluster.find(half) is None


def test_how_a_job_stands_is_known_while_it_waits_or_has_a_place() -> None:
    cluster = a_cluster("1x2")
    gang = place(cluster, a_standing(1, 2))
    assert cluster.standing_of(JobId(1)) == gang.standing
    assert cluster.standing_of(JobId(2)) is None
