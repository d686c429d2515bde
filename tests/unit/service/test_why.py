"""What a waiting job is told: only what holds, and only what its waiting hangs on."""

import msgspec
import pytest

from allotment.engine.evicted import demoted_for, evicted_for
from allotment.model import commands as c
from allotment.model.amounts import Amounts
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DEVICE, GIB, MINUTE, SECOND, Millis
from allotment.model.reasons import Reason
from allotment.model.spec import Dependency
from allotment.model.tenancy import Config, Preempt, PreemptRules, Queue, QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.world import World
from tests.unit.core.test_disruption import BOTH, a_world, low, start, urgent

MIXED = Config(
    nodes=(a_node(0, 4, "A100"), a_node(1, 4, "T4", 16 * GIB), a_node(2, 2, "V100")),
    tenants=(a_tenant("vision", 8),),
)


def names(world: World, job: JobId) -> list[int]:
    return [holder.job for holder in world.why(job).holders]


def test_a_type_that_is_used_up_is_named_and_nothing_is_said_to_be_in_pieces() -> None:
    world = World(MIXED)
    holder = start(world, a_job().gpus(4).types("A100"))
    beside = start(world, a_job().gpus(1).types("T4"))
    waits = start(world, a_job().gpus(4).types("A100"))
    blocked = world.why(waits)
    assert blocked.reason is Reason.CAPACITY
    assert blocked.message == "Others hold what it needs; too little is free of: GPU (A100)."
    assert blocked.free.gpu_milli == 0
    assert names(world, waits) == [holder]
    assert beside not in names(world, waits)


def test_pieces_of_the_type_it_takes_are_what_it_is_told_of() -> None:
    nodes = (a_node(0, 2, "A100"), a_node(1, 2, "A100"), a_node(2, 4, "T4"))
    world = World(msgspec.structs.replace(MIXED, nodes=nodes))
    start(world, a_job().gpus(1).types("A100").cpus(40))
    start(world, a_job().gpus(1).types("A100").cpus(40))
    blocked = world.why(start(world, a_job().gpus(2).types("A100")))
    assert blocked.reason is Reason.FRAGMENTED
    assert blocked.message.startswith("2 GPU")
    assert blocked.free.gpu_milli == 2 * DEVICE


def test_of_several_types_that_it_takes_all_count() -> None:
    world = World(MIXED)
    start(world, a_job().gpus(3).types("A100"))
    start(world, a_job().gpus(2).types("T4"))
    blocked = world.why(start(world, a_job().gpus(1).tasks(4).types("A100", "T4")))
    assert blocked.message.endswith("too little is free of: GPU (A100 or T4).")
    assert blocked.free.gpu_milli == 3 * DEVICE


def test_who_is_not_in_line_is_told_what_is_free_all_the_same() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    first = start(world, a_job().gpus(2))
    held = world.submit(a_job().gpus(1))
    world.do(c.HoldJob(held))
    after = world.submit(a_job().gpus(1).after(Dependency(first)))
    for job, reason in ((held, Reason.HELD), (after, Reason.DEPENDENCY)):
        blocked = world.why(job)
        assert blocked.reason is reason
        assert blocked.need.gpu_milli == DEVICE
        assert blocked.free.gpu_milli == 6 * DEVICE
        assert blocked.free.cpu_milli > 0


def test_a_cap_names_those_it_counts_and_nobody_else() -> None:
    capped = Queue("a", QueueOrder.SKIP, per_user=Amounts((("gpu", 2 * DEVICE),)))
    limited = Queue("b", QueueOrder.SKIP, limit=Amounts((("gpu", 3 * DEVICE),)))
    tenant = a_tenant("vision", 16)
    queues = (Queue("default"), capped, limited)
    world = World(a_config(msgspec.structs.replace(tenant, queues=queues), nodes=2))
    large = start(world, a_job().gpus(8))
    mine = start(world, a_job().of("vision", "a").gpus(2))
    there = start(world, a_job().of("vision", "b").gpus(3))
    of_user = start(world, a_job().of("vision", "a").gpus(1))
    of_queue = start(world, a_job().of("vision", "b").gpus(1))
    assert [world.why(job).reason for job in (of_user, of_queue)] == [
        Reason.USER_CAP,
        Reason.QUEUE_LIMIT,
    ]
    assert names(world, of_user) == [mine]
    assert names(world, of_queue) == [there]
    assert large not in names(world, of_user)


