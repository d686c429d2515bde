"""How much tenants had, for how long: what jobs held, guaranteed and borrowed apart.

Counted is what a gang holds from its placing to the end of its attempt, start-up and
draining included, suspension not: device-time is that which `Usage` calls in use, where
devices are given out whole.
"""

from collections.abc import Mapping

import msgspec

from allotment.metrics.fold import FINISHED, Handlers
from allotment.model import events as e
from allotment.model.diagnosis import GpuUse
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import CPU, HOUR, Instant
from allotment.model.spec import JobSpec

LATEST_MS = HOUR
"""Accounts of an engine that come later after a task's end are not looked for."""
NO_DEVICE = ""
"""The type of what is held without any device."""


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What a row of the accounts is about; a field is empty, or 0, where it is summed over."""

    tenant: str = ""
    queue: str = ""
    user: str = ""
    job: int = 0
    name: str = ""
    type: str = ""


class Sums(msgspec.Struct, gc=False):
    """Exact sums: thousandths of a device, or of a CPU, × milliseconds."""

    jobs: int = 0
    """Jobs that held anything."""
    evictions: int = 0
    gpu_guaranteed: int = 0
    gpu_borrowed: int = 0
    gpu_lost: int = 0
    """The part that evictions threw away: run since the last good checkpoint."""
    cpu_guaranteed: int = 0
    cpu_borrowed: int = 0
    cpu_lost: int = 0
    cpu_used: int = 0
    """What tasks that ended used, as their machine counted it; 0 where none did."""
    gpu_seen: int = 0
    """What tasks that ended held while they ran, of those whose use of it is known."""
    gpu_busy: int = 0
    """The part of that which was at work, if it was so all the time as when it was most."""


class _JobRows(msgspec.Struct, gc=False):
    """An unfinished job: what its rows are, and what it holds since when."""

    spec: JobSpec
    user: str
    keys: dict[str, Holding] = {}
    """Its rows by type of device."""
    counted: set[Holding] = set()
    """The rows in which it is counted already."""
    slots: tuple[Slot, ...] = ()
    """Where it was placed last."""
    amounts: Mapping[str, tuple[int, int]] = {}
    """Devices and CPU in thousandths, by type; empty while it holds nothing."""
    guaranteed: bool = True
    began: int = -1
    """Since when it runs on what it holds; -1 while it does not."""
    since: int = -1
    """Up to when all is summed up; -1 while it is suspended or has no place."""


class _Ran(msgspec.Struct, frozen=True, gc=False):
    """A task that ended: what it held, and for how long."""

    ended_at: Instant
    key: Holding
    gpu_milli: int
    ms: int


class Accounts:
    """Folds the log into `rows`. O(tasks of a gang) a placing, O(1) any other event.

    `by` names the fields of a row; all else is summed over. Call `close` at the end.
    """

    def __init__(self, by: frozenset[str]) -> None:
        self.rows: dict[Holding, Sums] = {}
        self._by = by
        self._user = ""
        self._types: dict[tuple[NodeId, int], str] = {}
        self._jobs: dict[JobId, _JobRows] = {}
        self._unmeasured: dict[tuple[JobId, AttemptNo, TaskIndex], _Ran] = {}
        """Tasks with devices, in the order in which they ended."""

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.AttemptPlaced: self._placed,
            e.AttemptStarted: self._started,
            e.AttemptPromoted: self._promoted,
            e.AttemptDemoted: self._demoted,
            e.AttemptSuspended: self._suspended,
            e.AttemptResumed: self._resumed,
            e.AttemptShrunk: self._shrunk,
            e.AttemptEnded: self._ended,
            e.TaskEnded: self._task_ended,
            e.TaskMeasured: self._task_measured,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def owned_by(self, user: str) -> None:
        """Take note whose the job is whose submission comes next."""
        self._user = user

    def close(self, at: Instant) -> None:
        """Sum up what is still held."""
        for job in self._jobs.values():
            self._settle(job, at)

    def _configured(self, at: Instant, event: e.ConfigApplied) -> None:
        self._types = {
            (node.id, device.index): device.type
            for node in event.config.nodes
            for device in node.devices
        }

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        self._jobs[event.job] = _JobRows(event.spec, self._user)

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.spec, job.keys = event.spec, {}  # It waits, so it holds nothing.

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        self._jobs.pop(event.job, None)

    # ── attempts ────────────────────────────────────────────────────────────────────────

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        job.amounts, job.slots = self._amounts(job.spec, event.slots), event.slots
        job.guaranteed = event.entitlement is Entitlement.GUARANTEED
        job.since, job.began = at, -1
        for type_ in job.amounts:
            if type_ not in job.keys:
                job.keys[type_] = self._key(event.job, job, type_)

    def _started(self, at: Instant, event: e.AttemptStarted) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.began = at

    def _promoted(self, at: Instant, event: e.AttemptPromoted) -> None:
        self._entitle(event.job, at, guaranteed=True)

    def _demoted(self, at: Instant, event: e.AttemptDemoted) -> None:
        self._entitle(event.job, at, guaranteed=False)

    def _entitle(self, id: JobId, at: Instant, *, guaranteed: bool) -> None:
        job = self._jobs.get(id)
        if job is not None:
            self._settle(job, at)
            job.guaranteed = guaranteed

    def _suspended(self, at: Instant, event: e.AttemptSuspended) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._settle(job, at)
            job.since = -1

    def _resumed(self, at: Instant, event: e.AttemptResumed) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.guaranteed = event.entitlement is Entitlement.GUARANTEED
            job.since = at

    def _shrunk(self, at: Instant, event: e.AttemptShrunk) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.slots:
            self._settle(job, at)
            job.slots = job.slots[: event.tasks]
            job.amounts = self._amounts(job.spec, job.slots)

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        job = self._jobs.get(event.job)
        if job is None or not job.amounts:
            return
        self._settle(job, at)
        if event.outcome is e.Outcome.EVICTED:
            self._evicted(job, at, event.lost_ms)
        job.amounts, job.since, job.began = {}, -1, -1

    def _evicted(self, job: _JobRows, at: Instant, lost_ms: int) -> None:
        # Work from before the stretch that is looked at is none of it.
        lost = min(lost_ms, at - job.began) if job.began >= 0 else 0
        rows = dict.fromkeys(job.keys[type_] for type_ in job.amounts)
        for key in rows:
            self._sums(key).evictions += 1
        for type_, (gpu, cpu) in job.amounts.items():
            sums = self._sums(job.keys[type_])
            sums.gpu_lost += gpu * lost
            sums.cpu_lost += cpu * lost

    def _task_ended(self, at: Instant, event: e.TaskEnded) -> None:
        job = self._jobs.get(event.job)
        if job is None or event.index >= len(job.slots):
            return
        usage, slot = event.exit.usage, job.slots[event.index]
        kind = self._types.get((slot.node, slot.devices[0]), "") if slot.devices else NO_DEVICE
        key = job.keys.get(kind)
        if key is None:
            return
        used = usage.cpu_user_ms + usage.cpu_system_ms
        if used:
            self._sums(key).cpu_used += CPU * used
        ran = _Ran(at, key, slot.gpu_milli, usage.wall_ms)
        if usage.gpu is not None:
            self._see(ran, usage.gpu)
        elif slot.devices:
            self._unmeasured[event.job, event.attempt, event.index] = ran
        self._forget_unmeasured(at)

    def _task_measured(self, at: Instant, event: e.TaskMeasured) -> None:
        ran = self._unmeasured.pop((event.job, event.attempt, event.index), None)
        if ran is not None:
            self._see(ran, event.gpu)

    def _see(self, ran: _Ran, gpu: GpuUse) -> None:
        sums = self._sums(ran.key)
        sums.gpu_seen += ran.gpu_milli * ran.ms
        sums.gpu_busy += min(gpu.busy_milli, ran.gpu_milli) * ran.ms

    def _forget_unmeasured(self, at: Instant) -> None:
        """Keep those alone that ended not long ago: most are never measured."""
        while self._unmeasured:
            first = next(iter(self._unmeasured))
            if at - self._unmeasured[first].ended_at < LATEST_MS:
                return
            del self._unmeasured[first]

    # ── sums ────────────────────────────────────────────────────────────────────────────

    def _settle(self, job: _JobRows, at: Instant) -> None:
        """Sum up what a job held until now."""
        if job.since < 0:
            return
        length, job.since = at - job.since, at
        if not length:
            return
        for type_, (gpu, cpu) in job.amounts.items():
            key = job.keys[type_]
            sums = self._sums(key)
            if key not in job.counted:
                job.counted.add(key)
                sums.jobs += 1
            if job.guaranteed:
                sums.gpu_guaranteed += gpu * length
                sums.cpu_guaranteed += cpu * length
            else:
                sums.gpu_borrowed += gpu * length
                sums.cpu_borrowed += cpu * length

    def _sums(self, key: Holding) -> Sums:
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = Sums()
        return found

    def _key(self, id: JobId, job: _JobRows, type_: str) -> Holding:
        by, spec = self._by, job.spec
        alone = "job" in by
        return Holding(
            tenant=spec.tenant if alone or "tenant" in by or "queue" in by else "",
            queue=spec.queue if alone or "queue" in by else "",
            user=job.user if alone or "user" in by else "",
            job=id if alone else 0,
            name=spec.name if alone else "",
            type=type_ if "type" in by else "",
        )

    def _amounts(self, spec: JobSpec, slots: tuple[Slot, ...]) -> dict[str, tuple[int, int]]:
        """Return what a gang holds by type of device. O(its tasks and devices)."""
        found: dict[str, tuple[int, int]] = {}
        needs = [role.resources for role in spec.roles for _ in range(role.count)]
        for need, slot in zip(needs, slots, strict=False):
            kinds = [self._types.get((slot.node, index), "") for index in slot.devices]
            for place, kind in enumerate(kinds or [NO_DEVICE]):
                gpu, cpu = found.get(kind, (0, 0))
                gpu += need.gpu_milli // len(kinds) if kinds else 0
                # A task's devices are mostly of one type; its CPU goes with the first.
                found[kind] = (gpu, cpu if place else cpu + need.cpu_milli)
        return found
