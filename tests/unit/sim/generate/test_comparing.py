"""The table that says how well a workload fits."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from allotment.model.quantity import HOUR, MINUTE
from allotment.sim.generate import BadModel, Verdict, compare
from allotment.sim.generate.distance import apart_by, kolmogorov_smirnov
from allotment.sim.generate.fit_report import HEADER, Measure, verdict_on
from allotment.sim.trace import Ending, TraceJob

JOBS = [
    TraceJob(str(n), n * 10 * MINUTE, (n % 7 + 1) * MINUTE, tasks=1 + n % 2)
    for n in range(3000)
]
numbers = some.lists(some.integers(0, 20), min_size=1, max_size=40).map(sorted)


@given(numbers, numbers)
def test_the_distance_is_that_of_the_slow_way(one: list[int], other: list[int]):
    slow = max(
        abs(sum(x <= at for x in one) / len(one) - sum(x <= at for x in other) / len(other))
        for at in range(21)
    )
    assert kolmogorov_smirnov(one, other) == pytest.approx(slow)
    assert kolmogorov_smirnov(other, one) == pytest.approx(slow)


def test_a_workload_fits_itself(trace_of):
    report = compare(trace_of(JOBS), JOBS)
    assert {row.distance for row in report.rows} == {0.0}
    assert {row.verdict for row in report.rows} == {Verdict.GOOD}
    assert report.notes == ()


def test_what_differs_is_found(trace_of):
    worse = [
        msgspec.structs.replace(
            job,
            run_ms=job.run_ms * 10,
            tasks=8,
            tenant="other",
            ending=Ending.FAILED,
            submit_ms=job.submit_ms // (24 * HOUR) * 24 * HOUR,
        )
        for job in JOBS
    ]
    report = compare(trace_of(JOBS), worse)
    for name in ("run time", "devices", "tenant", "ending", "hour of the day"):
        assert report.row(name).verdict is Verdict.POOR, name
    assert report.row("day of the week").verdict is Verdict.GOOD
    assert report.row("tenant").distance == 1.0
    with pytest.raises(KeyError):
        report.row("colour")


def test_a_faster_workload_is_judged_by_shape_only_when_told(trace_of):
    fast = [msgspec.structs.replace(job, submit_ms=job.submit_ms // 10) for job in JOBS]
    name = "time between submissions"
    assert compare(trace_of(JOBS), fast).row(name).verdict is Verdict.POOR
    scaled = compare(trace_of(JOBS), fast, rate_scaled=True)
    assert scaled.row(f"{name} (shape)").distance == 0.0


def test_unknown_endings_are_left_out(trace_of):
    censored = [msgspec.structs.replace(job, ending=Ending.CENSORED) for job in JOBS[:1000]]
    report = compare(trace_of([*censored, *JOBS[1000:]]), JOBS)
    assert report.row("ending").distance == 0.0


def test_the_lines_are_a_table(trace_of):
    report = compare(trace_of(JOBS), JOBS[:50])
    lines = report.lines()
    assert lines[0].startswith("real: 3000 jobs; synthetic: 50 jobs")
    assert lines[1].split() == list(HEADER)
    assert len(lines) == 2 + len(report.rows) + 1
    assert "chance alone" in lines[-1]
    assert any(line.startswith("run time") and "4 min 0 s / " in line for line in lines)
    assert {len(row) for row in report.cells()} == {len(HEADER)}


def test_one_job_each_can_be_compared(trace_of):
    report = compare(trace_of(JOBS[:1]), JOBS[:1])
    assert {row.verdict for row in report.rows} == {Verdict.GOOD}
    report = compare(trace_of(JOBS[:2]), JOBS[:1])
    assert report.row("time between submissions").verdict is Verdict.POOR
    assert report.lines()


def test_nothing_cannot_be_compared(trace_of):
    with pytest.raises(BadModel, match="no jobs"):
        compare(trace_of([]), JOBS)
    with pytest.raises(BadModel, match="no jobs"):
        compare(trace_of(JOBS), [])


def test_verdicts_and_bounds():
    assert verdict_on(Measure.KS, 0.05) is Verdict.GOOD
    assert verdict_on(Measure.TV, 0.051) is Verdict.FAIR
    assert verdict_on(Measure.TV, 0.16) is Verdict.POOR
    assert verdict_on(Measure.MEAN, apart_by(100, 125)) is Verdict.GOOD
    assert verdict_on(Measure.MEAN, apart_by(0, 1)) is Verdict.POOR
    assert apart_by(0, 0) == 0
