"""What running jobs tell of their progress: the last step, how fast, how long still.

The contract: the first task of a job writes `{"step": …, "total": …, "metrics": {…}}` into
$ALLOT_PROGRESS_FILE, as a line; the last line that can be read holds. It is kept in memory
alone, but for the pace of jobs in queues that grow, migrate or pack. Rates come from
the dates of the file, of which a job may lie as of its steps: it fools those who read it, and
gets itself moved without a gain.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.core.gang import Gang
from allotment.core.slices import line_of
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model.engines import Ability
from allotment.model.gains import MOST_RATE, PARTS_OF_TURN
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import HOUR, SECOND, Instant, WallTime
from allotment.model.reports import OfferReport, PaceReport, PairReport, TrialReport
from allotment.model.sweeps import MOST_RUNGS
from allotment.service.job_files import JobFiles, stands
from allotment.service.launch import Folders
from allotment.service.ports import DeviceUse
from allotment.service.views import ProgressView
from allotment.service.workspace import Changed
from allotment.service.workspaces import Workspaces

LOOK_EVERY_S, CLOSE_LOOK_S, TRIALS_EVERY_S = 5.0, 1.0, 1.0
MOST_BYTES = 8 * 1024
MOST_LINES = 4
"""So many lines are tried, the last first: one may be half written."""
MOST_METRICS = 16
MOST_NAME = 64
SURE_SAMPLES, SURE_STEPS, SURE_NS = 4, 20, 10 * SECOND * 1_000_000
"""A rate is compared with others if it rests on so many looks and steps, and on so long."""
PATIENCE_NS = 2 * SURE_NS
"""For so long the steps of one of a pair are not told of while the other tells too little."""
NO_USES: Mapping[NodeId, Sequence[DeviceUse]] = {}
SAMPLES = 24
"""The rate is that over the last so many changes: two minutes of looks."""
MOST = MOST_RATE
"""No time or date is larger either."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ProgressLine(msgspec.Struct, frozen=True):
    """A line that a job writes of its progress."""

    step: Count
    total: Count | None = None
    metrics: dict[str, float | None] = {}
    rungs: tuple[tuple[Count, float | None], ...] = ()
    """Of a trial: the steps at which it is compared, and what it was compared by there."""
    offloads: bool = False
    """Whether it gives its devices' memory back while it is suspended."""


