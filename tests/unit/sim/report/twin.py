"""Runs to draw: a scheduler of twenty lines that counts devices, and small hand-made runs."""

import csv
import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from allotment.metrics.curve import Curve, Point
from allotment.metrics.summarise import summarise
from allotment.metrics.usage import Totals
from allotment.model.quantity import DEVICE, Millis
from allotment.sim import chart as c
from allotment.sim.chart import Chart, Span
from allotment.sim.outcome import JobOutcome, Run, Sample
from allotment.sim.report.view import lengths

Row = tuple[str, str, int, int, int]
"""Id, tenant, devices, submission and run time in milliseconds."""


def read(path: Path) -> list[Row]:
    with path.open() as file:
        return [
            (
                row["job_id"],
                row["vc"],
                int(row["num_gpus"]),
                int(row["submit_time"]) * 1000,
                int(row["duration"]) * 1000,
            )
            for row in csv.DictReader(file)
        ]


def schedule(rows: Iterable[Row], devices: int, *, skip: bool) -> list[JobOutcome]:
    """Start jobs in the order they came; with `skip` those that fit pass those that do not."""
    jobs = [
        JobOutcome(name, tenant, size * DEVICE, submit, Millis(run))
        for name, tenant, size, submit, run in rows
    ]
    ends: list[tuple[int, int]] = []
    waiting: deque[JobOutcome] = deque()
    coming = deque(jobs)
    free = devices
    while coming or ends:
        now = min(
            coming[0].submit_ms if coming else ends[0][0],
            ends[0][0] if ends else coming[0].submit_ms,
        )
        while ends and ends[0][0] <= now:
            free += heapq.heappop(ends)[1] // DEVICE
        while coming and coming[0].submit_ms <= now:
            waiting.append(coming.popleft())
        left: deque[JobOutcome] = deque()
        while waiting:
            job = waiting.popleft()
            if job.gpu_milli <= free * DEVICE:
                free -= job.gpu_milli // DEVICE
                _run(job, now)
                heapq.heappush(ends, (job.end_ms, job.gpu_milli))
            else:
                left.append(job)
                if not skip:
                    break
        left.extend(waiting)
        waiting = left
    return jobs


def _run(job: JobOutcome, now: int) -> None:
    job.start_ms, job.end_ms, job.ran_ms = now, now + job.run_ms, job.run_ms
    job.attained_ms = job.run_ms * job.gpu_milli // DEVICE
    job.ideal_ms = job.run_ms


def watched(jobs: Sequence[JobOutcome], most: int = 2000) -> tuple[Sample, ...]:
    """Look at the cluster over time, as the simulator would."""
    steps: dict[int, list[int]] = {}
    for job in jobs:
        if job.start_ms < 0 or job.end_ms < 0:
            steps.setdefault(job.submit_ms, [0, 0])[1] += 1
            continue
        for at, change in (
            (job.submit_ms, (0, 1)),
            (job.start_ms, (job.gpu_milli, -1)),
            (job.end_ms, (-job.gpu_milli, 0)),
        ):
            entry = steps.setdefault(at, [0, 0])
            for n, value in enumerate(change):
                entry[n] += value
    level, sums, last = [0, 0], [0, 0], min(steps, default=0)
    curve = Curve(Point(last), most)
    for n, at in enumerate(sorted(steps)):
        sums = [total + value * (at - last) for total, value in zip(sums, level, strict=True)]
        if n and n % curve.stride == 0:
            curve.add(Point(at, *sums))
        level = [a + b for a, b in zip(level, steps[at], strict=True)]
        last = at
    return curve.samples(Point(last, *sums), Sample(last, *level)) if steps else ()


def chart_of(
    jobs: Sequence[JobOutcome], nodes: int, size: int, *, whole: bool = False
) -> Chart:
    """Put the jobs on nodes, first come first, wherever devices are free, and chart that."""
    free = [list(range(node * size, (node + 1) * size)) for node in range(nodes)]
    held: dict[int, list[int]] = {}
    moves = sorted(
        move
        for n, job in enumerate(jobs)
        if job.start_ms >= 0
        for move in ((job.end_ms, 0, n), (job.start_ms, 1, n))
    )
    spans: list[Span] = []
    for _, is_start, n in moves:
        job = jobs[n]
        if not is_start:
            for device in held.pop(n):
                free[device // size].append(device)
            continue
        mine = held[n] = []
        for some in free:
            while some and len(mine) < job.gpu_milli // DEVICE:
                mine.append(some.pop(0))
        parts = tuple((device, DEVICE) for device in sorted(mine))
        spans.append(Span(n, job.start_ms, job.end_ms, False, parts))
    return chart(spans, nodes, size, whole=whole)


def chart(spans: Sequence[Span], nodes: int, size: int, *, whole: bool = False) -> Chart:
    """Chart stretches, slowly."""
    low = min((span.from_ms for span in spans), default=0)
    high = max((span.to_ms for span in spans), default=1)
    width = 1
    while low + c.COLUMNS * width < high:
        width *= 2
    busy = [[0] * c.COLUMNS for _ in range(nodes)]
    for span in spans:
        for device, milli in span.devices:
            for n in range(c.COLUMNS):
                start = low + n * width
                part = min(span.to_ms, start + width) - max(span.from_ms, start)
                busy[device // size][n] += milli * max(0, part)
    return Chart(
        low,
        width,
        tuple(
            c.Row(f"node{n}", "gpu", size * DEVICE, tuple(row)) for n, row in enumerate(busy)
        ),
        1,
        tuple(sorted({span.job for span in spans})),
        tuple(
            span if whole else replace(span, devices=())
            for span in sorted(spans, key=lambda span: (span.job, span.from_ms))
        ),
        tuple((f"node{n // size}", f"{n % size} gpu") for n in range(nodes * size))
        if whole
        else (),
    )


def totals(
    jobs: Sequence[JobOutcome], samples: Sequence[Sample], capacity_milli: int
) -> Totals:
    """Sum up samples: exact where they are, else means of what they stand for."""
    last_end = max((job.end_ms for job in jobs), default=-1)
    busy = until_end = idle = waiting = 0
    for sample, length in lengths(samples):
        busy += sample.busy_milli * length
        until_end += sample.busy_milli * max(0, min(length, last_end - sample.at_ms))
        idle += max(0, capacity_milli - sample.busy_milli) * length
        waiting += sample.waiting * length
    return Totals(
        from_ms=samples[0].at_ms if samples else 0,
        to_ms=samples[-1].at_ms if samples else 0,
        busy=busy,
        busy_until_last_end=until_end,
        idle=idle,
        waiting=waiting,
        peak_waiting=max((sample.waiting for sample in samples), default=0),
    )


def run_of(
    jobs: Sequence[JobOutcome],
    policy: str = "fifo",
    *,
    nodes: int = 16,
    clairvoyant: bool = False,
    chart: Chart | None = None,
    settings: tuple[tuple[str, str], ...] = (),
) -> Run:
    samples, capacity_milli = watched(jobs), nodes * 8 * DEVICE
    return Run(
        policy=policy,
        clairvoyant=clairvoyant,
        cluster=f"{nodes} nodes × 8 devices",
        nodes=nodes,
        capacity_milli=capacity_milli,
        jobs=tuple(jobs),
        samples=samples,
        summary=summarise(jobs, totals(jobs, samples, capacity_milli), capacity_milli),
        chart=chart,
        settings=settings,
        trace="philly.csv",
        trace_digest="0123456789abcdef",
        version="1.2.3",
    )
