"""What a backend says happened. Reports may come late, twice, or out of order."""

from enum import StrEnum

import msgspec

from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.events import Phase
from allotment.model.ids import TaskKey


class Seen(StrEnum):
    """What the backend saw of a task."""

    READY = "ready"
    RUNNING = "running"
    ENDED = "ended"


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The present state of one task, as its backend knows it.

    `exit` is set exactly when it ended; `diagnosis` is then the best reading of it.
    """

    key: TaskKey
    seen: Seen
    pid: int = 0
    phases: tuple[Phase, ...] = ()
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None


class CheckpointReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job said that it saved a checkpoint."""

    key: TaskKey
    path: str
    step: int = 0
    progress_milli: int = 0
