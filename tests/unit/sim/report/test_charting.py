"""What is kept for the pictures, against slow counting over the same events."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.model import events as e
from allotment.model.quantity import DAY, DEVICE, SECOND
from allotment.sim import charting
from allotment.sim.chart import COLUMNS, JOBS, LARGEST, STRETCHES, Chart
from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import Run
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from tests.support import sim

Rows = list[tuple[int, int, int]]
Held = list[tuple[int, int, int, int, bool]]
"""Job, node, from, to and whether it was sent away, of every task of one device."""


class Log:
    """Notes who held what, from the events."""

    def __init__(self) -> None:
        self.held: Held = []
        self._open: dict[int, tuple[int, Sequence[int]]] = {}

    def __call__(self, records: Sequence[e.Record]) -> None:
        for record in records:
            event = record.event
            if isinstance(event, e.AttemptPlaced):
                self._open[event.job] = record.at, [slot.node for slot in event.slots]
            elif isinstance(event, e.AttemptEnded):
                since, nodes = self._open.pop(event.job)
                gone = event.outcome is e.Outcome.EVICTED
                self.held += [(event.job, node, since, record.at, gone) for node in nodes]


def drawn(rows: Rows, cluster: str, policy: str) -> tuple[Run, Chart, Log]:
    log = Log()
    scenario = Scenario(sim.a_trace(rows), cluster_of(cluster), policy, drawn=True)
    run = simulate(scenario, tap=log)
    assert run.chart is not None
    return run, run.chart, log


rows_of = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 3), st.integers(1, 90)),
    min_size=1,
    max_size=25,
).map(sorted)


@settings(max_examples=60, deadline=None)
@given(rows_of, st.sampled_from(["fifo", "backfill", "srtf"]), st.sampled_from([0, 9 * DAY]))
def test_the_chart_is_what_happened(rows: Rows, policy: str, begin: int) -> None:
    rows = [(begin + at * SECOND, gpus, run * SECOND) for at, gpus, run in rows]
    run, chart, log = drawn(rows, "2x2", policy)
    shift = min(since for _, _, since, _, _ in log.held) - chart.from_ms if log.held else 0
    for node, row in enumerate(chart.rows):
        assert row.capacity_milli == 2 * DEVICE
        for column in range(COLUMNS):
            start = shift + chart.from_ms + column * chart.column_ms
            end = start + chart.column_ms
            wanted = sum(
                DEVICE * max(0, min(until, end) - max(since, start))
                for _, where, since, until, _ in log.held
                if where == node
            )
            assert row.busy[column] == wanted
    assert len(chart.devices) == 4
    seen = sorted(
        (span.from_ms + shift, span.to_ms + shift, device // 2, span.sent_away)
        for span in chart.spans
        for device, milli in span.devices
        if milli == DEVICE
    )
    assert seen == sorted(
        (since, until, node, gone) for _, node, since, until, gone in log.held if since < until
    )
    for place, job in enumerate(run.jobs):
        mine = [span for span in chart.spans if span.job == place]
        assert sum(span.to_ms - span.from_ms for span in mine) == job.ran_ms
        assert (place in chart.jobs) == (not job.never)
        if mine:
            assert mine[0].from_ms == job.start_ms
            assert mine[-1].to_ms == job.end_ms


def test_of_many_jobs_the_largest_are_kept() -> None:
    rows = [(n * SECOND, 1 + n % 2, (1 + n * 7919 % 1000) * SECOND) for n in range(JOBS + 1)]
    rows[5] = (5 * SECOND, 99, DAY)
    run, chart, _ = drawn(rows, "2x2", "backfill")
    assert not chart.devices
    assert run.jobs[5].never
    fits = [n for n in range(len(rows)) if n != 5]
    largest = sorted(fits, key=lambda n: (-rows[n][1] * rows[n][2], n))[:LARGEST]
    assert list(chart.jobs) == sorted(largest)
    for place in chart.jobs:
        (span,) = [span for span in chart.spans if span.job == place]
        job = run.jobs[place]
        assert (span.from_ms, span.to_ms, span.devices) == (job.start_ms, job.end_ms, ())


def test_many_stretches_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charting, "SPANS", 20)
    monkeypatch.setattr(charting, "STRETCHES", 5)
    rows = [(0, 1, DAY)] + [(n * 3_600 * SECOND, 1, n * SECOND) for n in range(1, 21)]
    run, chart, _ = drawn(rows, "1x1", "srtf")
    assert not chart.devices
    mine = [span for span in chart.spans if span.job == 0]
    assert run.jobs[0].preemptions == 20
    assert len(mine) == 5 < STRETCHES
    # What is left out are the shortest pauses: the last four, of 17 to 20 seconds, are drawn.
    assert chart.pause_ms == 16 * SECOND
    assert [b.from_ms - a.to_ms for a, b in pairwise(mine)] == [
        n * SECOND for n in range(17, 21)
    ]


def test_without_drawing_nothing_is_kept() -> None:
    assert sim.played(sim.a_trace([(0, 1, 5)]), "1x1", "fifo").chart is None
