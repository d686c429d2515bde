"""For what a job waited: of logs written by hand."""

import itertools
from typing import Any

from allotment.metrics.reasons import MOST, LifePhase, ReasonHistory, Stretch
from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.reasons import Reason
from allotment.model.spec import Dependency
from tests.unit.metrics.history import History

S = 1000
SLOT = Slot(NodeId(0), (0,), 1000)


def told(log: History, now: int = 0, **ends: int) -> list[Stretch]:
    """Return the stretches of the log's only job. `ends`: j7=5 says that job 7 ended at 5."""

    def end_of(need: Dependency) -> Instant | None:
        end = ends.get(f"j{need.job}")
        return None if end is None else Instant(end)

    fold = ReasonHistory(end_of)
    log.into(fold)
    return fold.stretches(Instant(now or log.now))


def brief(found: list[Stretch]) -> list[tuple[Any, ...]]:
    """Return begin and length in seconds, and what it was."""
    return [(s.since / S, s.ms / S, s.reason or s.phase) for s in found]


def finds(log: History, reason: Reason, since: int) -> History:
    return log.add(e.WaitExplained(JobId(1), reason, Instant(since)))


def needs(*jobs: int) -> tuple[Dependency, ...]:
    return tuple(Dependency(JobId(job)) for job in jobs)


def test_a_job_that_nothing_kept() -> None:
    log = History().submit(1).place(1).at(2 * S).begin(1).at(9 * S).succeed(1)
    assert brief(told(log, 99 * S)) == [(0, 2, LifePhase.STARTING), (2, 7, LifePhase.RUNNING)]


def test_what_was_not_looked_at_has_no_reason() -> None:
    (only,) = told(History().submit(1), 5 * S)
    assert (only.phase, only.reason, only.ms) == (LifePhase.WAITING, None, 5 * S)


def test_the_first_finding_holds_for_all_before_it_and_others_from_when_they_were_seen() -> (
    None
):
    log = History().submit(1).at(4 * S)
    finds(log, Reason.CAPACITY, 4 * S).at(60 * S)
    finds(log, Reason.BEHIND, 50 * S).at(70 * S).place(1)
    assert brief(told(log, 70 * S)) == [
        (0, 50, Reason.CAPACITY),
        (50, 20, Reason.BEHIND),
        (70, 0, LifePhase.STARTING),
    ]


def test_held_and_let_go_goes_on_with_what_it_waited_for() -> None:
    log = History().submit(1).at(2 * S)
    finds(log, Reason.QUOTA, 2 * S).at(10 * S).hold(1).at(30 * S).release(1)
    assert brief(told(log, 33 * S)) == [
        (0, 10, Reason.QUOTA),
        (10, 20, Reason.HELD),
        (30, 3, Reason.QUOTA),
    ]


def test_submitted_held() -> None:
    log = History().submit(1, held=True).at(8 * S).release(1)
    assert brief(told(log, 9 * S)) == [(0, 8, Reason.HELD), (8, 1, LifePhase.WAITING)]


def test_dependencies_to_the_last_of_them() -> None:
    log = History().submit(1, depends_on=needs(7, 8))
    assert brief(told(log, 20 * S, j7=5 * S)) == [(0, 20, Reason.DEPENDENCY)]
    assert brief(told(log, 20 * S, j7=5 * S, j8=9 * S)) == [
        (0, 9, Reason.DEPENDENCY),
        (9, 11, LifePhase.WAITING),
    ]


def test_dependencies_that_were_over_before_are_none() -> None:
    log = History().at(9 * S).submit(1, depends_on=needs(7))
    assert brief(told(log, 12 * S, j7=5 * S)) == [(9, 3, LifePhase.WAITING)]


def test_dependencies_taken_away() -> None:
    log = History().submit(1, depends_on=needs(7)).at(6 * S)
    log.add(e.JobEdited(JobId(1), History().submit(1).records[0].event.spec))  # type: ignore[union-attr]
    assert brief(told(log, 10 * S)) == [(0, 6, Reason.DEPENDENCY), (6, 4, LifePhase.WAITING)]


def test_held_comes_before_a_dependency() -> None:
    log = History().submit(1, held=True, depends_on=needs(7)).at(4 * S).release(1)
    assert brief(told(log, 9 * S)) == [(0, 4, Reason.HELD), (4, 5, Reason.DEPENDENCY)]


def test_evicted_and_queued_again_and_a_back_off() -> None:
    log = History().submit(1).place(1, Entitlement.OPPORTUNISTIC).begin(1)
    log.at(10 * S).evict(1).at(40 * S)
    finds(log, Reason.CAPACITY, 12 * S).place(1).begin(1).at(50 * S)
    log.end(1, e.Outcome.FAILED).requeue(1, "retry", 58 * S)
    found = told(log, 60 * S)
    assert brief(found) == [
        (0, 10, LifePhase.RUNNING),
        (10, 30, Reason.CAPACITY),
        (40, 10, LifePhase.RUNNING),
        (50, 8, Reason.BACKOFF),
        (58, 2, LifePhase.WAITING),
    ]
    assert [(each.attempt, each.cause) for each in found] == [
        (1, ""),
        (1, "evicted"),
        (2, ""),
        (2, "retry"),
        (2, "retry"),
    ]


