"""What running tasks use now: measured only when somebody looks, once for all who do.

CPU at work is the difference of two looks. Where the last one is long ago, a second one
follows the first after a moment.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from allotment.core.slices import slice_end
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model.engines import Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState, TaskState
from allotment.model.quantity import HOUR, Instant, WallTime
from allotment.service.live_view import LiveTask
from allotment.service.ports import Backend, DeviceUse, Measurable, TaskUse
from allotment.service.queries import node_name, task_name
from allotment.service.views import ProgressView

FRESH_S = 0.5
"""A look so young serves the next who asks, too."""
STALE_S = 30.0
"""A look so old is no beginning of a stretch that could be called now."""
MOMENT_S = 0.3


class Look(msgspec.Struct, frozen=True):
    """The measurements at one moment of the loop's own clock."""

    at: float
    uses: Mapping[TaskKey, TaskUse]
    cpu: Mapping[TaskKey, int]
    """Thousandths of a CPU, over the time since the look before."""
    devices: Mapping[NodeId, Sequence[DeviceUse]]


class LiveUse:
    """The looks at one backend's running tasks."""

    def __init__(
        self,
        state: State,
        backend: Backend,
        progress: Callable[[JobRecord], ProgressView | None],
    ) -> None:
        """`progress` is what a job told of its own."""
        self._state, self._backend, self._told = state, backend, progress
        self._one_at_a_time = asyncio.Lock()
        self._last: Look | None = None
        self._steps: dict[JobId, tuple[Instant, int, int | None]] = {}
        """Of each job that runs: its last save, the step, and the rate up to it."""

    async def now(self, at: Instant) -> list[LiveTask]:
        """Return what each running task uses. Raises Rejected where nothing can be measured."""
        able = Ability.MEASURES in self._backend.abilities
        if not able or not isinstance(self._backend, Measurable):
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"The {self._backend.name} backend does not say what running tasks use.",
                "`allot ps` shows what they may use.",
            )
        async with self._one_at_a_time:
            look = await self._look(self._backend)
        self._note_steps()
        return [task for job in running(self._state) for task in self._tasks(job, look, at)]

    async def _look(self, backend: Measurable) -> Look:
        loop, last = asyncio.get_running_loop(), self._last
        if last is not None and loop.time() - last.at < FRESH_S:
            return last
        if last is None or loop.time() - last.at > STALE_S:
            self._last = await self._measure(backend, None)
            await asyncio.sleep(MOMENT_S)
        self._last = await self._measure(backend, self._last)
        return self._last

    async def _measure(self, backend: Measurable, before: Look | None) -> Look:
        keys = [key for job in running(self._state) for key in _running_tasks(job)]
        measured = await backend.uses(keys)
        at = asyncio.get_running_loop().time()
        uses = {use.key: use for use in measured}
        return Look(at, uses, _at_work(before, uses, at), await backend.device_uses())

    def _tasks(self, job: JobRecord, look: Look, at: Instant) -> Iterable[LiveTask]:
        attempt = job.attempts[-1]
        told = self._told(job) or self._saved(job)
        gang = self._state.cluster.gangs.get(job.id)
        end = slice_end(self._state.cluster.slices, gang) if gang is not None else None
        turn = None if end is None else max(0, end - at)
        done = min(1000, told.step * 1000 // told.total) if told.total else 0
        if not done and job.checkpoint is not None:
            done = job.checkpoint.progress_milli
        for key in _running_tasks(job):
            use, slot = look.uses.get(key), attempt.slots[key.index]
            role, _ = job.spec.role_of(key.index)
            yield LiveTask(
                job.id, job.spec.name, job.spec.tenant, job.owner.user,
                task_name(job.spec, key.index), node_name(self._state, slot.node),
                role.resources, attempt.ran_until(at),
                look.cpu.get(key, 0),
                use.memory if use else 0,
                use.processes if use else 0,
                tuple(d for d in look.devices.get(slot.node, ()) if d.index in slot.devices),
                told.step, told.steps_per_hour, done, told.total, told.left_ms,
                turn, _gain_milli(attempt),
            )  # fmt: skip

    def _saved(self, job: JobRecord) -> ProgressView:
        """Return what is known from the checkpoints of a job that tells nothing else."""
        saved = job.checkpoint
        if saved is None:
            return ProgressView(0, 0, None, None, WallTime(0), {})
        _, step, rate = self._steps.get(job.id, (0, saved.step, None))
        return ProgressView(step, 0, rate, None, WallTime(saved.at), {})

    def _note_steps(self) -> None:
        """Keep the last save of each running job, and the rate of steps up to it."""
        kept: dict[JobId, tuple[Instant, int, int | None]] = {}
        for job in running(self._state):
            saved = job.checkpoint
            if saved is None:
                continue
            at, step, rate = self._steps.get(job.id, (saved.at, saved.step, None))
            if saved.at > at:
                rate = (saved.step - step) * HOUR // (saved.at - at)
            kept[job.id] = (saved.at, saved.step, rate)
        self._steps = kept


def running(state: State) -> list[JobRecord]:
    """Return the jobs that hold a place and run, the oldest first; also beside others."""
    return [
        state.jobs[gang]
        for gang in sorted(state.cluster.gangs)
        if state.jobs[gang].state in (JobState.RUNNING, JobState.STOPPING)
        or gang in state.packed
    ]


def _gain_milli(attempt: AttemptRecord) -> int | None:
    """Return what a job was found to gain by running where it does."""
    if attempt.packing is not None:
        return attempt.packing.gain_milli or None
    gained = attempt.gained
    return gained.rate * 1000 // gained.before if gained is not None and gained.before else None


def _running_tasks(job: JobRecord) -> list[TaskKey]:
    attempt: AttemptRecord = job.attempts[-1]
    return [
        TaskKey(job.id, attempt.no, TaskIndex(index))
        for index in range(len(attempt.slots))
        if attempt.task(TaskIndex(index)).state in (TaskState.RUNNING, TaskState.SUSPENDED)
    ]


def _at_work(
    before: Look | None, uses: Mapping[TaskKey, TaskUse], at: float
) -> dict[TaskKey, int]:
    """Return the CPU each task had since the look before, in thousandths of one."""
    if before is None:
        return {}
    span_ms = max(1.0, (at - before.at) * 1000)
    return {
        key: max(0, round((use.cpu_ms - before.uses[key].cpu_ms) * 1000 / span_ms))
        for key, use in uses.items()
        if key in before.uses
    }
