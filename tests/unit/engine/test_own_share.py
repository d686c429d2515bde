"""Who is guaranteed a place that others of its tenant have: nobody of its queue goes before it.

As on a cluster of the tenant's own, in every order but `skip`, whoever else is there.
"""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import GIB, Resources
from allotment.model.reasons import Reason
from allotment.model.tenancy import QueueOrder, Tenant
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

HOUR = 3_600_000
WAITING = [QueueOrder.STRICT, QueueOrder.EASY, QueueOrder.CONSERVATIVE]


def vision(order: QueueOrder, share: float = 8, *, borrow: bool = False) -> Tenant:
    return a_tenant("vision", share, order=order, borrow=borrow)


def beside_an_idle_team(tenant: Tenant) -> World:
    return World(a_config(tenant, a_tenant("nlp", 8), nodes=2))


def submit(world: World, devices: int, hours: float, tenant: str = "vision") -> JobId:
    job = a_job().of(tenant).gpus(devices).within(run_ms=round(hours * HOUR))
    return world.submit(job)


def start(world: World) -> None:
    world.cycle()
    for each in world.state.jobs.values():
        if each.state is S.STARTING:
            world.runs(each.id)


@pytest.mark.parametrize("order", WAITING)
def test_a_gang_of_the_whole_share_comes_in_its_turn(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    first = submit(world, 4, 2)
    start(world)
    whole = submit(world, 8, 1)
    others = [submit(world, 4, 3) for _ in range(10)]
    start(world)
    assert [world.is_(job) for job in (whole, *others)] == [S.QUEUED] * 11
    assert world.why(whole).reason is Reason.QUOTA
    assert world.why(others[0]).reason is Reason.BEHIND
    assert world.why(others[0]).ahead == whole
    world.ends(first)
    start(world)
    assert world.is_(whole) is S.RUNNING


@pytest.mark.parametrize("order", [QueueOrder.EASY, QueueOrder.CONSERVATIVE])
def test_a_job_that_ends_before_the_share_is_free_may_pass(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    submit(world, 4, 2)
    start(world)
    whole = submit(world, 8, 1)
    long, short = submit(world, 4, 3), submit(world, 4, 1)
    start(world)
    found = [world.is_(job) for job in (whole, long, short)]
    assert found == [S.QUEUED, S.QUEUED, S.RUNNING]


@pytest.mark.parametrize("order", [QueueOrder.EASY, QueueOrder.CONSERVATIVE])
def test_what_the_share_has_left_beside_it_may_be_used(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    submit(world, 4, 2)
    start(world)
    large = submit(world, 6, 1)
    two, four = submit(world, 2, 9), submit(world, 4, 9)
    start(world)
    found = [world.is_(job) for job in (large, two, four)]
    assert found == [S.QUEUED, S.RUNNING, S.QUEUED]


@pytest.mark.parametrize("order", WAITING)
def test_a_gang_beyond_the_share_holds_up_nobody_within_it(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order, borrow=True))
    submit(world, 8, 9, "nlp")
    start(world)
    beyond = world.submit(a_job().tasks(2).gpus(6).within(run_ms=HOUR))
    within = submit(world, 8, 1)
    start(world)
    assert (world.is_(beyond), world.is_(within)) == (S.QUEUED, S.RUNNING)


@pytest.mark.parametrize("order", WAITING)
def test_a_job_that_gets_a_borrowed_place_holds_up_nobody_any_longer(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order, borrow=True))
    submit(world, 4, 9)
    start(world)
    whole = submit(world, 8, 1)
    behind = submit(world, 4, 9)
    start(world)
    assert (world.is_(whole), world.is_(behind)) == (S.RUNNING, S.RUNNING)
    assert world.state.jobs[behind].attempts[-1].entitlement.value == "guaranteed"


@pytest.mark.parametrize("order", WAITING)
def test_a_job_that_could_never_start_any_more_holds_up_nobody(order: QueueOrder) -> None:
    """Its machines are taken out of the configuration while it waits for them."""
    tenant = vision(order)
    world = World(a_config(tenant, nodes=2))
    for node in world.state.cluster.nodes:
        world.do(c.DrainNode(node))
    large, behind = submit(world, 8, 1), submit(world, 4, 1)
    start(world)
    assert (world.is_(large), world.is_(behind)) == (S.QUEUED, S.QUEUED)
    world.do(c.ApplyConfig(a_config(tenant, nodes=2, devices=4)))
    for node in world.state.cluster.nodes:
        world.do(c.UndrainNode(node))
    start(world)
    assert (world.is_(large), world.is_(behind)) == (S.QUEUED, S.RUNNING)
    assert world.why(large).reason is Reason.NEVER_FITS_NOW


# ── by every part, by type, and in cells ────────────────────────────────────────────────

BACKFILLING = [QueueOrder.EASY, QueueOrder.CONSERVATIVE]
MINUTES = 60_000


def run(world: World, job: JobBuilder, minutes: float) -> JobId:
    return world.submit(job.within(run_ms=round(minutes * MINUTES)))


def passes(world: World, first: JobBuilder, head: JobBuilder, next_: JobBuilder) -> list[bool]:
    """Tell, of those who run for 2 minutes and for ½ behind a head that waits 1, who runs."""
    run(world, first, 1)
    start(world)
    waits = run(world, head, 1)
    behind = [run(world, next_, 2), run(world, next_, 0.5)]
    start(world)
    assert world.is_(waits) is S.QUEUED
    for job in behind:
        if world.is_(job) is S.QUEUED:
            assert world.why(job).ahead == waits
            assert world.why(job).reason is not Reason.PENDING
    return [world.is_(job) is S.RUNNING for job in behind]


def of_part(part: str, amount: int) -> JobBuilder:
    job = a_job().of("vision").cpus(0)
    match part:
        case "cpu_milli":
            return job.cpus(amount)
        case "memory":
            return job.memory(amount * GIB)
        case "disk":
            return job.disk(amount * GIB)
        case _:
            return job.gpus(1).gpu_memory(amount * GIB)


PARTS = ["cpu_milli", "memory", "disk", "gpu_memory"]


@pytest.mark.parametrize("order", BACKFILLING)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("amount", "who"), [(15, [False, True]), (10, [True, True])])
def test_a_job_that_passes_leaves_the_first_what_it_waits_for_of_any_part(
    order: QueueOrder, part: str, amount: int, who: list[bool]
) -> None:
    """The share is 50 of it, of which 30 come free; the machines have more than enough."""
    unit = 1_000 if part == "cpu_milli" else GIB
    share = Resources(8_000, 1 << 40, 1 << 60, 1 << 60, 1 << 60)
    share = msgspec.structs.replace(share, **{part: 50 * unit})
    world = beside_an_idle_team(msgspec.structs.replace(vision(order), guaranteed=share))
    assert passes(world, *(of_part(part, each) for each in (30, 40, amount))) == who


