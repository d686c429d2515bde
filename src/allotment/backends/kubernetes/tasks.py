"""Our own tasks: what is kept of each, and what was heard of it since the start."""

import asyncio
from time import monotonic, time

from allotment.backends.kubernetes.client import LATE_S
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.record import Launched, Records
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import JobId, TaskKey
from allotment.model.reports import Seen

KEPT_S = 30.0
"""How much later than it should a pod may end that is kept after a failure."""


class Tasks:
    """What is known of tasks whose pods are ours. Those that are live have not ended, as far
    as was heard."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._began = monotonic()
        self.live: dict[TaskKey, Launched] = {}
        self.keys: dict[str, TaskKey] = {}
        """Of live tasks, by the uid of their pods."""
        self.told: dict[TaskKey, Seen] = {}
        self.heard: dict[TaskKey, Pod] = {}
        """How the pod of a task was when it was heard of last."""
        self.waits: dict[TaskKey, float] = {}
        """Since when a bound task has not begun."""
        self.pull_refused: dict[TaskKey, str] = {}
        """What a node said last of why it could not pull the image of a task that waits: while
        it pauses, it may not say it."""
        self.overdue: dict[TaskKey, float] = {}
        """When a task that got another signal than TERM is to be ended."""
        self.fenced: dict[TaskKey, Pod | None] = {}
        """Tasks whose pods are gone, on nodes of which it is not known what they do."""
        self.gone_at: dict[TaskKey, float] = {}
        """When we heard that a pod is gone of which nobody said that it had ended."""
        self.taken: set[TaskKey] = set()
        """Tasks whose pods we take back just now: that one is gone is no news."""
        self.asked_at: dict[TaskKey, float] = {}
        """When a pod was asked for that runs once it is made, and nothing was answered; -inf
        where it was refused."""
        self.ending: dict[TaskKey, asyncio.Task[None]] = {}
        """Tasks whose end was heard, and is not told yet."""
        self.over: dict[JobId, set[TaskKey]] = {}
        """Tasks that ended since the start, of jobs that are not forgotten."""

    def record(self, key: TaskKey) -> Launched | None:
        """Return what is known of a task; None for nothing. Raises BackendError."""
        return self.live.get(key) or self._records.read(key)

    def has_ended(self, key: TaskKey) -> bool:
        """Whether a task's end was kept, or is about to be, while we run."""
        return key in self.ending or key in self.over.get(key.job, ())

    def adopt(self, key: TaskKey, record: Launched) -> None:
        """Follow a task's pod from now on."""
        self.live[key] = record
        if record.uid:
            self.keys[record.uid] = key
        if record.failed is not None:
            left_s = min(record.keep_s, max(0.0, record.kept_until - time()))
            self.overdue.setdefault(key, monotonic() + left_s + KEPT_S)

    async def keep_new(self, key: TaskKey, record: Launched) -> None:
        """Keep what is known of a task before its pod is asked for. Raises BackendError."""
        await self._records.keep(key, record)

    async def keep(self, key: TaskKey, record: Launched) -> None:
        """Keep what became of a task. Raises EngineAway, as its pod is there: try again.

        An end that was heard meanwhile stays.
        """
        if record.exit is None and self.has_ended(key):
            return
        try:
            await self._records.keep(key, record)
        except BackendError as error:
            raise EngineAway(str(error)) from error
        known = self.live.get(key)
        if known is not None and (known.exit is None or record.exit is not None):
            self.live[key] = record

    def note_placed(self, key: TaskKey) -> None:
        """Note that a task is on its node, and is yet to begin."""
        self.waits.setdefault(key, monotonic())

    def need_answer(self, key: TaskKey, record: Launched) -> None:
        """Raise EngineAway while a pod that runs once it is made may still be made."""
        if record.at_once and monotonic() - self.asked_at.get(key, self._began) < LATE_S:
            raise EngineAway(
                f"pod {record.name} was asked for, and may still be made: nothing was answered"
            )

    def forget(self, job: JobId) -> None:
        """Keep nothing of the tasks of a job that have ended, or never began."""
        self.over.pop(job, None)
        for key in [key for key in self.asked_at if key.job == job]:
            del self.asked_at[key]

    def part(self, key: TaskKey) -> None:
        """Forget a task."""
        record = self.live.pop(key, None)
        if record is not None:
            self.keys.pop(record.uid, None)
        for known in (
            self.told, self.heard, self.waits, self.overdue, self.fenced, self.gone_at,
            self.ending, self.asked_at, self.pull_refused,
        ):  # fmt: skip
            known.pop(key, None)
