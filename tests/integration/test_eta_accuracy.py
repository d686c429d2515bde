"""How true start estimates are, on a small trace of which all is known."""

from random import Random

from allotment.model.ids import JobId
from allotment.model.quantity import DAY, HOUR, MINUTE
from allotment.sim.trace import Trace, TraceJob
from bench.eta_accuracy import LENGTHS_H, WAYS, Options, Told, replay, rows, with_limits


def a_trace(jobs: int) -> Trace:
    """Crowded: some four jobs wait for each device."""
    chance = Random(1)
    return Trace(
        "small",
        "csv",
        "0",
        tuple(
            TraceJob(str(n), DAY + n * MINUTE, chance.randrange(1, 60) * MINUTE)
            for n in range(jobs)
        ),
    )


def test_who_knows_all_run_times_knows_all_starts_where_nobody_passes() -> None:
    found = {row.way: row for row in replay(a_trace(60), Options("1x4", share=1.0), "fifo")}
    assert set(found) == set(WAYS)
    exact = found["exact"]
    assert exact.asked > 40
    assert (exact.error_ms, exact.bias_ms, exact.width_ms) == (0, 0, 0)
    assert exact.within == exact.ranges == exact.known == exact.asked
    limits = found["limits"]
    assert limits.bias_ms < 0, "nobody runs for as long as it may"
    assert found["both"].error_ms < limits.error_ms


def test_a_replay_says_the_same_each_time() -> None:
    def once() -> object:
        return replay(a_trace(30), Options("1x4", share=0.5), "backfill")

    assert once() == once()


def test_limits_are_lengths_that_people_write_and_nobody_exceeds_them() -> None:
    trace = a_trace(50)
    for before, after in zip(trace.jobs, with_limits(trace, seed=0).jobs, strict=True):
        assert after.limit_ms in {hours * HOUR for hours in LENGTHS_H}
        assert after.limit_ms >= before.run_ms


def test_what_was_told_is_judged_by_what_came() -> None:
    told = [
        Told(1, 0, "both", (5, 10, 20)),
        Told(2, 0, "both", (5, 10, 20)),
        Told(3, 0, "both", (5, None, None)),
    ]
    starts = {JobId(1): 20, JobId(2): 40, JobId(3): 7}
    found = next(row for row in rows("fifo", told, starts) if row.way == "both")
    assert (found.asked, found.known, found.ranges, found.within) == (3, 2, 2, 1)
    assert (found.wait_ms, found.error_ms, found.bias_ms, found.width_ms) == (20, 20, 20, 15)
