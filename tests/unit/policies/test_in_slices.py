"""Time slices: who gives way, when, and how."""

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.engine.engine import Engine
from allotment.engine.evicted import took_turn
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import GIB, SECOND, Millis, show_millis
from allotment.model.reasons import StopCause
from allotment.model.reports import TrialReport
from allotment.model.spec import GiveWay
from allotment.model.sweeps import Halving, Range, Scale, Sweep
from allotment.model.tenancy import QueueOrder, RankBy, Tenant
from allotment.policies.rescheduling.in_slices import in_slices
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

SLICE = Millis(60 * SECOND)


def sliced(tenant: Tenant) -> Tenant:
    queues = tuple(
        replace(queue, time_slice_ms=SLICE, rank=RankBy.ROUND_ROBIN) for queue in tenant.queues
    )
    return replace(tenant, queues=queues)


class SlicedWorld(World):
    """One node, whose queues take turns."""

    def __init__(self, *tenants: Tenant, devices: int = 1) -> None:
        self.engine = Engine(State(replace(POLICIES, rescheduler=in_slices)))
        self.now, self.log, self.effects = NOW, [], []
        self.do(c.ApplyConfig(a_config(*tenants, devices=devices)))

    def started(self, builder: JobBuilder, after_ms: int = 0) -> JobId:
        job = self.submit(builder)
        self.cycle()
        self.wait(after_ms)
        self.runs(job)
        return job

    def later(self, ms: int) -> None:
        self.wait(ms)
        self.cycle()


def us(devices: float = 1) -> Tenant:
    return sliced(a_tenant("us", devices, order=QueueOrder.SKIP))


def one() -> JobBuilder:
    return a_job().gpus(1).of("us")


def test_a_gang_gives_way_when_its_slice_is_over_and_not_before() -> None:
    world = SlicedWorld(us())
    first = world.started(one())
    second = world.submit(one())
    world.later(SLICE - 1)
    assert world.is_(first) is S.RUNNING
    assert world.engine.next_due(world.now) == world.now + 1
    world.later(1)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.STARTING)
    world.runs(second)
    world.later(SLICE // 2)
    why = world.why(first)
    assert "It is suspended" in why.message
    assert "turns of 1 min" in why.message
    assert "again in about 30" in why.message
    world.later(SLICE // 2)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.SUSPENDED)


def test_a_gang_of_weight_two_has_turns_twice_as_long() -> None:
    world = SlicedWorld(us())
    heavy = world.started(one().weight(2))
    light = world.submit(one())
    world.later(2 * SLICE - 1)
    assert world.is_(heavy) is S.RUNNING
    world.later(1)
    assert (world.is_(heavy), world.is_(light)) == (S.SUSPENDED, S.STARTING)
    world.runs(light)
    why = world.why(heavy).message
    assert "turns of 1 min 0 s, times their weight (its own: 2)" in why
    assert f"the turn of job {light} (weight 1)" in why
    assert "again in about 1 min" in why
    for _ in range(3):
        world.later(SLICE)
        assert (world.is_(heavy), world.is_(light)) == (S.RUNNING, S.SUSPENDED)
        assert "again in about 2 min" in world.why(light).message
        world.later(2 * SLICE - 1)
        assert world.is_(heavy) is S.RUNNING
        world.later(1)
        assert (world.is_(heavy), world.is_(light)) == (S.SUSPENDED, S.RUNNING)


def test_a_weight_changes_nothing_about_who_is_more_urgent() -> None:
    world = SlicedWorld(us())
    first = world.started(one().weight(10))
    second = world.submit(one().priority(700))
    world.later(10 * SLICE)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.STARTING)
    world.runs(second)
    world.later(10 * SLICE)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)


