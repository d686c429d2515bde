"""What a backend says happened. Reports may come late, twice, or out of order."""

from enum import StrEnum

import msgspec

from allotment.model.content import Content
from allotment.model.diagnosis import Diagnosis, Exit, GpuUse
from allotment.model.events import Phase
from allotment.model.health import HealthReport
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskKey
from allotment.model.node_runs import NodeRuns
from allotment.model.others import Others
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.suspension import Suspension


class Seen(StrEnum):
    """What the backend saw of a task."""

    READY = "ready"
    RUNNING = "running"
    HOLDING = "holding"
    """Its command failed; its surroundings are kept for a look inside. `exit` is set."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """It was given to its engine, and how it is cannot be seen now: no news, and no end."""


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The present state of one task, as its backend knows it.

    `exit` is set when it ended or is held after a failure; `diagnosis` is then the best
    reading of it.
    """

    key: TaskKey
    seen: Seen
    pid: int = 0
    phases: tuple[Phase, ...] = ()
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None
    stopped_for: StopCause | None = None
    """For what its gang was told to stop, where that ended it: kept beside the task, so it is
    known also to books that were put back to before."""
    engine_job: str = ""
    """What its engine calls it, where that is another system."""
    devices: tuple[int, ...] = ()
    """Those that its engine gave it, where that chooses itself."""
    suspension: Suspension | None = None
    """How it was suspended last, as far as that is known."""
    held_up: str = ""
    """What it waits for to begin, or to be over, as a sentence without its full stop."""


class GangReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The present state of a whole gang, from a world that watches gangs as one.

    Only `RUNNING` (every task of it runs) and `ENDED` (none is left) are told of gangs;
    `exit` is set when it ended. Its tasks are then not heard of one by one. `lost_ms` is how
    much of its run time must be done again; None when that is to be told from checkpoints.
    """

    job: JobId
    attempt: AttemptNo
    seen: Seen
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None
    lost_ms: Millis | None = None


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a node is. Told when that changes; telling it again says nothing."""

    node: NodeId
    alive: bool
    reason: str = ""
    closed: str = ""
    """Why its engine starts nothing new there, though what runs goes on; '' where it does."""


class OthersReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What others than Allotment use of a node now. Told when that changes."""

    node: NodeId
    use: Others


class ContentReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which nodes have a content now. Told when that changes; telling it again says nothing."""

    content: Content
    nodes: NodeRuns
    bytes: int = 0


class CheckpointReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job said that it saved a checkpoint."""

    key: TaskKey
    path: str
    step: int = 0
    progress_milli: int = 0


class PaceReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How fast an attempt is with so many tasks, by what it told of its steps for a while."""

    job: JobId
    attempt: AttemptNo
    tasks: int
    rate: int
    """Steps an hour."""
    left_ms: int = -1
    """How long it still takes; -1 where that is not known."""
    busy_milli: int = 0
    """How busy the busiest of its devices is, in thousandths; 0 where that is not known."""


class OfferReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt says that it gives its devices' memory back while it is suspended."""

    job: JobId
    attempt: AttemptNo


class PairReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How fast two attempts are that run on the same devices at once, as for `PaceReport`.

    A rate is 0 where that one has not told enough.
    """

    job: JobId
    """The one that runs beside the other."""
    attempt: AttemptNo
    beside: JobId
    rate: int
    other_rate: int


class UseReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an engine's accounts say of an ended task."""

    key: TaskKey
    gpu: GpuUse


class TrialReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a trial of a sweep told of its steps and of the metric it is compared by."""

    job: JobId
    attempt: AttemptNo
    step: int
    """The last one; 0 where it told of none."""
    value: float | None = None
    """The metric then; None where it is no number."""
    known: bool = False
    """Whether it told of the metric at all then."""
    at: tuple[tuple[int, float | None], ...] = ()
    """Steps with values that it kept for its rungs."""
    is_last: bool = False
    """Whether its attempt tells no more."""


AnyReport = (
    TaskReport
    | UseReport
    | GangReport
    | NodeReport
    | OthersReport
    | ContentReport
    | CheckpointReport
    | HealthReport
    | PaceReport
    | PairReport
    | OfferReport
    | TrialReport
)
