"""Each job's row, on histories small enough to work out by hand."""

from allotment.metrics.jobs import Fate, JobOutcome, Jobs, row_of
from allotment.metrics.usage import Usage
from allotment.model import events as e
from allotment.model.quantity import Instant, Millis
from tests.unit.metrics.history import History


def rows(history: History, capacity: int = 8000):
    usage = Usage(capacity)
    jobs = Jobs(usage)
    history.into(usage, jobs)
    return jobs.rows


def test_a_job_that_waits_runs_and_ends() -> None:
    log = History().at(10).submit(1, gpus=2, tenant="vision").at(15).start(1)
    (row,) = rows(log.at(45).succeed(1))
    assert (row.id, row.tenant, row.gpu_milli) == ("1", "vision", 2000)
    assert (row.submit_ms, row.start_ms, row.end_ms) == (10, 15, 45)
    assert (row.ran_ms, row.attained_ms, row.preemptions) == (30, 60, 0)
    assert row.ideal_ms == 30


def test_starting_takes_time_which_is_not_run_time() -> None:
    log = History().submit(1).at(5).place(1).at(8).begin(1).at(20).succeed(1)
    (row,) = rows(log)
    assert (row.start_ms, row.ran_ms) == (8, 12)


def test_a_job_that_was_placed_and_failed_before_it_ran() -> None:
    (row,) = rows(History().submit(1).at(5).place(1).at(9).fail(1))
    assert (row.start_ms, row.end_ms, row.ran_ms, row.ideal_ms) == (5, 9, 0, 0)


def test_the_first_real_start_counts_though_an_earlier_attempt_was_placed() -> None:
    log = History().submit(1).at(5).place(1).at(9).end(1, e.Outcome.FAILED).requeue(1)
    (row,) = rows(log.at(11).start(1).at(15).succeed(1))
    assert (row.start_ms, row.ran_ms) == (11, 4)


def test_preemptions_are_attempts_that_ended_evicted() -> None:
    log = History().submit(1, gpus=4).start(1).at(10).evict(1).at(25).start(1)
    (row,) = rows(log.at(31).evict(1).at(40).start(1).at(44).succeed(1))
    assert (row.preemptions, row.start_ms, row.end_ms) == (2, 0, 44)
    assert row.ran_ms == 10 + 6 + 4
    assert row.attained_ms == 4 * 20


def test_suspended_time_is_not_run_time() -> None:
    log = History().submit(1).start(1).at(10).suspend(1).at(30).resume(1)
    (row,) = rows(log.at(35).succeed(1))
    assert (row.ran_ms, row.end_ms, row.preemptions) == (15, 35, 0)


def test_a_suspended_job_that_is_stopped() -> None:
    log = History().submit(1).start(1).at(10).suspend(1)
    (row,) = rows(log.at(30).end(1, e.Outcome.CANCELLED).cancel(1))
    assert (row.ran_ms, row.end_ms) == (10, 30)


def test_cancelled_in_line_it_never_started() -> None:
    (row,) = rows(History().submit(1).at(7).cancel(1))
    assert (row.start_ms, row.end_ms, row.attained_ms) == (-1, 7, 0)


def test_how_jobs_end() -> None:
    log = History().submit(1).submit(2).submit(3).submit(4).submit(5).start(1).start(2).start(3)
    found = rows(log.at(9).succeed(1).fail(2).time_out(3).cancel(4))
    assert [row.fate for row in found] == [
        Fate.COMPLETED, Fate.FAILED, Fate.TIMED_OUT, Fate.CANCELLED, Fate.UNFINISHED,
    ]  # fmt: skip
    assert [row.end_ms for row in found] == [9, 9, 9, 9, -1]


def test_what_the_trace_knows_of_an_end_goes_before_how_it_was_played() -> None:
    (row,) = rows(History().submit(1).start(1).at(9).fail(1))
    row.censored = True
    assert row.fate is Fate.CENSORED
    row.never = "too large"
    assert row.fate is Fate.NEVER_SCHEDULABLE


def test_unfinished_jobs_have_no_end() -> None:
    waiting, running = rows(History().submit(1).submit(2).start(2).at(9).submit(3))[:2]
    assert (waiting.start_ms, waiting.end_ms) == (-1, -1)
    assert (running.start_ms, running.end_ms) == (0, -1)


def test_rows_are_in_order_of_submission() -> None:
    log = History().submit(1).submit(2).start(2).at(5).succeed(2).start(1).at(6).succeed(1)
    assert [row.id for row in rows(log)] == ["1", "2"]


def test_the_fair_time_grows_with_what_everybody_asks_for() -> None:
    """4 devices, asked for 8 while both are there: each owes the other half of its time."""
    log = History().submit(1, gpus=4).submit(2, gpus=4).start(1)
    log.at(100).succeed(1).start(2).at(200).succeed(2)
    first, second = rows(log, 4000)
    assert first.ideal_ms == 200
    # Over its 200 ms the second job saw 2 × the cluster asked for, then 1 ×.
    assert second.ideal_ms == 150


def test_a_trace_knows_run_times_and_names() -> None:
    def begin(at: Instant, event: e.JobSubmitted) -> JobOutcome:
        row = row_of(at, event)
        row.id, row.run_ms = "philly-7", Millis(25)
        return row

    usage = Usage(1000)
    jobs = Jobs(usage, begin)
    History().submit(1).start(1).at(30).succeed(1).into(usage, jobs)
    (row,) = jobs.rows
    assert (row.id, row.run_ms, row.ran_ms, row.ideal_ms) == ("philly-7", 25, 30, 25)


def test_a_log_may_begin_in_the_middle() -> None:
    log = History().submit(1).start(1).submit(2).submit(3).start(3).at(5).suspend(3)
    log.records.clear()
    log.at(9).resume(3).evict(1).cancel(2).at(10).start(1).submit(4).start(4)
    (row,) = rows(log.at(12).succeed(1).succeed(4))
    assert (row.id, row.ran_ms) == ("4", 2)
