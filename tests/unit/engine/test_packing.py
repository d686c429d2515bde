"""Two gangs at once on devices where they take turns: tried, measured, kept or undone."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import Gang
from allotment.core.plan import Pack
from allotment.core.slices import line_of
from allotment.engine.engine import Engine
from allotment.engine.gains import AGAIN
from allotment.engine.react import pending_effects
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.events import Parted
from allotment.model.gains import TRY_MS, beats_turns, expected_together, together
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot, having
from allotment.model.lifecycle import JobState as S
from allotment.model.others import Others
from allotment.model.quantity import GIB, SECOND, Millis, WallTime
from allotment.model.reports import OthersReport, PaceReport, PairReport
from allotment.model.spec import GiveWay
from allotment.model.tenancy import QueueOrder, QueueState, RankBy, Tenant
from allotment.policies.rescheduling import in_slices
from allotment.policies.rescheduling.growing import growing
from allotment.policies.rescheduling.packing import packings
from allotment.policies.rescheduling.stints import Stints
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

SLICE = Millis(60 * SECOND)
ALONE = 1_000


def packing(tenant: Tenant, *, packs: bool = True) -> Tenant:
    queues = tuple(
        replace(queue, time_slice_ms=SLICE, rank=RankBy.ROUND_ROBIN, packs=packs)
        for queue in tenant.queues
    )
    return replace(tenant, queues=queues)


def us(devices: int = 1, *, packs: bool = True) -> Tenant:
    return packing(a_tenant("us", devices, order=QueueOrder.SKIP), packs=packs)


class Pairs(World):
    """One node, on whose devices gangs of a queue take turns, or run at once."""

    def __init__(self, *tenants: Tenant, devices: int = 1, nodes: int = 1) -> None:
        self.engine = Engine(State(replace(POLICIES, rescheduler=growing)))
        self.now, self.log, self.effects = NOW, [], []
        self.do(c.ApplyConfig(a_config(*(tenants or (us(),)), devices=devices, nodes=nodes)))

    def started(self, builder: JobBuilder) -> JobId:
        job = self.submit(builder)
        self.later(0)
        self.runs(job)
        return job

    def later(self, ms: int) -> None:
        self.wait(ms)
        self.cycle()

    def tells(self, job: JobId, rate: int = ALONE, busy: int = 0) -> None:
        """Let a job be measured alone."""
        attempt = self.job(job).attempts[-1]
        self.tell(PaceReport(job, attempt.no, len(attempt.slots), rate, -1, busy))
        self.cycle()

    def measured(self, job: JobId, rate: int, other_rate: int) -> None:
        """Let a job be measured with the one beside which it runs."""
        beside = self.state.packed[job]
        no = self.job(job).attempts[-1].no
        self.tell(PairReport(job, no, beside, rate, other_rate))
        self.cycle()

    def a_pair(self, rates: Sequence[int] = (ALONE, ALONE)) -> tuple[JobId, JobId]:
        """Return two jobs of which the second has the devices, and the first is beside it."""
        first = self.started(one())
        self.tells(first, rates[0])
        second = self.submit(one())
        self.later(SLICE)
        self.runs(second)
        self.tells(second, rates[1])
        assert self.state.packed == {first: second}
        return first, second

    def many_pairs(self) -> dict[JobId, JobId]:
        """Return two pairs, on devices of two nodes."""
        firsts = [self.started(one()) for _ in range(2)]
        for job in firsts:
            self.tells(job)
        seconds = [self.submit(one()) for _ in range(2)]
        self.later(SLICE)
        for job in seconds:
            self.runs(job)
        for job in seconds:
            self.tells(job)
        return self.state.packed

    def measured_alone_at_each_turn(self, jobs: Sequence[JobId]) -> None:
        """Let all have some turns, and be measured alone in each."""
        for _ in range(3 * len(jobs)):
            self.later(SLICE)
            for job in jobs:
                if self.is_(job) is S.RUNNING and job not in self.state.packed_with:
                    self.tells(job)

    def pairs(self) -> list[tuple[JobId, JobId]]:
        return [
            (event.job, event.beside)
            for event in self.told(e.Packed)
            if isinstance(event, e.Packed)
        ]

    def told(self, kind: type[e.Event]) -> list[e.AnyEvent]:
        return [record.event for record in self.log if isinstance(record.event, kind)]

    def partings(self) -> list[Parted]:
        return [event.cause for event in self.told(e.Unpacked) if isinstance(event, e.Unpacked)]

    def orders(self, job: JobId) -> list[type[f.Effect]]:
        """Return how a job was told to stand or to go on, in order."""
        return [
            type(effect)
            for effect in self.effects
            if (isinstance(effect, f.ThawTask) and effect.key.job == job)
            or (isinstance(effect, f.FreezeGang) and effect.keys[0].job == job)
        ]


def one() -> JobBuilder:
    return a_job().gpus(1).of("us")


def test_what_two_gain_is_compared_with_half_of_each() -> None:
    assert together(800, 1_000, 1_700, 2_000) == 1_650
    assert beats_turns(800, 1_000, 1_700, 2_000)
    assert not beats_turns(510, 1_000, 1_040, 2_000), "no more than by chance"
    assert not beats_turns(300, 1_000, 2_000, 2_000), "one of them loses"
    assert together(3_000, 1_000, 2_000, 2_000) == 2_000, "it could be so fast alone, too"
    assert expected_together(300, 500) == 2_000
    assert expected_together(616, 616) == 1_623, "Gandiva's RHN, of which it measured 1,460"
    assert expected_together(0, 500) == 0


def test_a_suspended_gang_goes_on_beside_the_one_with_its_devices_once_both_are_known() -> None:
    world = Pairs()
    first = world.started(one())
    world.tells(first)
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.cycle()
    assert not world.state.packed, "the second was never measured"
    world.tells(second)
    assert world.state.packed == {first: second}
    assert world.orders(first) == [f.FreezeGang, f.ThawTask]
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)
    assert f"It runs beside job {second}" in world.why(first).message
    assert world.state.cluster.ledger.whole_free == 0, "the device is held once"


def test_nobody_is_packed_while_nobody_waits_for_its_turn() -> None:
    world = Pairs(us(2), devices=2)
    jobs = [world.started(one()) for _ in range(2)]
    for job in jobs:
        world.tells(job)
    world.later(10 * SLICE)
    assert [world.is_(job) for job in jobs] == [S.RUNNING] * 2
    assert not world.told(e.Packed)


def test_one_that_was_measured_in_an_earlier_turn_is_measured_anew_first() -> None:
    world = Pairs(us(), a_tenant("them", 0, order=QueueOrder.SKIP))
    filler = world.started(a_job().gpus(0).cpus(62.5).of("them"))
    first = world.started(one())
    world.tells(first)
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    world.later(SLICE)
    world.ends(filler)
    world.cycle()
    assert world.is_(first) is S.RUNNING
    assert not world.state.packed, "much may be different now"
    world.tells(first)
    assert world.state.packed == {second: first}
    assert len(world.told(e.PaceMeasured)) == 3, "though it is as fast as before"


def test_where_a_queue_does_not_pack_its_gangs_take_turns_alone() -> None:
    world = Pairs(us(packs=False))
    first = world.started(one())
    world.tells(first)
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    assert not world.told(e.Packed)
    assert refusal(world.state.cluster, Pack(first, second), world.now)


def test_how_fast_a_job_is_brings_nothing_to_decide_where_its_queue_does_not_pack() -> None:
    tenant = us(packs=False)
    queues = tuple(replace(queue, migrates=True) for queue in tenant.queues)
    world = Pairs(replace(tenant, queues=queues))
    world.started(one())
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    assert world.state.cluster.placed.resuming
    before = world.state.cluster.pending.arrivals
    world.tells(second)
    assert world.told(e.PaceMeasured)
    assert world.state.cluster.pending.arrivals == before


@pytest.mark.parametrize("parts", [2, 4])
def test_how_often_a_cycle_looks_at_the_pairs_does_not_hang_on_how_many_wait(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Pairs()
    part = a_job().gpus(1 / parts).of("us")
    for _ in range(parts):
        world.started(part)
    late = [world.submit(part) for _ in range(parts)]
    world.later(SLICE)
    assert len(world.state.cluster.placed.resuming) == parts
    looks: list[None] = []

    def look(*_: object) -> bool:
        looks.append(None)
        return False

    monkeypatch.setattr(in_slices, "may_pack", look)
    world.runs(late[0])
    world.state.cluster.pending.look_again()
    world.engine.cycle(world.now)
    assert len(looks) == 3


def test_a_pair_that_gains_is_kept_and_takes_no_turns() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 900, 800)
    world.later(TRY_MS)
    (found,) = world.told(e.PackingMeasured)
    assert isinstance(found, e.PackingMeasured)
    assert (found.gain_milli, found.kept) == (1_700, True)
    assert world.state.packed == {first: second}
    assert world.orders(first) == [f.FreezeGang, f.ThawTask]
    assert "Together they do 1.70 times what" in world.why(first).message


def test_a_pair_that_loses_is_parted_and_never_tried_again() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 400, 450)
    assert world.partings() == [Parted.WORSE]
    assert world.orders(first) == [f.FreezeGang, f.ThawTask, f.FreezeGang]
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.SUSPENDED), "turns go on"
    for job in (first, second) * 3:
        world.tells(job)
        world.later(SLICE)
    assert len(world.told(e.Packed)) == 1


def test_a_pair_is_parted_later_if_it_comes_to_lose() -> None:
    world = Pairs()
    first, _ = world.a_pair()
    world.measured(first, 900, 800)
    world.measured(first, 880, 810)
    world.measured(first, 800, 700)
    assert len(world.told(e.PackingMeasured)) == 1, "that is nothing new, or too soon"
    world.wait(AGAIN)
    world.measured(first, 800, 700)
    assert len(world.told(e.PackingMeasured)) == 2
    world.measured(first, 300, 300)
    assert world.partings() == [Parted.WORSE]


def test_one_that_is_faster_than_it_was_alone_is_compared_with_that_from_then_on() -> None:
    world = Pairs()
    first, _ = world.a_pair()
    world.measured(first, 3_000, 900)
    (found,) = world.told(e.PackingMeasured)
    assert isinstance(found, e.PackingMeasured)
    assert found.gain_milli == 1_900
    world.measured(first, 1_400, 600)
    assert world.partings() == [Parted.WORSE], "1,400 of 3,000 is less than its turns give"


def test_a_try_ends_even_if_the_jobs_tell_nothing_more() -> None:
    world = Pairs()
    world.a_pair()
    assert world.engine.next_due(world.now) is not None
    world.later(TRY_MS)
    assert world.partings() == [Parted.UNMEASURED]
    world.later(SLICE)
    assert not world.state.packed


def test_when_the_other_ends_it_is_frozen_and_has_its_devices_back() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 900, 900)
    world.ends(second)
    world.cycle()
    assert world.partings() == [Parted.LEFT]
    assert world.is_(first) is S.RUNNING
    assert world.orders(first) == [f.FreezeGang, f.ThawTask, f.FreezeGang, f.ThawTask]


def test_it_may_end_beside_the_other() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.ends(first)
    world.cycle()
    assert (world.is_(first), world.is_(second)) == (S.SUCCEEDED, S.RUNNING)
    assert world.partings() == [Parted.OVER]
    assert world.orders(first) == [f.FreezeGang, f.ThawTask], "what ended is not frozen"


def test_it_is_told_to_stop_like_any_other() -> None:
    world = Pairs()
    first, _ = world.a_pair()
    world.do(c.CancelJob(first))
    assert world.is_(first) is S.STOPPING
    assert world.orders(first)[-1] is f.ThawTask, "a frozen task could not end by itself"


def test_who_wants_it_suspended_is_told_how() -> None:
    world = Pairs()
    first, second = world.a_pair()
    with pytest.raises(Rejected, match=f"runs beside job {second}") as told:
        world.do(c.SuspendJob(first))
    assert told.value.hint.startswith(f"To separate them: `allot suspend {second}`")
    world.do(c.SuspendJob(second))
    world.cycle()
    assert (world.is_(first), world.partings()) == (S.RUNNING, [Parted.LEFT])
    world.do(c.SuspendJob(first))
    world.later(10 * SLICE)
    assert [world.is_(job) for job in (first, second)] == [S.SUSPENDED] * 2
    assert len(world.told(e.Packed)) == 1, "neither waits for its turn"


def test_a_third_has_its_turn_and_the_pair_goes_on_afterwards_at_once() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 900, 900)
    third = world.submit(one())
    world.later(SLICE)
    assert world.partings() == [Parted.LEFT]
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.SUSPENDED)
    world.runs(third)
    world.later(SLICE)
    assert world.is_(third) is S.SUSPENDED
    last = world.told(e.Packed)[-1]
    assert isinstance(last, e.Packed)
    assert ({last.job, last.beside}, last.proven) == ({first, second}, True)


def test_the_least_busy_is_tried_first_and_none_that_cannot_gain() -> None:
    world = Pairs()
    busy, idle = world.started(one()), world.submit(one())
    world.tells(busy, busy=900)
    world.later(SLICE)
    world.runs(idle)
    world.tells(idle, busy=200)
    assert world.state.packed == {busy: idle}
    world.measured(busy, 100, 100)
    third = world.submit(one())
    world.later(SLICE)
    world.later(SLICE)
    world.runs(third)
    world.tells(third, busy=990)
    assert world.state.packed == {idle: third}, "two that are busy throughout gain nothing"
    expected = world.told(e.Packed)[-1]
    assert isinstance(expected, e.Packed)
    assert expected.expected_milli == 2_000 * 1_000 // 1_190


def test_of_three_two_that_gain_go_beside_each_other_alone() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 900, 900)
    third = world.submit(one())
    world.later(SLICE)
    world.runs(third)
    world.tells(third)
    assert not world.state.packed, "the other two gain already"
    world.measured_alone_at_each_turn([first, second, third])
    assert {frozenset(pair) for pair in world.pairs()} == {frozenset({first, second})}


def test_one_that_is_less_urgent_is_not_beside_one_that_would_give_no_turn() -> None:
    world = Pairs()
    first = world.started(one())
    world.tells(first)
    second = world.submit(one().priority(600))
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)
    assert not world.told(e.Packed)
    told = refusal(world.state.cluster, Pack(first, second), world.now)
    assert "more urgent" in told


def test_gangs_of_different_weights_take_turns_and_are_not_packed() -> None:
    world = Pairs()
    first = world.started(one())
    world.tells(first)
    second = world.submit(one().weight(2))
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)
    assert not world.told(e.Packed), "of its turns one would have two thirds, not half"


def test_a_try_that_its_turn_ends_counts_if_it_was_long_enough() -> None:
    world = Pairs()
    first, second = world.a_pair()
    third = world.submit(one())
    world.later(SLICE)
    assert world.partings() == [Parted.UNMEASURED]
    assert world.job(first).beside == {second: False}
    world.runs(third)


def test_one_that_tells_nothing_does_not_stay_beside_one_that_loses() -> None:
    world = Pairs()
    first, second = world.a_pair()
    world.measured(first, 0, 500)
    assert world.state.packed == {first: second}, "it bears with that for a while"
    world.measured(first, 0, 400)
    assert world.partings() == [Parted.UNMEASURED]
    assert world.job(second).beside == {first: False}


def test_on_parts_of_a_device_none_goes_beside_another() -> None:
    world = Pairs(us(0), a_tenant("them", 0, order=QueueOrder.SKIP))
    first = world.started(one().gpus(0.5))
    world.tells(first)
    other = world.started(a_job().gpus(0.5).of("them"))
    second = world.submit(one().gpus(0.5))
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    running = {job: world.is_(job) for job in (first, second, other)}
    assert running == {first: S.SUSPENDED, second: S.RUNNING, other: S.RUNNING}
    assert not world.told(e.Packed), "the job on the other half was not asked"


def test_which_pair_is_first_does_not_hang_on_who_came_to_its_place_first() -> None:
    world = Pairs(us(2), devices=2)
    outside = Others(cpu_milli=62_000)
    world.tell(OthersReport(NodeId(0), outside))
    firsts = [world.started(one()) for _ in range(2)]
    for job in reversed(firsts):
        world.tells(job)
    seconds = [world.submit(one()) for _ in range(2)]
    world.later(SLICE)
    for job in seconds:
        world.runs(job)
    for job in seconds:
        world.tells(job)
    assert not world.state.packed
    world.tell(OthersReport(NodeId(0), replace(outside, cpu_milli=61_000)))
    cluster = world.state.cluster
    gangs = [*cluster.gangs.values()]
    for there in (gangs, gangs[::-1]):
        places: dict[tuple[Slot, ...], dict[JobId, Gang]] = {}
        for gang in there:
            places.setdefault(gang.slots, {})[gang.id] = gang
        (first, *_) = packings(cluster, places, world.now)
        assert first.job == firsts[0], "after a restart it would be, too"


def test_a_gang_that_is_promoted_leaves_the_place_that_it_was_entered_at() -> None:
    world = Pairs()
    gang = world.state.cluster.gangs[world.started(one())]
    line = line_of(gang.standing.shape)
    order = Stints({line: SLICE}, frozenset({line}))
    order.enter(gang)
    gang.slots = having(gang.slots, ((1,),))
    order.leave(gang)
    assert not order.places


def test_cpus_that_others_use_outside_are_not_used() -> None:
    world = Pairs()
    first, _ = world.a_pair()
    world.tell(OthersReport(NodeId(0), Others(cpu_milli=62_500)))
    assert world.partings() == [Parted.CPU]
    assert world.orders(first)[-1] is f.FreezeGang


def test_where_cpus_run_short_only_pairs_there_are_parted() -> None:
    fixed = a_tenant("them", 0, order=QueueOrder.SKIP)
    world = Pairs(us(2), fixed, devices=1, nodes=2)
    pairs = world.many_pairs()
    assert len(pairs) == 2
    other = world.started(a_job().gpus(0).cpus(62.5).of("them"))
    (slot,) = world.job(other).attempts[-1].slots
    assert world.partings() == [Parted.CPU]
    (left,) = world.state.packed
    assert world.job(left).attempts[-1].slots[0].node != slot.node


def test_cpus_of_others_are_not_used() -> None:
    fixed = a_tenant("them", 0, order=QueueOrder.SKIP)
    world = Pairs(us(), fixed)
    filler = world.started(a_job().gpus(0).cpus(62.5).of("them"))
    first = world.started(one())
    world.tells(first)
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.tells(second)
    assert not world.state.packed, "half a CPU is free, and it asks for one"
    world.ends(filler)
    world.cycle()
    assert world.state.packed == {first: second}
    other = world.started(a_job().gpus(0).cpus(62.5).of("them"))
    assert world.partings() == [Parted.CPU]
    assert (world.is_(first), world.is_(other)) == (S.SUSPENDED, S.RUNNING)


def test_one_that_does_not_want_to_be_suspended_is_not_packed() -> None:
    world = Pairs()
    first = world.started(one().giving_way(GiveWay.REQUEUE))
    second = world.submit(one())
    world.tells(first)
    world.later(SLICE)
    world.tells(first)
    assert world.is_(second) is S.QUEUED
    assert not world.told(e.Packed)


def test_on_a_drained_node_none_goes_on_beside_another() -> None:
    world = Pairs()
    first = world.started(one())
    world.tells(first)
    second = world.submit(one())
    world.later(SLICE)
    world.runs(second)
    world.do(c.DrainNode(NodeId(0), "maintenance"))
    world.tells(second)
    assert not world.state.packed
    assert refusal(world.state.cluster, Pack(first, second), world.now)


def test_a_queue_that_packs_no_more_parts_its_pairs() -> None:
    world = Pairs()
    world.a_pair()
    world.do(c.ApplyConfig(a_config(us(packs=False), devices=1)))
    assert world.partings() == [Parted.QUEUE]


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_goes_on_where_it_was(kept: bool) -> None:
    world = Pairs()
    first, second = world.a_pair()
    if kept:
        world.measured(first, 900, 900)
    world.engine = Engine(State.from_image(world.state.image(), world.state.policies))
    assert world.state.packed == {first: second}
    assert world.state.cluster.gangs[first].beside == second
    again = list(pending_effects(world.state, world.now))
    thawed = {effect.key.job for effect in again if isinstance(effect, f.ThawTask)}
    assert thawed == {first, second}
    assert not any(isinstance(effect, f.FreezeGang) for effect in again)
    world.later(TRY_MS)
    assert world.partings() == ([] if kept else [Parted.UNMEASURED])


def test_what_the_door_refuses() -> None:
    world = Pairs(us(3), devices=1)
    first, second = world.a_pair()
    third = world.submit(one())
    for pair in ((first, second), (second, first), (third, second), (first, JobId(99))):
        assert refusal(world.state.cluster, Pack(*pair), world.now), pair


def test_jobs_with_too_much_device_memory_are_never_beside_each_other() -> None:
    world = Pairs()
    first = world.started(one().gpu_memory(50 * GIB))
    world.tells(first)
    second = world.submit(one().gpu_memory(50 * GIB))
    world.later(SLICE)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)
    assert not world.told(e.Packed)


def by_turns(*tenants: Tenant, builder: JobBuilder | None = None) -> tuple[Pairs, JobId, JobId]:
    """One gang that waits for its turn, and the one that has the device."""
    world = Pairs(*tenants)
    first = world.started(builder or one())
    second = world.submit(builder or one())
    world.later(SLICE)
    world.runs(second)
    return world, first, second


def at_the_door(world: World, first: JobId, second: JobId) -> str:
    return refusal(world.state.cluster, Pack(first, second), world.now)


def test_the_door_says_why_two_may_not_run_at_once() -> None:
    world, first, second = by_turns()
    assert at_the_door(world, first, second) == ""
    assert at_the_door(world, second, first) == "the gang does not wait to go on"
    assert at_the_door(world, first, JobId(99)) == "no gang runs on just its devices"
    world.do(c.DrainNode(NodeId(0), "new fans"))
    closed = "another runs beside it, or its place is closed"
    assert at_the_door(world, first, second) == closed


def test_the_door_asks_for_spare_cpus() -> None:
    for cpus, why in ((32, ""), (33, "no CPUs are spare")):
        world, first, second = by_turns(builder=one().cpus(cpus))
        assert at_the_door(world, first, second) == why


def test_the_door_asks_for_a_queue_that_packs() -> None:
    world, first, second = by_turns(us(packs=False))
    assert at_the_door(world, first, second) == (
        "their queue does not pack, or one is more urgent"
    )


def test_the_door_asks_for_reservations_and_stopped_queues() -> None:
    kept_off = "a cap or a reservation keeps it off"
    world, first, second = by_turns()
    begin = WallTime(world.now + 1)
    world.do(c.ReserveNodes("w", begin, WallTime(begin + 10), nodes=(NodeId(0),)))
    assert at_the_door(world, first, second) == kept_off
    world, first, second = by_turns()
    world.do(c.ApplyConfig(a_config(stopped(us()), devices=1)))
    assert at_the_door(world, first, second) == kept_off


def stopped(tenant: Tenant) -> Tenant:
    """The same tenant with all its queues stopped: what runs there runs on."""
    queues = tuple(replace(queue, state=QueueState.STOPPED) for queue in tenant.queues)
    return replace(tenant, queues=queues)
