"""How true start estimates are: a trace replayed, and jobs asked for when they come.

    python -m bench.eta_accuracy TRACE [--cluster 64x8] [--policy fifo …] [--share 0.05]
                                 [--shares FILE] [--jobs N] [--seed 0] [--md]

The replay is of the service's own engine and policies. When a job comes and has to wait, then
with a chance of `--share` the live state is handed to the forecast of `allot eta`, as the
service does. What it says is compared with the start the replay comes to, in which later jobs
come too. Each job is asked for with every kind of knowledge of how long jobs run:

* `exact`: how long each will run yet, which nobody can know: what is left is the error of not
  knowing who comes later;
* `limits`: its time limit, and nothing else: the true run time times a factor between
  1.2 and 10, drawn evenly on a logarithmic scale, rounded up to a length that people write;
* `history`: earlier jobs of the same user and name, else of the same tenant;
* `both`: limits, and earlier jobs with theirs, as a service has them.

Every line of a result is the same on every machine.
"""

import argparse
import sys
from collections import deque
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import Image, State
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, HOUR, NOTHING, Instant, Millis, Resources
from allotment.model.spec import NEVER
from allotment.model.tenancy import Tenant
from allotment.sim.ahead import Ahead
from allotment.sim.cluster import cluster_of
from allotment.sim.run_times import RunTimes
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Trace, TraceJob
from allotment.wiring.policies import policies
from allotment.wiring.sim import open_trace

POLICIES = ("fifo", "backfill", "easy", "backfill+tenants")
"""Those of the simulator that a service has: its queues are strict, skip or easy."""

WAYS = ("exact", "limits", "history", "both")
LENGTHS_H = (1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 1440)
"""Limits that people write, in hours."""
MOST_PAST = 3_000
"""Ended jobs that are remembered: what a service has at hand."""
HORIZON_MS = 365 * DAY


class Asked(msgspec.Struct, frozen=True):
    """A live state, a job that waits in it, and how long jobs really run yet."""

    job: JobId
    now: Instant
    image: bytes
    left_ms: dict[int, int]
    past: tuple[JobRecord, ...]


class Told(msgspec.Struct, frozen=True):
    """What was said of one job: earliest, expected and latest start; None for unknown."""

    job: int
    at: int
    way: str
    starts: tuple[int | None, int | None, int | None]


class Row(msgspec.Struct, frozen=True):
    """How true the estimates of one kind were."""

    policy: str
    way: str
    asked: int
    wait_ms: int
    """The median wait of those asked for."""
    known: int
    """How many had an expected start."""
    error_ms: int
    """Median, of those, either way."""
    bias_ms: int
    """Median; positive when they started later than was told."""
    ranges: int
    within: int
    width_ms: int
    """Median, of the ranges."""


class Watch:
    """A replay that asks, now and then, for the start of a job that has just come."""

    def __init__(
        self, scenario: Scenario, share: float, ask: Callable[[Asked], object]
    ) -> None:
        self._share, self._ask, self._seed = share, ask, scenario.seed
        self._past: deque[JobRecord] = deque(maxlen=MOST_PAST)
        self._specs: dict[JobId, JobRecord] = {}
        self.starts: dict[JobId, int] = {}
        self.simulation = Simulation(scenario, self._see)

    def run(self, jobs: Sequence[TraceJob]) -> None:
        for _ in self.simulation.run(jobs):
            pass

    def _see(self, records: Sequence[e.Record]) -> None:
        state, works = self.simulation.engine.state, self.simulation.machines.works
        came: list[JobId] = []
        for record in records:
            match record.event:
                case e.JobSubmitted(job):
                    came.append(job)
                case e.AttemptPlaced(job):
                    self.starts.setdefault(job, record.at)
                case e.JobArchived(job):
                    self._ended(job)
                case _:
                    pass
        for job in came:
            if job in state.jobs:
                self._specs[job] = state.jobs[job]
            chance = Random(f"{self._seed}/asked/{job}").random()
            if chance < self._share and job in state.cluster.pending:
                now = self.simulation.now
                left: dict[int, int] = {
                    each: work.left_ms - work.done_by(now) for each, work in works.items()
                }
                image = msgspec.msgpack.encode(state.image())
                self._ask(Asked(job, now, image, left, tuple(reversed(self._past))))

    def _ended(self, job: JobId) -> None:
        """Remember how long a job ran, as the archive does."""
        record = self._specs.pop(job, None)
        if record is not None:
            self._past.append(record)


def asks(asked: Asked) -> list[Told]:
    """Ask for one job with every kind of knowledge."""
    said: list[Told] = []
    for way in WAYS:
        lefts = lengths(asked, way)
        runs = {tuple(sorted((job, left[n]) for job, left in lefts.items())) for n in range(3)}
        starts = {run: start(asked, dict(run)) for run in runs}
        told = [
            starts[tuple(sorted((job, left[n]) for job, left in lefts.items()))]
            for n in range(3)
        ]
        told.sort(key=lambda at: (at is None, at))
        said.append(Told(asked.job, asked.now, way, (told[0], told[1], told[2])))
    return said


def lengths(asked: Asked, way: str) -> dict[JobId, tuple[int | None, ...]]:
    """Return how long every job will run yet: short, expected, long."""
    if way == "exact":
        return {JobId(job): (left, left, left) for job, left in asked.left_ms.items()}
    image = msgspec.msgpack.decode(asked.image, type=Image)
    times = RunTimes(()) if way == "limits" else RunTimes(asked.past)
    found: dict[JobId, tuple[int | None, ...]] = {}
    for job in image.jobs:
        if way == "history":
            job.spec = msgspec.structs.replace(job.spec, max_run_ms=NEVER)
        if not job.state.finished:
            found[job.id] = times.left(job, asked.now).all
    return found


