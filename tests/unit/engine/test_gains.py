"""What moves gained: readings of a job's pace, the comparison after a move, and its undoing."""

import pytest

from allotment.engine.evicted import evicted_for
from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, SECOND
from allotment.model.reports import PaceReport
from tests.support.builders import a_job
from tests.unit.policies.test_growing import FIRST, GROW, Growth, beside
from tests.unit.policies.test_migrating import Moving


def grown(world: Growth) -> JobId:
    """Return a job that made 2,000 steps an hour with two tasks, and has eight now."""
    job, other = beside(world)
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(GROW + SECOND)
    world.restarts(job)
    assert world.size(job) == 8
    return job


def paces(world: Growth) -> list[int]:
    return [r.event.rate for r in world.log if isinstance(r.event, e.PaceMeasured)]


def gains(world: Growth | Moving) -> list[e.GainMeasured]:
    return [r.event for r in world.log if isinstance(r.event, e.GainMeasured)]


def test_a_growth_that_gains_is_kept_and_compared_once() -> None:
    world = Growth()
    job = grown(world)
    world.tells(job, 7 * FIRST)
    world.wait(10 * MINUTE)
    world.tells(job, FIRST)
    assert [(g.rate, g.before, g.kept) for g in gains(world)] == [(7_000, 2_000, True)]
    assert (world.size(job), world.job(job).bad_growths) == (8, 0)


def test_a_growth_that_makes_a_job_slower_is_undone_and_not_tried_again() -> None:
    world = Growth()
    job = grown(world)
    world.tells(job, FIRST)
    assert not gains(world)[0].kept
    shrink = next(r.event for r in world.log if isinstance(r.event, e.ShrinkRequested))
    assert (shrink.tasks, shrink.signal, shrink.wanted_by) == (2, "USR1", None)
    told = "With more tasks its job was slower, so it continues without this one."
    assert evicted_for(world.state, world.job(job)) == told
    world.surplus_ends(job)
    assert (world.size(job), world.is_(job)) == (2, S.RUNNING)
    for _ in range(8):
        world.tells(job, 2 * FIRST)
        world.later(GROW)
    assert not world.grows(job)


@pytest.mark.parametrize(("rate", "kept"), [(3_000, False), (3_400, True)])
def test_a_growth_is_undone_whose_new_tasks_bring_less_than_a_quarter(
    rate: int, kept: bool
) -> None:
    """Six more tasks were to bring 6,000 steps more; 3,500 in all is a quarter of that."""
    world = Growth()
    job = grown(world)
    world.tells(job, rate)
    (gain,) = gains(world)
    assert (gain.expected, gain.kept) == (8_000, kept)
    assert any(isinstance(r.event, e.ShrinkRequested) for r in world.log) is not kept


def test_what_others_took_meanwhile_is_not_compared() -> None:
    world = Growth()
    job = grown(world)
    new = world.submit(a_job().tasks(7).gpus(1).of("us"))
    world.cycle()
    world.surplus_ends(job)
    world.runs(new)
    world.tells(job, FIRST // 2)
    assert (world.size(job), gains(world)) == (1, [])


def test_a_job_that_fails_twice_when_it_has_grown_grows_no_more_and_may_move() -> None:
    world = Growth()
    job, other = beside(world)
    world.leaves(other)
    for turn in range(2):
        world.tells(job, 2 * FIRST)
        world.later(7 * GROW)
        assert world.grows(job), turn
        world.restarts(job)
        world.ends(job, 1)
        assert world.job(job).bad_growths == turn + 1
        filler = world.started(a_job().gpus(6))
        world.wait(MINUTE)
        world.cycle()
        world.wait(SECOND)
        world.runs(job)
        assert (world.is_(job), world.size(job)) == (S.RUNNING, 2)
        world.leaves(filler)
    world.tells(job, 2 * FIRST)
    world.later(10 * GROW)
    assert not world.grows(job)
    gauge = world.state.cluster.gangs[job].gauge
    assert gauge is not None
    assert (gauge.is_grown, gauge.stays) == (True, False)


def test_a_reading_is_noted_when_it_says_something_new() -> None:
    world = Growth()
    job, _ = beside(world)
    world.tells(job, 1_000)
    world.tells(job, 2_000)
    world.wait(5 * MINUTE)
    world.tells(job, 1_100)
    world.tells(job, 2_000)
    assert paces(world) == [1_000, 2_000]


@pytest.mark.parametrize(("attempt", "tasks"), [(2, 2), (1, 3)])
def test_a_reading_of_another_attempt_or_size_is_not_noted(attempt: int, tasks: int) -> None:
    world = Growth()
    job, _ = beside(world)
    world.tell(PaceReport(job, AttemptNo(attempt), tasks, 1_000))
    world.tell(PaceReport(JobId(99), AttemptNo(attempt), tasks, 1_000))
    assert paces(world) == []


def test_where_queues_neither_grow_nor_migrate_nothing_is_noted() -> None:
    world = Moving(nodes=1, devices=1, migrates=False)
    job = world.started(a_job().gpus(1))
    world.tell(PaceReport(job, AttemptNo(1), 1, 1_000))
    assert not any(isinstance(record.event, e.PaceMeasured) for record in world.log)


def test_a_job_that_is_slower_where_it_was_moved_is_not_moved_again() -> None:
    world = Moving(nodes=2, devices=4)
    first = [world.started(a_job().gpus(1)) for _ in range(5)]
    world.ends(first[0])
    job = first[4]
    world.all_save()
    world.tell(PaceReport(job, AttemptNo(1), 1, 1_000))
    world.later(SECOND)
    world.is_gone(job)
    assert world.nodes_of(job) == [0]
    world.tell(PaceReport(job, AttemptNo(2), 1, 700))
    assert [(g.rate, g.before, g.kept) for g in gains(world)] == [(700, 1_000, False)]
    gauge = world.state.cluster.gangs[job].gauge
    assert gauge is not None
    assert (gauge.stays, gauge.is_grown) == (True, False)
