"""Facts, in the past tense: the one source of truth.

An event is complete: applying it needs nothing but the state. Shipped fields never change
their meaning; new ones come at the end with a default. What is renamed keeps its name on disk
(`tag`, `name`). `Record` is the envelope: its place in the log, when, and who.
"""

from enum import StrEnum

import msgspec

from allotment.model.content import ContentKind
from allotment.model.datasets import Dataset, DataVersion, Grant, Grantee
from allotment.model.diagnosis import Diagnosis, Exit, GpuUse
from allotment.model.gains import Gain
from allotment.model.health import HardwareHealth, Source
from allotment.model.ids import Actor, AttemptNo, DeviceIndex, JobId, NodeId, Seq, TaskIndex
from allotment.model.ledger import Beside, Entitlement, Quota, Slot
from allotment.model.node_runs import NodeRuns
from allotment.model.others import Others
from allotment.model.quantity import Instant, Millis
from allotment.model.reasons import Reason, StopCause
from allotment.model.reservations import Reservation
from allotment.model.spec import JobSpec
from allotment.model.suspension import Suspension
from allotment.model.sweeps import Sweep, SweepEnd
from allotment.model.tenancy import Config


class Event(msgspec.Struct, frozen=True, tag_field="event", tag=True, omit_defaults=True):
    """Something that happened."""


class JobEvent(Event, frozen=True):
    """Something that happened to one job."""

    job: JobId


class AttemptEvent(JobEvent, frozen=True):
    """Something that happened to one attempt of a job."""

    attempt: AttemptNo


class TaskEvent(AttemptEvent, frozen=True):
    """Something that happened to one task of an attempt."""

    index: TaskIndex


# ── the cluster ─────────────────────────────────────────────────────────────────────────


class ConfigApplied(Event, frozen=True):
    """The configuration was replaced, as a whole."""

    config: Config
    dated: bool = False
    """No command asked for it: a date came from which other values hold."""


class NodesFound(ConfigApplied, frozen=True):
    """The configuration was replaced since nodes of an engine joined, changed or left."""

    engine: str = ""
    came: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class NodeDrained(Event, frozen=True):
    """An administrator keeps new work off a node; what runs there goes on."""

    node: NodeId
    reason: str = ""


class NodeUndrained(Event, frozen=True):
    """A drained node takes work again."""

    node: NodeId


class NodeLost(Event, frozen=True):
    """A node's backend no longer answers for it."""

    node: NodeId
    reason: str = ""


class NodeRecovered(Event, frozen=True):
    """A lost node is back."""

    node: NodeId


class JobIdsSkipped(Event, frozen=True):
    """The next job gets this id: lower ones were given out before, in a history since lost.

    So it is after an older backup was restored: a task's key must never come twice.
    """

    next_job: JobId


class EventsLost(Event, frozen=True):
    """A damaged log goes on without its end: an administrator said so.

    What the lost events told of is not known here; their numbers are given again.
    """

    because: str
    events: int = 0
    """How many are known to be missing; 0 if that is not known."""
    until: Instant = Instant(0)
    """When the last of them was recorded; 0 if that is not known."""


class ClockStepped(Event, frozen=True):
    """The machine's clock was set. The log's own time goes on without a step: instants are
    shown, and dates come true, by the new clock; lengths of time are what they were."""

    by_ms: Millis
    """How much later it is now than the time that passed would make it; negative if earlier."""


class HealthChanged(Event, frozen=True):
    """A node or one of its devices got worse, or well again. Reports between are no events."""

    node: NodeId
    was: HardwareHealth
    now: HardwareHealth
    by: Source
    device: DeviceIndex | None = None
    """None for the node as a whole."""
    code: str = ""
    words: str = ""
    who: str = ""
    """The user who reported it, or whose job did."""
    final: bool = False
    """An administrator's word: it holds until withdrawn."""
    since: Instant = Instant(0)
    """Since when there is trouble, which may be earlier than the first report; 0 when well."""
    held_back: bool = False
    """It is doubted, and used, because more would be out of use than may be by itself."""


class OthersSeen(Event, frozen=True):
    """What others than Allotment use of a node changed: that is not planned with."""

    node: NodeId
    use: Others
    """All that they use from now on."""


class ContentSeen(Event, frozen=True, tag="ImageSeen"):
    """Which nodes have something changed that jobs bring: they are preferred among equals."""

    name: str = msgspec.field(name="image")
    """As jobs have it."""
    nodes: NodeRuns = ()
    """All that have it from now on."""
    kind: ContentKind = ContentKind.IMAGE
    bytes: int = 0
    """How large it is; 0 where that is not known."""