class Steps:
    """The steps of one attempt with so many tasks, and when each was reported."""

    def __init__(
        self, attempt: int, tasks: int, since: Instant = Instant(0), *, is_later: bool = False
    ) -> None:
        """`since` is when it began to run as it does now: alone, or beside another.

        Where it ran before then, the first step that is seen may be of before: `is_later`.
        """
        self.attempt, self.tasks, self.since = attempt, tasks, since
        self._is_later = is_later
        self._busy: deque[int] = deque(maxlen=SAMPLES)
        self.is_new = False
        """Whether a step was noted since the pace was told."""
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)
        self.told: ProgressLine | None = None

    def add(self, at_ns: int, told: ProgressLine) -> None:
        """Note a new step; steps or times that go back begin a new count."""
        self.told = told
        if self._samples and (
            at_ns <= self._samples[-1][0] or told.step < self._samples[-1][1]
        ):
            self._samples.clear()
        if self._is_later and self._samples:
            self._samples.clear()
            self._is_later = False
        self._samples.append((at_ns, told.step))
        self.is_new = True

    def add_busy(self, busy_milli: int) -> None:
        """Note how busy the busiest of its devices was just now."""
        self._busy.append(busy_milli)

    @property
    def busy_milli(self) -> int:
        """Return how busy that was on average; 0 where that is not known."""
        return sum(self._busy) // len(self._busy) if self._busy else 0

    def is_sure(self, least_ns: int = SURE_NS) -> bool:
        """Whether the rate can be compared with others."""
        if self._is_later or not self._samples:
            return False
        (began, first), (at, step) = self._samples[0], self._samples[-1]
        enough = len(self._samples) >= SURE_SAMPLES and step - first >= SURE_STEPS
        return enough and at - began >= least_ns

    @property
    def told_ns(self) -> int:
        """Return when the newest step was told of."""
        return self._samples[-1][0]

    def rate_by(self, now_ns: int) -> int:
        """Return the rate of a sure one, in steps an hour, by a moment.

        If it has told of no step for `PATIENCE_NS`, the silence counts. As many steps as it
        mostly tells of at once are taken to be under way.
        """
        (began, first), (at, step) = self._samples[0], self._samples[-1]
        steps, took = step - first, at - began
        if now_ns - at > PATIENCE_NS:
            steps += steps // (len(self._samples) - 1)
            took = now_ns - began
        return min(MOST, steps * HOUR * 1_000_000 // took)

    def view(self) -> ProgressView | None:
        told = self.told
        if told is None:
            return None
        (began, first), (at, step) = self._samples[0], self._samples[-1]
        rate = None
        if at > began:
            rate = min(MOST, (step - first) * HOUR * 1_000_000 // (at - began))
        left_ms = None
        if told.total and told.total <= step:
            left_ms = 0
        elif told.total and rate:
            left_ms = min(MOST, (told.total - step) * HOUR // rate)
        return ProgressView(
            step,
            told.total or 0,
            rate,
            left_ms,
            WallTime(min(MOST, at // 1_000_000)),
            metrics_of(told),
        )


class ProgressWatch:
    """Looks at the files of running jobs; reads one only when it changed."""

    def __init__(self, workspaces: Workspaces, wall: Callable[[Instant], WallTime]) -> None:
        def file_of(folders: Folders, job: JobRecord) -> str:
            return folders.progress_file(job.id, job.spec)

        def is_other(job: JobRecord) -> bool:
            return not metric_of(job)

        self._files = JobFiles(workspaces, file_of, MOST_BYTES, wall, is_other)
        self._trials = JobFiles(
            workspaces, file_of, MOST_BYTES, wall, lambda job: bool(metric_of(job))
        )
        self._steps: dict[JobId, Steps] = {}
        self._compared: dict[JobId, tuple[int, float | None]] = {}
        """Of trials: the newest step with what they are compared by, also of suspended ones."""

    async def look(
        self, state: State, uses: Mapping[NodeId, Sequence[DeviceUse]] = NO_USES
    ) -> list[OfferReport | PaceReport | PairReport]:
        """Note what is new, and forget jobs that no longer run. O(running jobs).

        `uses` are the devices as they are used now, where that was asked for. Returns how fast
        those are that it matters of, where that is new and sure.
        """
        for changed in await self._files.look(state):
            self._take(changed, state)
        gangs = state.cluster.gangs
        for job in [job for job in self._steps if job not in gangs or stands(gangs[job])]:
            del self._steps[job]
            self._files.forget(job)
            self._trials.forget(job)
        for job in [job for job in self._compared if job not in gangs]:
            del self._compared[job]
        for job, steps in self._steps.items() if uses else ():
            busy = _busiest(gangs[job].slots, uses)
            if busy is not None:
                steps.add_busy(busy)
        return [*self._offers(state), *self._paces(state), *self._pairs(state)]

    async def look_at_trials(self, state: State) -> list[TrialReport]:
        """Note what trials of sweeps say that is new; of those compared by run time, tell of
        all that run."""
        heard = [
            job.id
            for changed in await self._trials.look(state)
            if (job := self._take(changed, state)) is not None
        ]
        timed = [
            job
            for sweep in state.sweeps.values()
            if not sweep.is_over and sweep.sweep.halving and sweep.sweep.halving.by_time
            for job in sweep.ids
            if job in state.cluster.gangs
        ]
        records = (state.jobs.get(JobId(job)) for job in dict.fromkeys((*heard, *timed)))
        reports = (self._trial(record) for record in records if record is not None)
        return [report for report in reports if report is not None]

    def _take(self, changed: Changed, state: State) -> JobRecord | None:
        """Note what a job told; return the job, if it told of anything."""
        told, job = read(changed), state.jobs.get(changed.key.job)
        if told is None or job is None or not job.attempts:
            return None
        self._note(changed, told, job.attempts[-1], began_so(state, job))
        if (metric := metric_of(job)) in told.metrics:
            self._compared[job.id] = told.step, _finite(told.metrics[metric])
        return job

    def _trial(self, job: JobRecord, *, is_last: bool = False) -> TrialReport | None:
        """Return what a job told as a trial; None where it is none."""
        if not metric_of(job) or job.attempt is None:
            return None
        no, steps = job.attempt.no, self._steps.get(job.id)
        told = steps.told if steps is not None and steps.attempt == no else None
        if told is None:
            return TrialReport(job.id, no, 0, is_last=is_last)
        known = self._compared.get(job.id)
        step, value = known or (told.step, None)
        rungs = tuple((at, _finite(value)) for at, value in told.rungs[:MOST_RUNGS])
        return TrialReport(job.id, no, step, value, known is not None, rungs, is_last=is_last)

    async def last_of(self, job: JobRecord, state: State) -> TrialReport | None:
        """Return what a trial whose attempt ends told last; None where it is no trial."""
        if not metric_of(job):
            return None
        for changed in await self._trials.last_of(job):
            self._take(changed, state)
        return self._trial(job, is_last=True)

    def compared(self, job: JobId) -> tuple[int, float | None] | None:
        """Return the newest step of a trial at which it told what it is compared by."""
        return self._compared.get(job)

    def _paces(self, state: State) -> Iterator[PaceReport]:
        for job, steps in self._steps.items():
            gang = state.cluster.gangs[job]
            is_alone = job not in state.packed and job not in state.packed_with
            if not (steps.is_new and is_alone) or gang.gauge is None:
                continue
            steps.is_new = False
            view = steps.view() if steps.is_sure(_least_ns(state, gang)) else None
            if view is not None and view.steps_per_hour is not None:
                left = -1 if view.left_ms is None else view.left_ms
                yield PaceReport(
                    job,
                    AttemptNo(steps.attempt),
                    steps.tasks,
                    view.steps_per_hour,
                    left,
                    steps.busy_milli,
                )

    def _offers(self, state: State) -> Iterator[OfferReport]:
        """Return which jobs for the first time give device memory back: themselves, or by the
        driver, as they allow it. What they keep in truth is measured."""
        for job, steps in self._steps.items():
            record = state.jobs[job]
            attempt, checkpoint = record.attempts[-1], record.spec.checkpoint
            says = steps.told is not None and steps.told.offloads
            if checkpoint is not None and checkpoint.driver and len(attempt.slots) == 1:
                says = state.cluster.ledger.can(Ability.SUSPENDS, attempt.slots)
            if says and steps.attempt == attempt.no and not attempt.offers:
                yield OfferReport(job, attempt.no)

    def _pairs(self, state: State) -> Iterator[PairReport]:
        """Return how fast pairs on the same devices are, where that is new, and sure."""
        for job, beside in state.packed.items():
            attempt, gang = state.jobs[job].attempts[-1], state.cluster.gangs[job]
            since = began_so(state, state.jobs[job])
            there = (self._steps.get(each) for each in (job, beside))
            mine, other = (s if s is not None and s.since == since else None for s in there)
            rates = rates_of(mine, other, _least_ns(state, gang))
            if rates is not None:
                yield PairReport(job, attempt.no, beside, *rates)

    def of(self, job: JobRecord) -> ProgressView | None:
        """Return what the present attempt of a job reported; None if nothing."""
        steps = self._steps.get(job.id)
        attempt = job.attempt
        if steps is None or attempt is None or steps.attempt != attempt.no:
            return None
        return steps.view()

    def close(self) -> None:
        """Stop looking, without waiting for folders that do not answer."""
        self._files.close()
        self._trials.close()

    def _note(
        self, changed: Changed, told: ProgressLine, attempt: AttemptRecord, since: Instant
    ) -> None:
        steps, key = self._steps.get(changed.key.job), (changed.key.attempt, attempt.staying)
        if steps is None or (steps.attempt, steps.tasks, steps.since) != (*key, since):
            later = since != attempt.started_at
            steps = self._steps[changed.key.job] = Steps(*key, since, is_later=later)
        steps.add(changed.at_ns, told)


def rates_of(mine: Steps | None, other: Steps | None, least_ns: int) -> tuple[int, int] | None:
    """Return how fast the two of a pair are; None unless that is new, and sure.

    If one of them told too little after `PATIENCE_NS` of the other's steps, its rate is 0.
    If it comes to tell nothing, its rate falls by the time that the other's steps show.
    """
    sure = [each for each in (mine, other) if each is not None and each.is_sure(least_ns)]
    if sure != [mine, other]:
        sure = [each for each in sure if each.is_sure(PATIENCE_NS)]
    if not any(each.is_new for each in sure):
        return None
    for each in sure:
        each.is_new = False
    now_ns = max(each.told_ns for each in sure)
    rate, other_rate = (
        max(1, each.rate_by(now_ns)) if each is not None and each in sure else 0
        for each in (mine, other)
    )
    return rate, other_rate


def began_so(state: State, job: JobRecord) -> Instant:
    """Return since when a job runs as it does now: alone on its devices, or with another."""
    attempt = job.attempts[-1]
    pair = state.jobs[state.packed_with.get(job.id, job.id)].attempts[-1].packing
    return max(attempt.running_since, pair.at) if pair is not None else attempt.running_since


def measures_closely(state: State) -> bool:
    """Whether gangs that may run at once take turns: then their steps are looked at often."""
    cluster = state.cluster
    if not (len(cluster.pending) or cluster.placed.resuming):
        return False
    return any(queue.packs for tenant in cluster.tenants.values() for queue in tenant.queues)


def _least_ns(state: State, gang: Gang) -> int:
    """Return on how long a rate must rest: no longer than a part of its turn."""
    slice_ms = state.cluster.slices.get(line_of(gang.standing.shape))
    return SURE_NS if slice_ms is None else min(SURE_NS, slice_ms * 1_000_000 // PARTS_OF_TURN)


def _busiest(slots: Sequence[Slot], uses: Mapping[NodeId, Sequence[DeviceUse]]) -> int | None:
    """Return how busy the busiest device of a place is; None where that is not known."""
    there = (
        use.busy_milli
        for slot in slots
        for use in uses.get(slot.node, ())
        if use.index in slot.devices
    )
    return max(there, default=None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def metric_of(job: JobRecord) -> str:
    """Return what a job is compared by as a trial; '' where it is none."""
    return job.spec.array.metric if job.spec.array is not None else ""


def read(changed: Changed) -> ProgressLine | None:
    """Return the last whole line as a value; None where there is none."""
    lines = [line for line in changed.data.split(b"\n") if line.strip()]
    for line in reversed(lines[-MOST_LINES:]):
        for decode in (_strictly, _with_nan):
            try:
                return decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
    return None


def _strictly(line: bytes) -> ProgressLine:
    return msgspec.json.decode(line, type=ProgressLine, strict=False)


def _with_nan(line: bytes) -> ProgressLine:
    """Read what Python's json writes of a metric that has diverged, which is no JSON."""
    return msgspec.convert(json.loads(line), ProgressLine, strict=False)


def metrics_of(told: ProgressLine) -> Mapping[str, float]:
    """Return the metrics that can be shown: finite numbers, at most MOST_METRICS."""
    kept = [
        (name[:MOST_NAME], value)
        for name, value in told.metrics.items()
        if name.isprintable() and value is not None and math.isfinite(value)
    ]
    return dict(kept[:MOST_METRICS])
