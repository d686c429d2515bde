"""Slow, obvious twins of the simulator's policies, and traces to try both on.

They count devices and know nothing of nodes, engines or heaps: at every instant at which
anything happens, all jobs are gone through in order.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import Run
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Trace, TraceJob
from tests.support.audit import audit

Rows = list[tuple[int, int, int]]
"""Submission, devices and run time of jobs, sorted by submission."""

Span = tuple[int, int]
"""A stretch of time in which a job ran."""

PLAIN = Settings()


def join(spans: list[Span], since: int, until: int) -> None:
    """Add a stretch; what touches the last one goes on with it, and nothing is left out."""
    if since == until:
        return
    if spans and spans[-1][1] == since:
        since = spans.pop()[0]
    spans.append((since, until))


class Twin(msgspec.Struct, eq=False):
    """A job as a twin sees it. Times in any one unit; -1 where it did not come to that."""

    place: int
    submit: int
    gpus: int
    run: int
    left: int
    start: int = -1
    end: int = -1
    preemptions: int = 0
    spans: list[Span] = []

    @property
    def size(self) -> int:
        """What is left of it in device-time."""
        return self.left * self.gpus


Key = Callable[[Twin], int]


def by_arrival(job: Twin) -> int:
    return job.submit


def by_left(job: Twin) -> int:
    return job.left


def by_size(job: Twin) -> int:
    return job.size


def by_run(job: Twin) -> int:
    return job.run


def dealt_out(
    rows: Iterable[tuple[int, int, int]],
    devices: int,
    key: Key = by_arrival,
    *,
    strict: bool = False,
    preempt: bool = False,
) -> list[Twin]:
    """Play (submission, devices, run time) rows, sorted by submission.

    At every instant devices are dealt out in the order of `key` (ties: as they came), to
    all jobs anew with `preempt`, else to those that wait, after those that run. Whoever
    does not fit is left out; with `strict`, so is everybody behind.
    """
    jobs = [Twin(place, *row, left=row[2]) for place, row in enumerate(rows)]
    coming = [job for job in jobs if job.gpus <= devices]
    waiting: list[Twin] = []
    running: list[Twin] = []
    now = 0
    while coming or running:
        moments = [now + job.left for job in running] + [job.submit for job in coming[:1]]
        then = min(moments)
        for job in running:
            job.left -= then - now
            job.end = -1 if job.left else then
            join(job.spans, now, then)
        now = then
        running = [job for job in running if job.left]
        while coming and coming[0].submit == now:
            waiting.append(coming.pop(0))
        stay = [] if preempt else running
        line = sorted(running + waiting if preempt else waiting, key=lambda job: _in(key, job))
        chosen = _dealt(line, devices - sum(job.gpus for job in stay), strict=strict)
        for job in running:
            job.preemptions += job not in stay and job not in chosen
        for job in chosen:
            job.start = now if job.start < 0 else job.start
        running = stay + chosen
        waiting = [job for job in line if job not in chosen]
    return jobs


def _in(key: Key, job: Twin) -> tuple[int, int]:
    return key(job), job.place


def _dealt(line: Iterable[Twin], free: int, *, strict: bool) -> list[Twin]:
    chosen: list[Twin] = []
    for job in line:
        if job.gpus <= free:
            free -= job.gpus
            chosen.append(job)
        elif strict:
            break
    return chosen


def easy(rows: Iterable[tuple[int, int, int]], devices: int) -> tuple[list[Twin], list[int]]:
    """Play EASY backfilling with true run times; also give the promise to each job.

    The first job that does not fit is promised the instant at which enough of those that
    run will have ended. Others pass it if they end by then, or need only devices that will
    be left beside it then. A promise is -1 where none was made; else the first one.
    """
    jobs = [Twin(place, *row, left=row[2]) for place, row in enumerate(rows)]
    promises = [-1] * len(jobs)
    coming = [job for job in jobs if job.gpus <= devices]
    line: list[Twin] = []
    running: list[Twin] = []
    while coming or running:
        moments = [job.start + job.run for job in running] + [job.submit for job in coming[:1]]
        now = min(moments)
        for job in running:
            job.end = now if job.start + job.run == now else -1
            job.spans = [(job.start, now)]
        running = [job for job in running if job.end < 0]
        while coming and coming[0].submit == now:
            line.append(coming.pop(0))
        free = devices - sum(job.gpus for job in running)
        head: Twin | None = None
        due = spare = 0
        for job in list(line):
            if job.gpus > free:
                if head is None:
                    head = job
                    due, spare = shadow(running, job, free)
                    if promises[job.place] < 0:
                        promises[job.place] = due
                continue
            if head is not None and now + job.run > due:
                if job.gpus > spare:
                    continue
                spare -= job.gpus
            free -= job.gpus
            job.start = now
            running.append(job)
            line.remove(job)
    return jobs, promises


def conservative(rows: Iterable[tuple[int, int, int]], devices: int) -> list[Twin]:
    """Play conservative backfilling with true run times.

    Nobody ever ends early, so the first promise is kept and nothing moves: each job, in
    order of arrival, has the first stretch of a calendar in which enough is free all along.
    """
    jobs = [Twin(place, *row, left=row[2]) for place, row in enumerate(rows)]
    used: dict[int, int] = {}
    for job in jobs:
        if job.gpus > devices:
            continue
        start = job.submit
        while any(used.get(t, 0) + job.gpus > devices for t in range(start, start + job.run)):
            start += 1
        for t in range(start, start + job.run):
            used[t] = used.get(t, 0) + job.gpus
        job.start, job.end, job.spans = start, start + job.run, [(start, start + job.run)]
    return jobs


def shadow(running: Sequence[Twin], head: Twin, free: int) -> tuple[int, int]:
    """Return when enough will be free for a blocked job, and how much beside it."""
    for end in sorted({job.start + job.run for job in running}):
        then = free + sum(job.gpus for job in running if job.start + job.run <= end)
        if then >= head.gpus:
            return end, then - head.gpus
    raise AssertionError("it fits an idle cluster")


# ── watched runs ────────────────────────────────────────────────────────────────────────


class Watched:
    """A run of the simulator, audited at every instant; what came of each job, by place."""

    def __init__(
        self,
        rows: Rows,
        cluster: str,
        policy: str,
        settings: Settings = PLAIN,
        most: int | None = None,
    ) -> None:
        """Play rows; fail as soon as there are more than `most` events."""
        self.rows = rows
        self.most = most
        self.spans: list[list[Span]] = [[] for _ in rows]
        self.end = [-1] * len(rows)
        self.log: list[e.Record] = []
        scenario = Scenario(a_trace(rows), cluster_of(cluster), policy, settings)
        self.simulation = Simulation(scenario, self._look)
        for _ in self.simulation.run(scenario.trace.jobs):
            pass
        self.refused = {refusal.place: refusal.reason for refusal in self.simulation.refused}
        self._read(iter(place for place in range(len(rows)) if place not in self.refused))

    def _look(self, records: Sequence[e.Record]) -> None:
        self.log += records
        assert self.most is None or len(self.log) <= self.most, "it goes round for ever"
        if records:
            audit(self.simulation.engine.state)
        assert self.simulation.engine.refusals == 0

    def _read(self, places: Iterator[int]) -> None:
        place_of: dict[JobId, int] = {}
        since: dict[JobId, int] = {}
        for record in self.log:
            match record.event:
                case e.JobSubmitted(job):
                    place_of[job] = next(places)
                case e.AttemptStarted(job):
                    since[job] = record.at
                case e.AttemptEnded(job):
                    join(self.spans[place_of[job]], since.pop(job, record.at), record.at)
                case e.JobSucceeded(job):
                    self.end[place_of[job]] = record.at
                case _:
                    pass


# ── traces ──────────────────────────────────────────────────────────────────────────────


def a_trace(rows: Iterable[tuple[int, int, int]], **others: object) -> Trace:
    """Make a trace of (submission, devices, run time) rows in milliseconds."""
    jobs = tuple(
        TraceJob(str(place), submit, run, gpus, **others)  # pyright: ignore[reportArgumentType]
        for place, (submit, gpus, run) in enumerate(rows)
    )
    return Trace("made.csv", "simple", "0" * 16, jobs)


def played(
    trace: Trace, cluster: str, policy: str, settings: Settings = PLAIN, seed: int = 0
) -> Run:
    """Play a trace on a cluster such as `16x8`."""
    nodes = cluster_of(cluster)
    return simulate(Scenario(trace, nodes, policy, settings, seed))


def read_rows(path: Path) -> Rows:
    """Read the jobs of a golden file, in milliseconds."""
    with path.open() as file:
        return [
            (
                int(row["submit_time"]) * 1000,
                int(row["num_gpus"]),
                int(row["duration"]) * 1000,
            )
            for row in csv.DictReader(file)
        ]