class ReservationSet(Event, frozen=True, tag="WindowSet"):
    """Nodes are set aside for a stretch of time."""

    reservation: Reservation = msgspec.field(name="window")


class ReservationEnded(Event, frozen=True, tag="WindowEnded"):
    """All jobs may use its nodes again: its time is over, or it was ended."""

    name: str


class DatasetEvent(Event, frozen=True):
    """Something that happened to a dataset."""

    tenant: str
    name: str


class DatasetCreated(Event, frozen=True):
    """Data got a name."""

    dataset: Dataset


class DatasetVersionClosed(DatasetEvent, frozen=True):
    """A version of a dataset is whole, and never changes again."""

    version: DataVersion


class DatasetGranted(DatasetEvent, frozen=True):
    """A right to a dataset was given, in place of what the same had."""

    grant: Grant


class DatasetRevoked(DatasetEvent, frozen=True):
    """A right to a dataset was taken back."""

    to: Grantee
    who: str


class DatasetRemoved(DatasetEvent, frozen=True):
    """A version of a dataset was removed, or with 0 all of it."""

    version: int = 0


# ── jobs ────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(JobEvent, frozen=True):
    """A job was accepted. `key` is its idempotency key, empty when none was given."""

    spec: JobSpec
    key: str = ""
    warnings: tuple[str, ...] = ()
    held: bool = False


class JobEdited(JobEvent, frozen=True):
    """A waiting job was changed by its owner."""

    spec: JobSpec


class JobHeld(JobEvent, frozen=True):
    """A waiting job was taken out of the line."""


class JobReleased(JobEvent, frozen=True):
    """A held job was put back in line."""


class Reserved(JobEvent, frozen=True):
    """A place was reserved for a job; `victims` are on their way out of it."""

    slots: tuple[Slot, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]
    quota: Quota = ()


class ReservedPlaceDropped(JobEvent, frozen=True, tag="ReservationDropped"):
    """A reserved place was given up."""

    taken_by: JobId | None = None
    """The job that took it over, if one did."""


class JobRequeued(JobEvent, frozen=True):
    """An attempt ended and another will follow, not before `not_before`."""

    cause: str
    not_before: Instant = Instant(0)


class JobSucceeded(JobEvent, frozen=True):
    """The job is done."""


class JobFailed(JobEvent, frozen=True):
    """The job failed and is given up."""

    diagnosis: Diagnosis


class JobCancelled(JobEvent, frozen=True):
    """The job was cancelled."""

    by: str = ""


class JobTimedOut(JobEvent, frozen=True):
    """A limit of the job's own ran out: `max_queue_time` or `max_run_time`."""

    diagnosis: Diagnosis


class StartEstimated(JobEvent, frozen=True):
    """An estimate of the job's start was given. It changes nothing; it is kept to be judged."""

    earliest: Instant | None
    expected: Instant | None
    latest: Instant | None


class WaitExplained(JobEvent, frozen=True):
    """A job was found to wait for something else than before. Changes nothing; it is kept
    to be told: what keeps a job in line follows from the books, not from its own events."""

    reason: Reason
    since: Instant
    """When that was first seen, in two looks in a row."""


class JobNoted(JobEvent, frozen=True):
    """A note for people to read; an empty text removes the note."""

    text: str


class CheckpointKept(JobEvent, frozen=True):
    """A checkpoint that a job reported is a version of a dataset, or cannot become one."""

    path: str
    step: int = 0
    dataset: str = ""
    """As `tenant/name@version`."""
    trouble: str = ""
    """Why it did not; '' where it did."""


class OutputsSaved(JobEvent, frozen=True):
    """A job's outputs are a version of a dataset, or cannot become one."""

    dataset: str = ""
    """As `tenant/name@version`."""
    trouble: str = ""
    """Why they did not; '' where they did."""


class JobArchived(JobEvent, frozen=True):
    """A finished job left the memory of the engine; the store keeps it."""


# ── attempts ────────────────────────────────────────────────────────────────────────────


class AttemptPlaced(AttemptEvent, frozen=True):
    """A gang got its place: every slot is allocated, in rank order."""

    slots: tuple[Slot, ...]
    entitlement: Entitlement
    port: int = 0
    """The first of the attempt's ports; MASTER_PORT, then those the roles asked for."""
    quota: Quota = ()
    with_image: int = 0
    """How many of its nodes were known to have its image."""
    with_environment: int = 0
    with_data: int = 0
    """The same of its environment, and of all versions of data that it uses."""


class BarrierOpened(AttemptEvent, frozen=True):
    """Every task of the gang is ready; all may go."""


class AttemptStarted(AttemptEvent, frozen=True):
    """Every task of the gang runs."""