def test_what_starts_anew_has_its_weight_in_slices_too() -> None:
    world = SlicedWorld(us())
    first = world.started(too_large_to_stay().weight(2), after_ms=SECOND)
    world.submit(too_large_to_stay())
    world.wait(2 * SLICE - 1)
    world.saves(first)
    world.cycle()
    assert world.is_(first) is S.RUNNING
    world.later(1)
    assert world.job(first).attempts[-1].stop is not None


def test_a_weight_without_slices_is_told_to_have_no_effect() -> None:
    world = SlicedWorld(us(), a_tenant("them"))
    told = {
        tenant: world.job(world.submit(a_job().gpus(1).of(tenant).weight(2))).warnings
        for tenant in ("us", "them")
    }
    no_effect = "Its weight has no effect: queue default has no time slices."
    assert no_effect not in told["us"]
    assert no_effect in told["them"]


def test_nobody_gives_way_while_nobody_waits() -> None:
    world = SlicedWorld(us())
    first = world.started(one())
    world.later(10 * SLICE)
    assert world.is_(first) is S.RUNNING
    assert world.engine.next_due(world.now) is None
    second = world.submit(one())
    world.cycle()
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.STARTING)


def test_a_gang_never_gives_way_to_a_less_urgent_one() -> None:
    world = SlicedWorld(us())
    first = world.started(one().priority(700))
    second = world.submit(one())
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)


def test_gangs_of_other_queues_give_no_way() -> None:
    tenant = a_tenant("us", 1)
    (queue,) = us().queues
    world = SlicedWorld(replace(tenant, queues=(*tenant.queues, replace(queue, name="fast"))))
    first = world.started(one())
    second = world.submit(a_job().gpus(1).of("us", "fast"))
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)