def start(asked: Asked, left_ms: dict[JobId, int | None]) -> int | None:
    """Run the state ahead until the job starts."""
    image = msgspec.msgpack.decode(asked.image, type=Image)
    ahead = Ahead(State.from_image(image, policies()), left_ms, asked.now)
    return ahead.until_start(asked.job, asked.now + HORIZON_MS).starts_at


# ── the replay ──────────────────────────────────────────────────────────────────────────


def with_limits(trace: Trace, seed: int) -> Trace:
    """Let every user promise a length who did not."""
    jobs: list[TraceJob] = []
    for place, job in enumerate(trace.jobs):
        if job.limit_ms:
            jobs.append(job)
            continue
        drawn = Random(f"{seed}/limit/{place}")
        asked = job.run_ms * exp(drawn.uniform(log(1.2), log(10)))
        hours = next((h for h in LENGTHS_H if h * HOUR >= asked), None)
        limit = hours * HOUR if hours is not None else round(asked)
        jobs.append(msgspec.structs.replace(job, limit_ms=Millis(limit)))
    return msgspec.structs.replace(trace, jobs=tuple(jobs))


def rows(policy: str, told: Sequence[Told], starts: dict[JobId, int]) -> list[Row]:
    """Sum up, for each kind of knowledge."""
    found: list[Row] = []
    for way in WAYS:
        mine = [(each, starts[JobId(each.job)]) for each in told if each.way == way]
        errors = [at - each.starts[1] for each, at in mine if each.starts[1] is not None]
        ranges = [
            (low, at, high)
            for each, at in mine
            for low, high in ((each.starts[0], each.starts[2]),)
            if low is not None and high is not None
        ]
        found.append(
            Row(
                policy,
                way,
                len(mine),
                _median([at - each.at for each, at in mine]),
                len(errors),
                _median([abs(error) for error in errors]),
                _median(errors),
                len(ranges),
                sum(low <= at <= high for low, at, high in ranges),
                _median([high - low for low, _, high in ranges]),
            )
        )
    return found


def _median(values: Sequence[int]) -> int:
    return round(median(values)) if values else 0


HEAD = (
    "| policy | known of run times | asked | median wait | median error | bias | "
    "in range | width |\n|---|---|---:|---:|---:|---:|---:|---:|"
)


def line(row: Row) -> str:
    """Write a row of the table."""
    sign = "−" if row.bias_ms < 0 else "+"
    within = f"{row.within / row.ranges:.0%} of {row.ranges}" if row.ranges else "none"
    return (
        f"| {row.policy} | {row.way} | {row.asked} | {_length(row.wait_ms)} | "
        f"{_length(row.error_ms)} | {sign}{_length(abs(row.bias_ms))} | {within} | "
        f"{_length(row.width_ms)} |"
    )


def _length(ms: int) -> str:
    return f"{ms / HOUR:.1f} h" if ms >= HOUR else f"{ms / 60_000:.1f} min"


def replay(trace: Trace, options: "Options", policy: str) -> list[Row]:
    """Replay a trace under one policy; sum up what was told and what came."""
    told: list[Told] = []
    trace = with_limits(trace, options.seed)
    owners = shared_out(trace, options) if policy.endswith("+tenants") else None
    scenario = Scenario(
        trace,
        cluster_of(options.cluster),
        policy.removesuffix("+tenants"),
        Settings(estimates="limit"),
        options.seed,
        owners=owners,
    )
    watch = Watch(scenario, options.share, lambda asked: told.extend(asks(asked)))
    watch.run(trace.jobs)
    return rows(policy, told, watch.starts)


def shared_out(trace: Trace, options: "Options") -> Owners:
    """Owe every tenant whole nodes, in proportion to the device hours it asks for.

    Who would get less than half a node is guaranteed nothing, and borrows.
    """
    asked: dict[str, int] = {}
    for job in trace.jobs:
        asked[job.tenant] = asked.get(job.tenant, 0) + job.gpu_milli * job.run_ms
    nodes, total = cluster_of(options.cluster), sum(asked.values())
    each = len(nodes[0].devices)
    tenants = []
    for name, sum_ in sorted(asked.items()):
        owned = int(len(nodes) * sum_ / total) * each * 1_000
        tenants.append(Tenant(name, Resources(owned, *[1 << 60] * 4) if owned else NOTHING))
    return Owners(tuple(tenants))


class Options(msgspec.Struct, frozen=True):
    """What was asked for on the command line."""

    cluster: str = "64x8"
    share: float = 0.05
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.eta_accuracy", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cluster", default="64x8", metavar="NODESxDEVICES")
    parser.add_argument("--policy", action="append", metavar="NAME")
    parser.add_argument("--share", type=float, default=0.05, help="asked for, by chance")
    parser.add_argument("--first", type=int, default=0, help="leave out jobs before this one")
    parser.add_argument("--jobs", type=int, default=0, help="no more than so many jobs")
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args(argv)
    trace = open_trace(said.trace)
    last = said.first + said.jobs if said.jobs else None
    trace = msgspec.structs.replace(trace, jobs=trace.jobs[said.first : last])
    options = Options(said.cluster, said.share, said.seed)
    print(HEAD)
    for policy in said.policy or POLICIES:
        for row in replay(trace, options, policy):
            print(line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