class AttemptPromoted(AttemptEvent, frozen=True):
    """A borrowing gang became its tenant's own use: there was room in its guarantee again."""

    quota: Quota = ()
    beside: Beside = ()
    """The leaves that its slots have beside their devices from now on; as before if none."""


class AttemptDemoted(AttemptEvent, frozen=True):
    """A gang lost its guarantee and runs on as a borrower: a job before it needs the share."""

    wanted_by: JobId


class AttemptSuspended(AttemptEvent, frozen=True):
    """A gang was frozen and gave up its devices and CPU."""

    wanted_by: JobId | None = None
    """The job that gets them, where the user did not ask for it."""


class MemoryOffered(AttemptEvent, frozen=True):
    """A job says that it gives its devices' memory back while it is suspended."""


class TaskSuspended(TaskEvent, frozen=True):
    """How a task of a suspended gang stands still, and what memory of its devices it keeps."""

    how: Suspension


class ResumeRequested(AttemptEvent, frozen=True):
    """The owner wants a suspended gang to go on."""


class AttemptResumed(AttemptEvent, frozen=True):
    """A suspended gang got its devices back."""

    entitlement: Entitlement = Entitlement.GUARANTEED
    quota: Quota = ()


class CheckpointSaved(AttemptEvent, frozen=True):
    """The job reported a good checkpoint."""

    path: str
    step: int = 0
    progress_milli: int = 0


class CheckpointRestored(AttemptEvent, frozen=True):
    """The job's last checkpoint was gone; it goes on from one that is a version."""

    path: str
    step: int = 0
    progress_milli: int = 0
    dataset: str = ""
    """As `tenant/name@version`."""


class PaceMeasured(AttemptEvent, frozen=True):
    """How fast a job is by its own steps, in a queue that asks for it (grow, migrate, pack)."""

    tasks: int
    rate: int
    """Steps an hour."""
    ends_at: Instant = Instant(0)
    """When all steps will be done; 0 where the job does not tell how many there are."""
    busy_milli: int = 0
    """How busy the busiest of its devices was, in thousandths; 0 where that is not known."""


class GainMeasured(AttemptEvent, frozen=True):
    """How fast a job is since it went on elsewhere, against before."""

    rate: int
    before: int
    kept: bool
    """Whether it gained as it should. If it did not, it is moved no more, but perhaps back."""
    expected: int = 0
    """What was predicted; 0 where nothing was."""


class Parted(StrEnum):
    """Why a gang no longer runs beside another."""

    WORSE = "worse"
    """They do less at once than by turns, or one of them does."""
    UNMEASURED = "unmeasured"
    """They did not tell enough of their steps to say."""
    OVER = "over"
    """It has its devices to itself now, or is told to stop, or has ended."""
    LEFT = "left"
    """The other no longer runs on these devices."""
    CPU = "cpu"
    """Others hold the CPUs that it used."""
    QUEUE = "queue"
    """Their queue packs no more."""


class Packed(AttemptEvent, frozen=True):
    """A suspended gang goes on beside the one that has its devices."""

    beside: JobId
    alone: int
    """How fast it was alone, in steps an hour."""
    other_alone: int
    """How fast the other was."""
    expected_milli: int = 0
    """What both are to do at once of what they do by turns; 0 where nothing is known."""
    proven: bool = False
    """Whether the two were found to gain by it before: else they are tried."""


class PackingMeasured(AttemptEvent, frozen=True):
    """What two gangs do at once on the same devices, against what they do by turns."""

    beside: JobId
    rate: int
    """How fast it is, in steps an hour."""
    other_rate: int
    """How fast the other is."""
    gain_milli: int
    """What both do of what they do by turns, in thousandths."""
    kept: bool
    """Whether that is enough, and neither loses. If not, the two are not packed again."""


class Unpacked(AttemptEvent, frozen=True):
    """A gang no longer runs beside another: it is suspended again, unless it is over."""

    beside: JobId
    cause: Parted


class StopRequested(AttemptEvent, frozen=True):
    """An attempt was told to stop: first the signal, after `grace_ms` by force."""

    cause: StopCause
    signal: str = "TERM"
    grace_ms: Millis = Millis(0)
    wanted_by: JobId | None = None
    """For an eviction, the job that gets the place."""
    diagnosis: Diagnosis | None = None
    gain: Gain | None = None
    """What the job is expected to gain, where it gets the place itself."""


class ShrinkRequested(AttemptEvent, frozen=True):
    """The surplus tasks of an elastic gang, from number `tasks` on, were told to stop.

    First the signal, after `grace_ms` by force. They borrow what they hold from now on.
    """

    tasks: int
    """How many stay."""
    signal: str = "TERM"
    grace_ms: Millis = Millis(0)
    wanted_by: JobId | None = None
    """The job that gets their place."""