def test_a_large_gang_is_not_passed_for_ever_by_small_ones() -> None:
    world = SlicedWorld(us(2), devices=2)
    small = [world.started(one())]
    world.later(SLICE // 2)
    small.append(world.started(one()))
    large = world.submit(a_job().gpus(2).of("us"))
    another = world.submit(one())
    world.later(SLICE // 2)
    assert [world.is_(job) for job in (*small, large, another)] == [
        S.RUNNING,
        S.RUNNING,
        S.QUEUED,
        S.QUEUED,
    ], "what gives way is kept for the first in line"
    world.later(SLICE // 2)
    assert [world.is_(job) for job in (*small, large)] == [S.SUSPENDED, S.SUSPENDED, S.STARTING]


def too_large_to_stay() -> JobBuilder:
    return one().gpu_memory(50 * GIB)


def test_what_cannot_stay_in_memory_is_left_alone_until_it_saved() -> None:
    world = SlicedWorld(us())
    first = world.started(too_large_to_stay(), after_ms=2 * SECOND)
    second = world.submit(too_large_to_stay())
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)
    world.saves(first)
    world.cycle()
    assert world.is_(first) is S.RUNNING, "it took 2 s to start: it runs for 100 s"
    world.later(40 * SECOND)
    stop = world.job(first).attempts[-1].stop
    assert stop is not None
    assert (stop.cause, stop.wanted_by) == (StopCause.EVICTED, second)


def test_a_job_that_lost_what_it_did_is_not_sent_away_again() -> None:
    world = SlicedWorld(us())
    first = world.started(too_large_to_stay())
    world.wait(SECOND)
    world.saves(first)
    world.wait(5 * SLICE)
    second = world.submit(too_large_to_stay())
    world.cycle()
    world.ends(first, 143)
    world.cycle()
    world.runs(second)
    assert world.is_(first) is S.QUEUED
    world.ends(second)
    world.cycle()
    world.runs(first)
    third = world.submit(too_large_to_stay())
    world.wait(SLICE)
    world.saves(first)
    world.cycle()
    assert (world.is_(first), world.is_(third)) == (S.RUNNING, S.QUEUED)


def test_what_asks_to_be_requeued_is_not_suspended() -> None:
    world = SlicedWorld(us())
    first = world.started(one().giving_way(GiveWay.REQUEUE))
    second = world.submit(one())
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)
    world.wait(SECOND)
    world.saves(first)
    world.cycle()
    assert world.job(first).attempts[-1].stop is not None


def test_a_borrower_takes_no_turn_from_a_gang_that_is_owed_its_place() -> None:
    world = SlicedWorld(us(1), sliced(a_tenant("them", 1)), devices=2)
    first = world.started(one())
    other = world.started(a_job().gpus(1).of("them"))
    waits = world.submit(a_job().gpus(2).of("us"))
    world.later(SLICE)
    assert [world.is_(job) for job in (first, other, waits)] == [
        S.RUNNING,
        S.RUNNING,
        S.QUEUED,
    ]


def test_the_committer_refuses_a_turn_before_its_time() -> None:
    world = SlicedWorld(us(), sliced(a_tenant("them")), devices=1)
    first = world.started(one())
    second = world.submit(one())
    cluster = world.state.cluster
    gang = cluster.gangs[first]
    place = ReservedPlace(second, gang.slots, gang.needs, gang.entitlement, (first,))
    turn = Evict(place, (), (first,), suspend=(first,))
    world.wait(SLICE - 1)
    assert "may not be evicted" in refusal(cluster, turn, world.now)
    world.wait(1)
    assert not refusal(cluster, turn, world.now)


def test_only_jobs_of_one_sliced_queue_take_turns() -> None:
    tenant = us(1)
    queues = (*tenant.queues, replace(tenant.queues[0], name="fast"))
    world = SlicedWorld(replace(tenant, queues=queues), a_tenant("them"), devices=1)
    first, second = world.submit(one()), world.submit(one())
    fast = world.submit(a_job().gpus(1).of("us", "fast"))
    other, another = (world.submit(a_job().gpus(1).of("them")) for _ in range(2))
    assert took_turn(world.state, first, second)
    assert not took_turn(world.state, first, fast)
    assert not took_turn(world.state, first, other)
    assert not took_turn(world.state, other, another), "their queue is not sliced"
    assert not took_turn(world.state, first, JobId(99))


@pytest.mark.parametrize("owned", [1, 0])
def test_turns_go_round_in_the_order_in_which_gangs_came_to_wait(owned: int) -> None:
    world = SlicedWorld(us(owned), sliced(a_tenant("them")))
    first = world.started(one())
    second, third = world.submit(one()), world.submit(one())
    world.later(SLICE)
    world.runs(second)
    fourth = world.submit(one())
    turns = [second]
    for _ in range(5):
        world.later(SLICE)
        (on,) = (each.id for each in world.state.cluster.gangs.values() if not each.suspended)
        turns.append(on)
        if world.is_(on) is S.STARTING:
            world.runs(on)
    assert turns == [second, third, first, fourth, second, third]


@pytest.mark.parametrize("borrow", [True, False])
def test_a_gang_on_a_drained_node_takes_no_turn(borrow: bool) -> None:
    world = SlicedWorld(replace(us(), borrow=borrow), sliced(a_tenant("them")))
    first = world.started(one())
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.do(c.DrainNode(NodeId(0)))
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)
    world.do(c.UndrainNode(NodeId(0)))
    world.cycle()
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.SUSPENDED)


