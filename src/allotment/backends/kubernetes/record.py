"""What the service keeps of the tasks that it gave to Kubernetes, beside their pods.

A pod may be deleted, or changed, by whoever has the right to; this file is the service's own.
"""

import asyncio
import shutil
from pathlib import Path
from secrets import token_hex

import msgspec

from allotment.backends.kept import kept_text, own_name
from allotment.backends.records import TaskRecords
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.events import Phase
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.reasons import StopCause


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
    namespace: str = ""
    """Where its pod is; '' for the namespace of its engine."""
    phases: tuple[Phase, ...] = ()
    """What of its start came before it was given to Kubernetes."""
    cause: StopCause | None = None
    """For what it was told to stop."""
    is_stopped: bool = False
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None


class Records:
    """The records and logs of tasks, in a folder of the state folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "tasks"
        self._kept = TaskRecords(self._folder / "records.db", Launched)
        self._jobs = set(self.jobs())
        """Those of which there may be anything: of all others no record is looked for."""
        self.secret = b""
        """What keys of tasks are made of, once prepared."""

    def prepare(self) -> str:
        """Make the folder; return what the names of our pods begin with: no other's do. Raises
        BackendError, OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = {
            key: path for path in self._folder.glob("*/*/*/record.json") if (key := _of(path))
        }
        self._kept.make((key, path.read_bytes()) for key, path in old.items())
        for path in old.values():
            path.unlink()
        self.secret = kept_text(self._root / "secret", lambda: token_hex(32)).encode()
        return own_name(self._root)

    @property
    def spaces(self) -> Path:
        """Return the file with the namespaces in which tasks are beside that of the engine."""
        return self._folder / "namespaces"

    def spaces_in_use(self) -> frozenset[str]:
        """Return the namespaces in which tasks are that have not ended. Raises BackendError."""
        return frozenset(each.namespace for each in self._kept.all() if each.exit is None)

    def folder(self, key: TaskKey) -> Path:
        """Return where the logs of a task are. It may not be there yet."""
        return self._folder / str(key.job) / str(key.attempt) / str(key.index)

    def jobs(self) -> list[int]:
        """Return the jobs of which anything is kept."""
        names = [path.name for path in self._folder.glob("*")]
        return [*{*map(int, filter(str.isdecimal, names)), *self._kept.jobs()}]

    def read(self, key: TaskKey) -> Launched | None:
        """Return what is kept of a task; None for nothing. Raises BackendError."""
        return self._kept.read(key) if key.job in self._jobs else None

    async def keep(self, key: TaskKey, record: Launched) -> None:
        """Keep what is known, through crashes too. Raises BackendError."""
        self._jobs.add(key.job)
        await self._kept.keep(key, record)

    async def forget(self, job: int) -> None:
        """Keep nothing of a job any more. Raises BackendError."""
        await asyncio.to_thread(shutil.rmtree, self._folder / str(job), ignore_errors=True)
        await self._kept.forget(job)

    async def close(self) -> None:
        await self._kept.close()


def _of(path: Path) -> TaskKey | None:
    """Return whose record a file is, as earlier versions kept it; None for nobody's."""
    parts = path.parts[-4:-1]
    if not all(part.isdecimal() for part in parts):
        return None
    job, attempt, index = map(int, parts)
    return TaskKey(JobId(job), AttemptNo(attempt), TaskIndex(index))
