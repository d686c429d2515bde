"""What the pictures show, against slow counting."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.metrics.curve import Sample
from allotment.metrics.summarise import summarise
from allotment.metrics.usage import Totals
from allotment.model.quantity import DEVICE, HOUR, MINUTE
from allotment.sim.chart import Span
from allotment.sim.outcome import JobOutcome, Run
from allotment.sim.report import bars, cdf, heat, occupied, series
from allotment.sim.report.marks import steps
from allotment.sim.report.scales import length_scale
from allotment.sim.report.series import thinned
from allotment.sim.report.view import views
from tests.unit.sim.report.twin import Row, chart, run_of, schedule

Rows = Sequence[Row]
NO_SUMMARY = summarise([], Totals(), 1)


def crowded(tenants: int = 3, count: int = 300) -> list[Row]:
    return [
        (str(n), f"team{n % tenants}", 1 + n % 9, n * MINUTE, (1 + n % 50) * 5 * MINUTE)
        for n in range(count)
    ]


def two(rows: Rows, devices: int = 16) -> list[Run]:
    return [
        run_of(schedule(rows, devices, skip=skip), name, nodes=devices // 8)
        for skip, name in ((False, "fifo"), (True, "backfill"))
    ]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50))
def test_a_curve_is_the_share_at_or_below(values: list[int]) -> None:
    ordered = sorted(values)
    scale = length_scale(ordered[0], ordered[-1], 0, 500)
    points = cdf.shares(ordered, scale)
    assert len(points) <= 300
    for at, share in points:
        assert share == sum(value <= at for value in values) / len(values)
    assert points[-1][1] == 1


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 64)), min_size=1, max_size=200),
    st.integers(3, 40),
)
def test_thinning_keeps_the_area(changes: list[tuple[int, int]], most: int) -> None:
    at, samples = 0, [Sample(0, 0, 0)]
    for gap, busy in changes:
        at += gap
        samples.append(Sample(at, busy, 0))
    points = thinned(samples, lambda sample: sample.busy_milli, most)
    assert len(points) <= most
    ends = [when for when, _ in points[1:]] + [at]
    area = sum(value * (end - when) for (when, value), end in zip(points, ends, strict=True))
    exact = sum(a.busy_milli * (b.at_ms - a.at_ms) for a, b in pairwise(samples))
    assert area == pytest.approx(exact)


def test_steps_leave_out_what_no_pixel_shows() -> None:
    assert steps([(0, 5), (1, 5.01), (2, 7), (3, 7)], 9) == "M0 5H2V7H9"
    assert steps([]) == ""


def test_the_widest_gap_is_found() -> None:
    found = cdf.waiting(views(two(crowded()))).finding
    match = re.fullmatch(
        r"Under (\w+) (\d+) % of the jobs wait no longer than .*, under (\w+) ([\d.]+) %: "
        "this is the widest gap.",
        found,
    )
    assert match
    assert float(match[2]) > float(match[4])


def test_queues_far_apart_get_a_logarithmic_scale() -> None:
    rows = crowded(count=600)
    runs = [
        run_of(schedule(rows, 16, skip=True), "small", nodes=2),
        run_of(schedule(rows, 600, skip=True), "large", nodes=75),
    ]
    figure = series.queue(views(runs))
    assert "ten times as many" in figure.how
    assert ">100</text>" in figure.pictures[0]
    assert "ten times as many" not in series.queue(views(two(rows))).how


def test_tenants_stand_by_their_demand() -> None:
    rows = [*crowded(), *((f"x{n}", "heavy", 8, n * MINUTE, 12 * HOUR) for n in range(60))]
    rows.sort(key=lambda row: row[3])
    picture = bars.by_tenant(views(two(rows))).pictures[0]
    named = re.findall(r">(heavy|team\d)</text>", picture)
    assert named[0] == "heavy"
    assert sorted(named) == ["heavy", "team0", "team1", "team2"]


def test_many_tenants_are_summed_up() -> None:
    figure = bars.by_tenant(views(two(crowded(tenants=40, count=800))))
    assert ">28 others</text>" in figure.pictures[0]
    assert "others" not in figure.finding


def test_mean_waits_by_size_are_exact() -> None:
    runs = two(crowded())
    groups = bars.sizes(views(runs))
    assert [group.name for group in groups] == [
        "1 device",
        "2 devices",
        "3–4 devices",
        "5–8 devices",
        "9–16 devices",
    ]
    for n, run in enumerate(runs):
        waits = [
            job.end_ms - job.submit_ms - job.ran_ms
            for job in run.jobs
            if 3 * DEVICE <= job.gpu_milli <= 4 * DEVICE
        ]
        assert groups[2].means_ms[n] == sum(waits) / len(waits)


def test_sizes_at_the_edges() -> None:
    rows = [("a", "t", 0, 0, 5), ("b", "t", 2000, 0, 5)]
    jobs = schedule(rows, 4000, skip=True)
    jobs.append(JobOutcome("c", "t", 500, 0, jobs[0].run_ms, 0, 5, ran_ms=5))
    names = [group.name for group in bars.sizes(views([run_of(jobs)]))]
    assert names == ["no device", "part of a device", "over 1,024 devices"]


def test_nodes_over_time() -> None:
    samples = (Sample(0, 0, 0), Sample(128, 0, 0))
    four, eight = (tuple((n, DEVICE) for n in range(*ends)) for ends in ((0, 4), (8, 16)))
    spans = (Span(0, 0, 64, devices=four), Span(1, 0, 128, devices=eight))
    run = Run("fifo", False, "", 2, 16 * DEVICE, (), samples, NO_SUMMARY)
    cells = heat.by_node(run, chart(spans, 2, 8), 0, 128).cells
    assert cells == [[0.5] * 64 + [0.0] * 64, [1.0] * 128]
    cells = heat.by_node(run, chart(spans, 2, 8), 0, 128, most_rows=1).cells
    assert cells == [[0.75] * 64 + [0.5] * 64]


def test_a_last_column_that_is_not_full_is_measured_by_what_there_is_of_it() -> None:
    samples = (Sample(0, 0, 0), Sample(129, 0, 0))
    spans = (Span(0, 0, 129, devices=((0, DEVICE),)),)
    run = Run("fifo", False, "", 1, DEVICE, (), samples, NO_SUMMARY)
    assert heat.by_node(run, chart(spans, 1, 1), 0, 129).cells == [[1.0] * 65]


def test_jobs_that_share_a_device_lie_beside_each_other() -> None:
    taken: dict[int, list[tuple[int, int, int]]] = {}
    pieces = [
        occupied.pieces(Span(n, n, 10 - n, devices=((2, milli),)), taken)
        for n, milli in enumerate((500, 250, 250))
    ]
    assert pieces == [[(2, 2.5)], [(2.5, 2.75)], [(2.75, 3)]]
    assert occupied.pieces(Span(3, 10, 11, devices=((2, 500),)), taken) == [(2, 2.5)]
    whole = Span(4, 11, 12, devices=((3, 1000), (4, 1000), (7, 1000)))
    assert occupied.pieces(whole, taken) == [(3, 5), (7, 8)]


def test_a_job_that_shares_a_whole_device_has_half_of_it() -> None:
    spans = [
        Span(0, 0, 10, devices=((0, DEVICE), (1, DEVICE))),
        Span(1, 5, 20, devices=((0, DEVICE),)),
        Span(2, 10, 15, devices=((1, DEVICE),)),
    ]
    assert [span.devices for span in occupied.shared(spans)] == [
        ((0, 500), (1, 1000)),
        ((0, 500),),
        ((1, 1000),),
    ]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 12),
)
def test_means_of_a_table(changes: list[tuple[int, int]], rows: int) -> None:
    at, samples = 0, [Sample(0, 0, 3)]
    for gap, waiting in changes:
        at += gap
        samples.append(Sample(at, 0, waiting))
    edges = [at * n // rows for n in range(rows + 1)]
    values = [a.waiting for a, b in pairwise(samples) for _ in range(b.at_ms - a.at_ms)]
    means = series.means_between(samples, edges, lambda sample: sample.waiting)
    for (low, high), mean in zip(pairwise(edges), means, strict=True):
        some = values[low:high]
        assert mean == (pytest.approx(sum(some) / len(some)) if some else None)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=50), st.sampled_from(cdf.PARTS))
def test_percentiles_of_a_table_are_nearest_ranks(values: list[int], part: int) -> None:
    ordered = sorted(values)
    found = cdf.nearest(ordered, part)
    assert sum(value <= found for value in values) * 100 >= part * len(values)
    assert sum(value < found for value in values) * 100 < part * len(values)