def test_a_gang_waits_for_the_turns_of_all_that_came_to_wait_before_it() -> None:
    world = SlicedWorld(us())
    jobs = [world.started(one()), world.submit(one()), world.submit(one())]
    for job in jobs[1:]:
        world.later(SLICE)
        world.runs(job)
    world.later(SLICE // 2)
    for job, seconds in ((jobs[0], 30), (jobs[1], 90)):
        said = world.why(job).message
        assert f"it is the turn of job {jobs[2]} on its devices" in said
        assert f"again in about {show_millis(seconds * SECOND)}" in said


def test_a_gang_is_told_of_its_turn_while_only_those_that_take_turns_are_in_its_way() -> None:
    world = SlicedWorld(us(2), devices=2)
    beside = world.started(one())
    world.later(SLICE)
    first = world.started(one())
    second, third = world.submit(one()), world.submit(one())
    world.later(SLICE)
    suspended = [job for job in (beside, first) if world.is_(job) is S.SUSPENDED]
    for job in (second, third):
        if world.is_(job) is S.STARTING:
            world.runs(job)
    for job in suspended:
        gang = world.state.cluster.gangs[job]
        holders = [
            each.id
            for each in world.state.cluster.gangs.values()
            if not each.suspended and each.slots[0].devices == gang.slots[0].devices
        ]
        assert f"it is the turn of job {holders[0]} on its devices" in world.why(job).message
    world.do(c.DrainNode(NodeId(0)))
    for job in (second, third):
        world.ends(job)
    assert "turn" not in world.why(first).message


@pytest.mark.parametrize("priority", [100, 700])
def test_a_gang_is_told_of_no_turn_where_another_queue_has_its_devices(priority: int) -> None:
    tenant = us()
    (queue,) = tenant.queues
    more = (*tenant.queues, replace(queue, name="fast", time_slice_ms=Millis(0)))
    world = SlicedWorld(replace(tenant, queues=more))
    first = world.started(one())
    world.do(c.SuspendJob(first))
    world.started(a_job().gpus(1).of("us", "fast").priority(priority))
    world.do(c.ResumeJob(first))
    world.cycle()
    assert "take turns" not in world.why(first).message


@pytest.mark.parametrize(
    ("sizes", "turns"),
    [
        ((4, 4, 4), ["A", "B", "C", "A", "B", "C"]),
        ((4, 2, 2), ["A", "BC", "A", "BC", "A", "BC"]),
        ((2, 4, 2), ["AC", "B", "AC", "B", "AC", "B"]),
    ],
)
def test_gangs_a_b_and_c_alternate_and_none_ever_runs_in_part(
    sizes: tuple[int, int, int], turns: list[str]
) -> None:
    """Three gangs on the four devices of a server: each has all of its devices, or none."""
    world = SlicedWorld(us(4), devices=4)
    jobs = {
        world.submit(a_job().tasks(size).gpus(1).of("us")): name
        for name, size in zip("ABC", sizes, strict=True)
    }
    seen: list[str] = []
    world.cycle()
    for _ in turns:
        for job in jobs:
            if world.is_(job) is S.STARTING:
                world.runs(job)
        on = [name for job, name in jobs.items() if world.is_(job) is S.RUNNING]
        seen.append("".join(on))
        world.later(SLICE)
    assert seen == turns


def test_all_trials_of_a_sweep_report_within_a_turn_each_and_the_losers_go() -> None:
    """Four trials on two devices: nobody's first values wait for the end of another trial."""
    world = SlicedWorld(us(2), devices=2)
    space = (("lr", Range(Scale.LOG, 1e-4, 1.0)),)
    sweep = Sweep(space, draws=4, seed=1, metric="loss", halving=Halving((10,), eta=4))
    made = world.do(c.SubmitJob(one().named("tune").spec(), copies=4, sweep=sweep))
    trials = [each.event.job for each in made if isinstance(each.event, e.JobSubmitted)]
    world.cycle()
    for first in (0, 2):
        for trial in trials[first : first + 2]:
            world.runs(trial)
        for at in (first, first + 1):
            world.tell(TrialReport(trials[at], AttemptNo(1), 10, 0.9 - at / 10, known=True))
        world.later(SLICE)
    assert world.now == NOW + 2 * SLICE
    stopped = [r.event.job for r in world.log if isinstance(r.event, e.TrialStopped)]
    assert set(stopped) == set(trials[:3])
    for trial in stopped:
        world.ends(trial, 143)
    world.cycle()
    assert world.is_(trials[3]) is S.RUNNING