class AttemptShrunk(AttemptEvent, frozen=True):
    """The last surplus task of a gang is gone; what they held is free again."""

    tasks: int
    """How many it has now."""


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class AttemptEnded(AttemptEvent, frozen=True):
    """The last task of a gang is gone; everything it held is free again."""

    outcome: Outcome
    diagnosis: Diagnosis | None = None
    lost_ms: Millis = Millis(0)
    """Run time since the last good checkpoint, to be done again; 0 after success."""


# ── tasks ───────────────────────────────────────────────────────────────────────────────


class Phase(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One named step of starting a task."""

    name: str
    started_at: Instant
    ms: Millis


class TaskReady(TaskEvent, frozen=True):
    """A task is isolated and waits for its gang."""

    phases: tuple[Phase, ...] = ()


class TaskStarted(TaskEvent, frozen=True):
    """A task's process runs. `pid` as its node counts it."""

    pid: int
    phases: tuple[Phase, ...] = ()
    engine_job: str = ""
    """What its engine calls it, where that is another system."""
    devices: tuple[int, ...] = ()
    """Those that its engine gave it, where that chooses itself."""


class TaskHeld(TaskEvent, frozen=True):
    """A task's command failed; what surrounded it is kept, to be looked into."""

    exit: Exit


class TaskEnded(TaskEvent, frozen=True):
    """A task's process is gone."""

    exit: Exit
    diagnosis: Diagnosis | None = None


class TaskMeasured(TaskEvent, frozen=True):
    """What an engine's accounts say of an ended task: they come after its end."""

    gpu: GpuUse


# ── sweeps ──────────────────────────────────────────────────────────────────────────────


class SweepSubmitted(JobEvent, frozen=True):
    """The jobs of an array are the trials of a sweep. `job` is the first, and names both."""

    name: str
    tenant: str
    sweep: Sweep
    trials: int


class TrialProposed(JobEvent, frozen=True):
    """The turn of a trial of a study has come, and these are its parameters."""

    params: tuple[tuple[str, str], ...]


class RungReached(JobEvent, frozen=True):
    """A trial came to the next of the rungs at which trials are compared."""

    rung: int
    """Counted from 0."""
    step: int
    value: float | None
    """What it reported there; None where that is no number, or nothing."""


class TrialMeasured(JobEvent, frozen=True):
    """What a trial reported last, when an attempt of it ended."""

    step: int
    value: float | None


class TrialStopped(JobEvent, frozen=True):
    """A trial is not to go on: it is only the `place`-th best of `of` at a rung."""

    rung: int
    place: int
    of: int


class SweepStopped(JobEvent, frozen=True):
    """All trials of a sweep are to end."""

    why: SweepEnd


AnyEvent = (
    ConfigApplied
    | NodeDrained
    | NodeUndrained
    | NodeLost
    | NodeRecovered
    | JobIdsSkipped
    | EventsLost
    | JobSubmitted
    | JobEdited
    | JobHeld
    | JobReleased
    | Reserved
    | ReservedPlaceDropped
    | JobRequeued
    | JobSucceeded
    | JobFailed
    | JobCancelled
    | JobTimedOut
    | JobArchived
    | AttemptPlaced
    | BarrierOpened
    | AttemptStarted
    | AttemptPromoted
    | AttemptDemoted
    | AttemptSuspended
    | TaskSuspended
    | MemoryOffered
    | ResumeRequested
    | AttemptResumed
    | CheckpointKept
    | CheckpointRestored
    | CheckpointSaved
    | StopRequested
    | AttemptEnded
    | TaskReady
    | TaskStarted
    | TaskHeld
    | TaskEnded
    | HealthChanged
    | StartEstimated
    | ReservationSet
    | ReservationEnded
    | ShrinkRequested
    | AttemptShrunk
    | WaitExplained
    | JobNoted
    | OutputsSaved
    | ClockStepped
    | OthersSeen
    | ContentSeen
    | NodesFound
    | DatasetCreated
    | DatasetVersionClosed
    | DatasetGranted
    | DatasetRevoked
    | DatasetRemoved
    | PaceMeasured
    | GainMeasured
    | TaskMeasured
    | SweepSubmitted
    | TrialProposed
    | RungReached
    | TrialMeasured
    | TrialStopped
    | SweepStopped
    | Packed
    | PackingMeasured
    | Unpacked
)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event in the log: its place, when it happened, and who acted."""

    seq: Seq
    at: Instant
    actor: Actor
    event: AnyEvent

    @property
    def job(self) -> JobId | None:
        event = self.event
        return event.job if isinstance(event, JobEvent) else None
