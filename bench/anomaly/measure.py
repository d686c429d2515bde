"""What is measured of an arm: delays by tenant, evictions of borrowers, distance of devices."""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.metrics.jobs import Fate, JobOutcome
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import HOUR
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from bench.anomaly.arms import Arm, worlds
from bench.anomaly.waiting import Idle, Lines
from bench.anomaly.workload import WIDTH, Workload


class Delay(msgspec.Struct, frozen=True):
    """How long jobs were not running from submission to end, in ms."""

    jobs: int
    mean: float
    p50: int
    p90: int
    p99: int


class Result(msgspec.Struct, frozen=True):
    """One arm, measured."""

    arm: Arm
    delays: dict[str, Delay]
    """By tenant; `""` for all jobs together."""
    unfinished: int
    busy_ms: int
    """Device-time in use, until the last submission."""
    whole_ms: int
    """Device-time there was until then."""
    evictions: int
    """Of borrowers, for the owner of their cells."""
    preemptions: int
    """All others: of a tenant's own jobs."""
    borrowed_ms: int
    """Device-time that opportunistic gangs ran."""
    lost_ms: int
    """Of it, what evictions would have undone had jobs saved nothing since they started."""
    lost_hourly_ms: int
    """The same, had they saved once an hour."""
    apart_ms: int
    """Device-time of tasks of 2 devices not at one switch, and of 4 not at one socket."""
    small_ms: int
    """Device-time of all tasks of 2 or 4 devices."""
    idle: dict[str, Idle] = {}
    """By tenant: what stood idle of its share while its jobs waited."""

    @property
    def utilisation(self) -> float:
        return self.busy_ms / self.whole_ms

    @property
    def apart(self) -> float:
        return self.apart_ms / max(1, self.small_ms)


def play(arm: Arm, workload: Workload, seed: int) -> Result:
    """Play all simulations of an arm."""
    lines = Lines({tenant: nodes * WIDTH for tenant, nodes in workload.shares.items()})
    watch = Watch(workload.trace.jobs[-1].submit_ms, lines)
    outcomes: list[JobOutcome] = []
    for world in worlds(arm, workload, seed):
        outcomes += _played(world, watch)
    ended = [job for job in outcomes if job.fate is Fate.COMPLETED]
    by_tenant: dict[str, list[int]] = {"": []}
    for job in ended:
        delay = job.end_ms - job.submit_ms - job.run_ms
        by_tenant[""].append(delay)
        by_tenant.setdefault(job.tenant, []).append(delay)
    span = workload.trace.jobs[-1].submit_ms - workload.trace.jobs[0].submit_ms
    return Result(
        arm,
        {tenant: _delay(waits) for tenant, waits in sorted(by_tenant.items())},
        len(outcomes) - len(ended),
        watch.busy_ms,
        span * workload.nodes * WIDTH,
        watch.evictions,
        watch.preemptions,
        watch.borrowed_ms,
        watch.lost_ms,
        watch.lost_hourly_ms,
        watch.apart_ms,
        watch.small_ms,
        lines.idle,
    )


def _played(world: Scenario, watch: "Watch") -> Sequence[JobOutcome]:
    watch.runs.clear()
    watch.lines.begin()
    return simulate(world, tap=watch.see).jobs


def _delay(waits: list[int]) -> Delay:
    if not waits:
        return Delay(0, 0.0, 0, 0, 0)
    waits.sort()

    def at(percent: int) -> int:
        return waits[max(0, -(-len(waits) * percent // 100) - 1)]

    return Delay(len(waits), sum(waits) / len(waits), at(50), at(90), at(99))


class _Going(msgspec.Struct):
    """An attempt that has its place."""

    slots: tuple[Slot, ...]
    borrows: bool
    since: int = -1
    """Since when it runs, or runs on these grounds."""
    begun: int = -1
    owner_came: bool = False


class Watch:
    """Follows the events of a run."""

    def __init__(self, until: int, lines: Lines) -> None:
        self.until = until
        self.lines = lines
        self.runs: dict[JobId, _Going] = {}
        self.evictions = self.preemptions = 0
        self.busy_ms = self.borrowed_ms = self.lost_ms = self.lost_hourly_ms = 0
        self.apart_ms = self.small_ms = 0

    def see(self, records: Iterable[e.Record]) -> None:
        for record in records:
            event, at = record.event, record.at
            if isinstance(event, e.AttemptPlaced):
                borrows = event.entitlement is Entitlement.OPPORTUNISTIC
                self.runs[event.job] = _Going(event.slots, borrows)
                self.lines.placed(event.job, at)
            elif isinstance(event, e.AttemptStarted):
                run = self.runs[event.job]
                run.since = run.begun = at
            elif isinstance(event, e.AttemptPromoted):
                run = self.runs[event.job]
                self._settle(run, at)
                run.borrows = False
            elif isinstance(event, e.StopRequested):
                self.runs[event.job].owner_came = self.runs[event.job].borrows
            elif isinstance(event, e.JobSubmitted):
                self.lines.came(event, at)
            elif isinstance(event, e.AttemptEnded):
                again = event.outcome is e.Outcome.EVICTED
                self.lines.ended(event.job, at, again=again)
                self._ended(self.runs.pop(event.job), event, at)

    def _settle(self, run: _Going, at: int) -> None:
        """Add up what an attempt ran since the last look."""
        if run.since < 0:
            return
        ran = at - run.since
        devices = sum(len(slot.devices) for slot in run.slots)
        if run.borrows:
            self.borrowed_ms += ran * devices
        self.busy_ms += max(0, min(at, self.until) - run.since) * devices
        for slot in run.slots:
            if (size := len(slot.devices)) in (2, 4):
                self.small_ms += ran * size
                if len({device // size for device in slot.devices}) > 1:
                    self.apart_ms += ran * size
        run.since = at

    def _ended(self, run: _Going, event: e.AttemptEnded, at: int) -> None:
        self._settle(run, at)
        if event.outcome is not e.Outcome.EVICTED:
            return
        if not run.owner_came:
            self.preemptions += 1
            return
        self.evictions += 1
        ran = at - run.begun if run.begun >= 0 else 0
        devices = sum(len(slot.devices) for slot in run.slots)
        self.lost_ms += ran * devices
        self.lost_hourly_ms += ran % HOUR * devices
