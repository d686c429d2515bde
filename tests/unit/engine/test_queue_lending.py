"""What a queue that does not lend keeps: its own part of its tenant's share, and no more."""

from allotment.core.lending import of_types_lent
from allotment.core.quota import NO_TYPE
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World

TWO_TENANTS = """
nodes: [{name: n1, cpu: 640, memory: 5120GiB, gpu: {type: V100, count: 12}}]
tenants:
  lab:
    guaranteed: {gpu: 4}
    queues: {a: {guaranteed: {gpu: 2}, lend: false}, b: {}}
  other: {guaranteed: {gpu: 8}}
"""

BY_TYPE = """
nodes:
  - {name: n1, cpu: 64, memory: 512GiB, gpu: [{type: A100, count: 4}, {type: T4, count: 4}]}
tenants:
  lab:
    guaranteed: {gpu: 8}
    queues: {a: {guaranteed: {gpu_by_type: {A100: 4}}, lend: false}, b: {order: skip}}
"""


def read(text: str) -> Config:
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


def submit(world: World, queue: str, gpus: int, *types: str) -> JobId:
    id = world.state.next_job
    job = a_job().of("lab", queue).gpus(gpus)
    world.do(c.SubmitJob((job.types(*types) if types else job).spec()))
    return id


def grounds(world: World, job: JobId) -> Entitlement | None:
    gang = world.state.cluster.gangs.get(job)
    return gang.entitlement if gang else None


def types_of(world: World, job: JobId) -> set[str]:
    cluster = world.state.cluster
    return {
        cluster.ledger.type_of(slot.node, index)
        for slot in cluster.gangs[job].slots
        for index in slot.devices
    }


def test_siblings_of_a_queue_that_does_not_lend_borrow_what_other_tenants_leave_idle() -> None:
    world = World(read(TWO_TENANTS))
    jobs = [submit(world, "b", 2) for _ in range(6)]
    world.cycle()
    own, lent = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
    # Two devices of the four are queue a's own; what the other tenant leaves is not.
    assert [grounds(world, job) for job in jobs] == [own, lent, lent, lent, lent, None]
    assert world.why(jobs[5]).reason is Reason.QUEUE_SHARE
    # Nobody's grounds change: the rest of the guarantee stays queue a's.
    world.cycle()
    assert [grounds(world, job) for job in jobs[:2]] == [own, lent]
    mine = submit(world, "a", 2)
    world.cycle()
    assert grounds(world, mine) is own


def test_a_borrower_is_not_promoted_into_what_another_queue_keeps() -> None:
    world = World(read(TWO_TENANTS))
    first, second, third = (submit(world, "b", 2) for _ in range(3))
    world.cycle()
    for job in (first, second, third):
        world.runs(job)
    world.ends(first)
    world.cycle()
    own, lent = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
    assert [grounds(world, job) for job in (second, third)] == [own, lent]


def test_a_tenant_that_may_not_borrow_keeps_what_a_queue_does_not_lend() -> None:
    text = TWO_TENANTS.replace(
        "guaranteed: {gpu: 4}", "guaranteed: {gpu: 4}\n    borrow: false"
    )
    world = World(read(text))
    jobs = [submit(world, "b", 2) for _ in range(2)]
    world.cycle()
    assert [grounds(world, job) for job in jobs] == [Entitlement.GUARANTEED, None]
    assert world.why(jobs[1]).message == (
        "Queue a of lab does not lend: 2 GPUs of the idle resources stay free for it."
    )


def test_devices_of_a_type_that_a_queue_does_not_lend_stay_free() -> None:
    world = World(read(BY_TYPE))
    job = submit(world, "b", 4, "A100")
    world.cycle()
    assert grounds(world, job) is None
    assert world.why(job).message == (
        "Queue a of lab does not lend: 4 A100 GPUs of the idle resources stay free for it."
    )
    mine = submit(world, "a", 4, "A100")
    world.cycle()
    assert grounds(world, mine) is Entitlement.GUARANTEED