def test_a_used_up_guarantee_names_its_own_tenants_jobs() -> None:
    tenants = (a_tenant("vision", 4, borrow=False), a_tenant("nlp", 8))
    world = World(a_config(*tenants, nodes=2))
    start(world, a_job().of("nlp").gpus(8))
    own = start(world, a_job().gpus(4))
    waits = start(world, a_job().gpus(1))
    assert world.why(waits).reason is Reason.QUOTA
    assert names(world, waits) == [own]


# ── protected for a while ───────────────────────────────────────────────────────────────


@BOTH
@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_it_is_told_whom_it_may_make_give_way_and_when(cells: bool, preempt: Preempt) -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(10 * MINUTE)), cells=cells, preempt=preempt)
    first = start(world, low())
    world.wait(MINUTE)
    start(world, low())
    for _ in range(2):
        start(world, a_job().of("b").gpus(8))
    world.wait(MINUTE)
    waits = start(world, urgent())
    blocked = world.why(waits)
    assert f"preempt job {first} of its own tenant in 8 min 0 s, when" in blocked.message
    assert "the minimum run time there (10 min 0 s, min_run)" in blocked.message
    assert blocked.until is not None
    assert blocked.until == world.now + 8 * MINUTE
    assert world.engine.next_due(world.now) == blocked.until
    world.now = blocked.until
    world.engine.tick(world.now)
    world.cycle()
    assert world.is_(waits) is not JobState.QUEUED or waits in world.state.cluster.reserved


@BOTH
def test_a_tenant_that_lost_enough_is_told_until_when(cells: bool) -> None:
    world = a_world(PreemptRules(evictions=1, per_ms=Millis(MINUTE)), cells=cells)
    for _ in range(2):
        start(world, low())
    for _ in range(2):
        start(world, a_job().of("b").gpus(8))
    start(world, urgent())
    world.wait(20 * SECOND)
    blocked = world.why(start(world, urgent()))
    assert "tenant in 40.0 s: until then the disruption budget of" in blocked.message


@BOTH
def test_nothing_is_said_of_who_is_as_urgent(cells: bool) -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(MINUTE)), cells=cells)
    for _ in range(2):
        start(world, low())
    for _ in range(2):
        start(world, a_job().of("b").gpus(8))
    blocked = world.why(start(world, low().not_preemptible()))
    assert "give way" not in blocked.message
    assert blocked.until is None


def test_asking_changes_nothing_about_when_it_looks_again() -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(10 * MINUTE)), cells=False)
    for _ in range(2):
        start(world, low())
    waits = start(world, urgent())
    before = world.state.cluster.disruption.wake_at if world.state.cluster.disruption else None
    world.wait(MINUTE)
    world.why(waits)
    assert world.state.cluster.disruption is not None
    assert world.state.cluster.disruption.wake_at == before


# ── who had to go ───────────────────────────────────────────────────────────────────────


def evicted(world: World, first: JobBuilder, second: JobBuilder) -> tuple[JobId, str]:
    victim = start(world, first)
    other = start(world, second)
    assert world.job(victim).attempts[-1].stop is not None
    return other, evicted_for(world.state, world.job(victim))


def test_a_more_urgent_job_of_its_own_team_is_named() -> None:
    world = a_world(PreemptRules(), cells=False)
    for _ in range(2):
        start(world, a_job().of("b").gpus(8))
    start(world, low())
    other, words = evicted(world, low(), urgent())
    assert words == f"A more urgent job of its own tenant got its place: job {other}."


def test_an_owner_of_lent_devices_is_named() -> None:
    world = World(a_config(a_tenant("vision", 0), a_tenant("nlp", 8)))
    other, words = evicted(world, a_job().gpus(8), a_job().of("nlp").gpus(8))
    assert words == f"It borrowed, and tenant nlp reclaimed its guarantee for job {other}."


def test_a_job_that_is_forgotten_is_named_by_its_number() -> None:
    world = a_world(PreemptRules(), cells=False)
    known = start(world, low())
    told = "its guarantee goes to job {} of its tenant"
    assert demoted_for(world.state, known, JobId(99)) == told.format(99)
    assert demoted_for(world.state, JobId(98), known) == told.format(known)
