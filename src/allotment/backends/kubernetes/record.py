"""What the service keeps of the tasks that it gave to Kubernetes, beside their pods.

A pod may be deleted, or changed, by whoever has the right to; this file is the service's own.
"""

import asyncio
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from allotment.backends.kept import own_name, read_record
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.model.reasons import StopCause
from allotment.rights.writing import write_whole


class Launched(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that was given to Kubernetes."""

    name: str
    """Of its pod."""
    node: str
    token: str
    """What only we knew before the pod was there: by it that pod is ours."""
    secret: str = ""
    """The Secret with those of its variables that its pod does not show; '' for none."""
    uid: str = ""
    """Of its pod; empty until the API server has answered."""
    is_bound: bool = False
    boot: str = ""
    """Which start of its node that was."""
    log_bytes: int = 0
    at_once: bool = False
    """Whether its pod was asked for on its node: from then on it may run."""
    fence_ms: int = 0
    """For how long it hears nothing of the service until it ends itself; 0: it never does."""
    is_held: bool = False
    """Whether it waits in its pod for the others of its gang."""
    keep_s: int = 0
    """For how long its pod is kept as it is where it fails."""
    failed: Exit | None = None
    """How it failed, where its pod is kept since."""
    kept_until: float = 0.0
    """Seconds since 1970."""
    devices: tuple[str, ...] = ()
    """By name, where those of its node have names: it has them by a claim of its pod's name."""
    cause: StopCause | None = None
    """For what it was told to stop."""
    is_stopped: bool = False
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None


class Records:
    """The records and logs of tasks, in a folder of the state folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._jobs = set(self.jobs())
        """Those of which there may be anything: of all others no file is looked for."""
        self._writing: WeakValueDictionary[TaskKey, asyncio.Lock] = WeakValueDictionary()
        """What is kept of a task is written in the order in which it was told."""

    def prepare(self) -> str:
        """Make the folder; return what the names of our pods begin with: no other's do."""
        (self._root / "tasks").mkdir(mode=0o700, parents=True, exist_ok=True)
        return own_name(self._root)

    def folder(self, key: TaskKey) -> Path:
        return self._root / "tasks" / str(key.job) / str(key.attempt) / str(key.index)

    def job(self, job: int) -> Path:
        return self._root / "tasks" / str(job)

    def jobs(self) -> list[int]:
        """Return the jobs of which anything is kept."""
        names = [path.name for path in (self._root / "tasks").glob("*")]
        return [int(name) for name in names if name.isdecimal()]

    def read(self, key: TaskKey) -> Launched | None:
        """Return what is kept of a task; None for nothing. Raises BackendError."""
        if key.job not in self._jobs:
            return None
        return read_record(self.folder(key) / "record.json", Launched, key)

    async def keep(self, key: TaskKey, record: Launched) -> None:
        """Keep what is known, through crashes too. Raises BackendError.

        In a thread: a disk takes its time, and many tasks can wait for it together.
        """
        self._jobs.add(key.job)
        async with self._writing.setdefault(key, asyncio.Lock()):
            await asyncio.to_thread(self._write, key, record)

    def _write(self, key: TaskKey, record: Launched) -> None:
        path = self.folder(key) / "record.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(record))
        except OSError as error:
            raise BackendError(f"what task {key} is cannot be kept: {error}") from error