def test_a_promised_place_and_one_that_was_taken_over() -> None:
    log = History().submit(1).at(2 * S)
    finds(log, Reason.CAPACITY, 2 * S).at(10 * S)
    log.add(e.Reserved(JobId(1), (SLOT,), Entitlement.GUARANTEED, (JobId(2),)))
    log.at(15 * S).add(e.ReservedPlaceDropped(JobId(1))).at(18 * S)
    log.add(e.Reserved(JobId(1), (SLOT,), Entitlement.GUARANTEED, (JobId(3),)))
    log.at(25 * S).place(1)
    assert brief(told(log, 26 * S)) == [
        (0, 10, Reason.CAPACITY),
        (10, 5, Reason.WAITING_FOR_VICTIMS),
        (15, 3, Reason.CAPACITY),
        (18, 7, Reason.WAITING_FOR_VICTIMS),
        (25, 1, LifePhase.STARTING),
    ]


def test_a_promise_that_is_dropped_and_given_anew_at_once_does_not_flicker() -> None:
    log = History().submit(1)
    for at in range(0, 20 * S, 5 * S):
        log.at(at).add(e.Reserved(JobId(1), (SLOT,), Entitlement.GUARANTEED, (JobId(2),)))
        log.at(at + 4_500).add(e.ReservedPlaceDropped(JobId(1)))
    (only, last) = told(log, 30 * S)
    assert (only.reason, only.ms, only.merged) == (Reason.WAITING_FOR_VICTIMS, 19_500, 3)
    assert (last.reason, last.ms) == (None, 10_500)


def test_tasks_that_wait_for_the_others() -> None:
    log = History().submit(1).place(1, slots=(SLOT, SLOT))
    first = AttemptNo(1)
    log.at(3 * S).add(e.TaskReady(JobId(1), first, TaskIndex(0)))
    log.at(9 * S).add(e.TaskReady(JobId(1), first, TaskIndex(1)))
    log.add(e.BarrierOpened(JobId(1), first)).at(11 * S).begin(1).at(20 * S).succeed(1)
    assert brief(told(log)) == [
        (0, 3, LifePhase.STARTING),
        (3, 6, LifePhase.BARRIER),
        (9, 2, LifePhase.STARTING),
        (11, 9, LifePhase.RUNNING),
    ]


def test_one_task_waits_for_no_other() -> None:
    log = History().submit(1).place(1, slots=(SLOT,)).at(3 * S)
    log.add(e.TaskReady(JobId(1), AttemptNo(1), TaskIndex(0))).at(8 * S).begin(1)
    assert brief(told(log, 9 * S)) == [(0, 8, LifePhase.STARTING), (8, 1, LifePhase.RUNNING)]


def test_suspended_and_asked_to_go_on() -> None:
    log = History().submit(1).place(1).begin(1).at(5 * S).suspend(1).at(20 * S)
    log.add(e.ResumeRequested(JobId(1), AttemptNo(1))).at(50 * S)
    finds(log, Reason.USER_CAP, 40 * S).at(60 * S).resume(1)
    assert brief(told(log, 61 * S)) == [
        (0, 5, LifePhase.RUNNING),
        (5, 15, LifePhase.SUSPENDED),
        (20, 40, Reason.USER_CAP),
        (60, 1, LifePhase.RUNNING),
    ]


def test_it_is_bounded_and_leaves_no_time_out() -> None:
    log = History().submit(1)
    for turn in range(5_000):
        at = turn * 5 * S + (turn % 7) * S
        finds(log.at(at), (Reason.CAPACITY, Reason.FRAGMENTED)[turn % 2], at)
    found = told(log, 30_000 * S)
    assert len(found) <= MOST
    assert sum(each.ms for each in found) == 30_000 * S
    assert all(one.since + one.ms == two.since for one, two in itertools.pairwise(found))
    assert sum(each.merged for each in found) > 0


def test_the_log_may_begin_in_the_middle() -> None:
    log = History().hold(1).release(1).add(e.ReservedPlaceDropped(JobId(1)))
    assert told(finds(log, Reason.QUOTA, 0), 5) == []
    log.at(7).place(1).begin(1)
    assert [each.phase for each in told(log, 9 * S)] == [LifePhase.RUNNING]


def test_of_a_choice_the_first_that_is_met_ends_the_wait() -> None:
    choice = tuple(Dependency(JobId(job), any_of=1) for job in (7, 8))
    log = History().submit(1, depends_on=choice)
    assert brief(told(log, 20 * S)) == [(0, 20, Reason.DEPENDENCY)]
    assert brief(told(log, 20 * S, j8=5 * S)) == [
        (0, 5, Reason.DEPENDENCY),
        (5, 15, LifePhase.WAITING),
    ]