@pytest.mark.parametrize("order", BACKFILLING)
@pytest.mark.parametrize(("part", "all_of_it"), [("cpu_milli", 64), ("disk", 1_000)])
def test_nobody_takes_what_the_first_waits_for_of_the_machines(
    order: QueueOrder, part: str, all_of_it: int
) -> None:
    """The share is more than there is: it bounds nothing."""
    tenant = msgspec.structs.replace(vision(order), guaranteed=Resources(*([1 << 60] * 5)))
    first, head = of_part(part, all_of_it - 10), of_part(part, all_of_it - 5)
    assert passes(World(a_config(tenant)), first, head, of_part(part, 7)) == [False, True]
    assert passes(World(a_config(tenant)), first, head, of_part(part, 5)) == [True, True]


def mixed(order: QueueOrder) -> World:
    """Two machines of A100 and one of H100, all of them one tenant's."""
    tenant = vision(order, 24)
    nodes = tuple(a_node(at, 8, kind) for at, kind in enumerate(("A100", "H100", "A100")))
    return World(msgspec.structs.replace(a_config(tenant), nodes=nodes))


@pytest.mark.parametrize("order", BACKFILLING)
def test_nobody_takes_the_type_that_the_first_waits_for(order: QueueOrder) -> None:
    four, eight = a_job().gpus(4).types("H100"), a_job().gpus(8).types("H100")
    assert passes(mixed(order), four, eight, a_job().gpus(4).types("H100")) == [False, True]
    assert passes(mixed(order), four, eight, a_job().gpus(4).types("A100")) == [True, True]