def test_a_job_that_takes_any_type_gets_one_that_is_not_kept() -> None:
    world = World(read(BY_TYPE))
    jobs = [submit(world, "b", 1) for _ in range(5)]
    world.cycle()
    assert [types_of(world, job) for job in jobs[:4]] == [{"T4"}] * 4
    assert grounds(world, jobs[4]) is None
    assert world.why(jobs[4]).reason is Reason.QUEUE_SHARE
    # What the queue itself lets go of is kept again.
    mine = submit(world, "a", 4, "A100")
    world.cycle()
    world.runs(mine)
    world.ends(mine)
    world.cycle()
    assert grounds(world, jobs[4]) is None


def test_an_elastic_gang_does_not_grow_into_what_is_kept() -> None:
    world = World(read(BY_TYPE))
    id = world.state.next_job
    world.do(c.SubmitJob(a_job().of("lab", "b").gpus(1).between(1, 8).spec()))
    world.cycle()
    assert len(world.state.cluster.gangs[id].slots) == 4
    assert types_of(world, id) == {"T4"}


def test_devices_of_a_type_that_a_guest_was_lent_are_as_good_as_free() -> None:
    text = BY_TYPE.replace("type: A100, count: 4", "type: A100, count: 8").replace(
        "guaranteed: {gpu: 8}", "guaranteed: {gpu: 12}"
    )
    world = World(read(text + "  guest: {}\n"))
    guest = world.state.next_job
    world.do(c.SubmitJob(a_job().of("guest", "default").gpus(4).types("A100").spec()))
    world.cycle()
    world.runs(guest)
    # Four are free, and four are lent to a guest who can be sent away for queue a.
    first, second = submit(world, "b", 4, "A100"), submit(world, "b", 4, "A100")
    world.cycle()
    assert grounds(world, first) is Entitlement.GUARANTEED
    assert world.why(second).reason is Reason.QUEUE_SHARE
    mine = submit(world, "a", 4, "A100")
    world.cycle()
    assert world.why(mine).reason is Reason.WAITING_FOR_VICTIMS


ALONE = """
nodes: [{name: n1, cpu: 640, memory: 5120GiB, gpu: {type: V100, count: 16}}]
tenants:
  lab:
    guaranteed: {gpu: 8}
    borrow: false
    preempt: evict
    queues: {a: {guaranteed: {gpu: 2}, lend: false}, b: {}}
"""


def test_nothing_is_evicted_for_a_place_that_another_queue_keeps() -> None:
    world = World(read(ALONE))
    low = submit(world, "b", 5)
    world.cycle()
    urgent = a_job().of("lab", "b").priority(900)
    large, small = world.submit(urgent.gpus(7)), world.submit(urgent.gpus(4))
    world.cycle()
    assert world.is_(large) is JobState.QUEUED, "2 of the 8 are queue a's own"
    world.do(c.CancelJob(large))
    world.cycle()
    assert world.is_(low) is JobState.STOPPING
    assert world.state.cluster.reserved[small].victims == (low,)


def test_a_job_asks_for_the_types_that_are_lent_and_for_no_other() -> None:
    world = World(read(BY_TYPE))
    cluster = world.state.cluster
    plain, named = submit(world, "b", 1), submit(world, "b", 1, "A100", "T4")
    for job in (plain, named):
        shape = cluster.pending[job].shape
        lent = of_types_lent(cluster, shape, Entitlement.GUARANTEED)
        assert [request.types for request in lent.requests] == [("T4",)]
    own = cluster.pending[submit(world, "a", 1)].shape
    assert of_types_lent(cluster, own, Entitlement.GUARANTEED) == own
    of_lent = cluster.pending[submit(world, "b", 1, "T4")].shape
    assert of_types_lent(cluster, of_lent, Entitlement.GUARANTEED) == of_lent
    kept = cluster.pending[submit(world, "b", 1, "A100")].shape
    (request,) = of_types_lent(cluster, kept, Entitlement.GUARANTEED).requests
    assert request.types == NO_TYPE


def test_a_shape_of_which_every_type_is_lent_stays_as_it_is() -> None:
    world = World(read(BY_TYPE))
    cluster = world.state.cluster
    whole = submit(world, "a", 4, "A100")
    world.cycle()
    assert types_of(world, whole) == {"A100"}
    for types in ((), ("T4",), ("A100", "T4")):
        shape = cluster.pending[submit(world, "b", 1, *types)].shape
        assert of_types_lent(cluster, shape, Entitlement.GUARANTEED) == shape