@pytest.mark.parametrize("order", BACKFILLING)
def test_a_job_that_takes_any_type_passes_on_another(order: QueueOrder) -> None:
    """The fullest machine, where it would go by itself, is of the type that is waited for."""
    world = mixed(order)
    run(world, a_job().gpus(4).types("H100"), 1)
    start(world)
    head = run(world, a_job().gpus(8).types("H100"), 1)
    anywhere = run(world, a_job().gpus(4), 9)
    start(world)
    assert (world.is_(head), world.is_(anywhere)) == (S.QUEUED, S.RUNNING)
    assert world.job(anywhere).attempts[-1].slots[0].node != 1


@pytest.mark.parametrize("order", BACKFILLING)
def test_what_fits_on_the_awaited_type_alone_is_told_that_it_waits(order: QueueOrder) -> None:
    """Others have devices to spare, but not enough on one machine."""
    world = mixed(order)
    for minutes, kind, devices in ((1, "H100", 4), (9, "A100", 6), (9, "A100", 6)):
        run(world, a_job().gpus(devices).types(kind), minutes)
        start(world)
    head = run(world, a_job().gpus(8).types("H100"), 1)
    anywhere = run(world, a_job().gpus(4), 9)
    start(world)
    assert (world.is_(head), world.is_(anywhere)) == (S.QUEUED, S.QUEUED)
    why = world.why(anywhere)
    assert (why.reason, why.ahead) == (Reason.BEHIND, head)


@pytest.mark.parametrize("order", BACKFILLING)
@pytest.mark.parametrize("more", ["", "cpu"])
def test_in_cells_nobody_takes_what_the_first_waits_for(order: QueueOrder, more: str) -> None:
    """Half of the tenant's machine is in use; of those of others, one is idle."""
    world = a_cell_world(
        f"""\
hardware: ["4 x 8xV100 in racks of 2"]
tenants:
  vision: {{cells: {{8xV100-node: 1}}, borrow: false, queues: {{default: {{order: {order}}}}}}}
  nlp: {{cells: {{8xV100-node: 2}}}}
"""
    )
    half = a_job().gpus(0).cpus(30) if more else a_job().gpus(4)
    found = passes(world, half, a_job().gpus(8), half)
    assert found == [False, True]


def test_in_a_skipping_queue_others_pass() -> None:
    world = beside_an_idle_team(vision(QueueOrder.SKIP))
    submit(world, 4, 2)
    start(world)
    whole, behind = submit(world, 8, 1), submit(world, 4, 9)
    start(world)
    assert (world.is_(whole), world.is_(behind)) == (S.QUEUED, S.RUNNING)


def test_the_place_of_a_job_that_is_told_to_end_is_reserved_at_once() -> None:
    """It was known to find no room: what is leaving by now changes that."""
    world = World(a_config(a_tenant("vision", 6), a_tenant("nlp", 10), nodes=2))
    first, _ = submit(world, 5, 1, "nlp"), submit(world, 5, 1, "nlp")
    start(world)
    waits = submit(world, 6, 1)
    start(world)
    assert world.is_(waits) is S.QUEUED
    world.do(c.CancelJob(first))
    world.cycle()
    assert world.state.cluster.reserved[waits].victims == (first,)
