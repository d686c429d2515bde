"""Wishes, in the imperative. Each may be refused."""

import msgspec

from allotment.model.datasets import Grant, Grantee, JobCheckpoint, ObjectPlace
from allotment.model.grid import Grid, Parameters
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId
from allotment.model.quantity import Millis, WallTime
from allotment.model.reservations import NOTICE_MS, FoundReservation
from allotment.model.spec import JobSpec
from allotment.model.sweeps import Sweep, SweepEnd
from allotment.model.tenancy import Config


class Command(msgspec.Struct, frozen=True):
    """Something somebody wants."""


class SubmitJob(Command, frozen=True):
    """Accept a job. `warnings` are what its reader had to say, kept with it.

    `copies` above 1 makes an array of that many jobs, `max_running` of them at a time
    (0: no cap). `held` leaves it out of the line until released.
    """

    spec: JobSpec
    key: str = ""
    warnings: tuple[str, ...] = ()
    copies: int = 1
    max_running: int = 0
    held: bool = False
    grid: Grid = ()
    """Parameters with their values: one of the copies for each combination of them."""
    indices: tuple[int, ...] = ()
    """The indices of the copies in their array, ascending, where they are not 0, 1, 2 …"""
    sweep: Sweep | None = None
    """What makes trials of the copies: one for each."""


class SubmitAgain(Command, frozen=True):
    """Accept jobs that were submitted before, all or none.

    Those of one array stand together, in order, and make a new array of just their indices.
    """

    specs: tuple[JobSpec, ...]


class EditJob(Command, frozen=True):
    """Replace the spec of a waiting job."""

    job: JobId
    spec: JobSpec


class HoldJob(Command, frozen=True):
    """Take a waiting job out of the line."""

    job: JobId


class ReleaseJob(Command, frozen=True):
    """Put a held job back in line."""

    job: JobId


class NoteJob(Command, frozen=True):
    """Keep a word for people with a job, in place of an earlier one."""

    job: JobId
    text: str


class NoteKept(Command, frozen=True):
    """Note what became of a job's checkpoint: which version it is kept as, or why not."""

    job: JobId
    path: str
    step: int
    kept: str = ""
    why: str = ""


class NoteRestored(Command, frozen=True):
    """Note that a job goes on from a checkpoint that was kept as a version."""

    job: JobId
    attempt: AttemptNo
    path: str
    step: int
    progress_milli: int
    dataset: str


class NoteOutputs(Command, frozen=True):
    """Note what became of a job's outputs: which version they are saved as, or why not."""

    job: JobId
    saved: str = ""
    why: str = ""


class CancelJob(Command, frozen=True):
    """End a job, wherever it stands."""

    job: JobId


class StopSweep(Command, frozen=True):
    """End all trials of a sweep. `sweep` is the id of its array."""

    sweep: JobId
    why: SweepEnd = SweepEnd.ASKED


class ProposeTrial(Command, frozen=True):
    """Set the parameters of a trial of a study, and let it into its queue."""

    job: JobId
    params: Parameters


class SuspendJob(Command, frozen=True):
    """Freeze a running job and free its devices."""

    job: JobId


class ResumeJob(Command, frozen=True):
    """Let a suspended job go on when its devices are free."""

    job: JobId


class DrainNode(Command, frozen=True):
    """Keep new work off a node."""

    node: NodeId
    reason: str = ""


class UndrainNode(Command, frozen=True):
    """Let a drained node take work again."""

    node: NodeId


class DeclareHealth(Command, frozen=True):
    """An administrator's word on hardware: bad until withdrawn by `ok`."""

    parts: tuple[tuple[NodeId, DeviceIndex | None], ...]
    """Devices, or whole nodes where the device is None."""
    ok: bool
    because: str = ""


class ReserveNodes(Command, frozen=True):
    """Set nodes aside from `begin` until `end`, for those named, or for maintenance.

    Which nodes: those named, or as many as have so many `devices` (of a type, if given).
    """

    name: str
    begin: WallTime
    end: WallTime
    nodes: tuple[NodeId, ...] = ()
    devices: int = 0
    type: str = ""
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Each as TENANT/QUEUE."""
    evict: bool = False
    notice_ms: Millis = NOTICE_MS
    reason: str = ""


class EndReservation(Command, frozen=True):
    """End a reservation, begun or not."""

    name: str


class DataCommand(Command, frozen=True):
    """A wish about a dataset."""

    tenant: str
    name: str


class CreateDataset(DataCommand, frozen=True):
    """Make a dataset; with a `folder` of the machine, or `objects`, these are registered."""

    id: str
    folder: str = ""
    objects: ObjectPlace | None = None


class CloseVersion(DataCommand, frozen=True):
    """Add a version whose files are all there: it is closed from then on."""

    digest: str
    files: int
    bytes: int
    checkpoint: JobCheckpoint | None = None
    put: bool = False


class GrantData(DataCommand, frozen=True):
    """Grant a right to a dataset, in place of what the same had."""

    grant: Grant


class RevokeData(DataCommand, frozen=True):
    """Take a right to a dataset back."""

    to: Grantee
    who: str


class RemoveData(DataCommand, frozen=True):
    """Remove a version, or with 0 the dataset with all of them."""

    version: int = 0


class ApplyConfig(Command, frozen=True):
    """Replace the configuration."""

    config: Config


class FindNodes(Command, frozen=True):
    """Put the nodes in force that an engine has found: the configuration with them."""

    engine: str
    config: Config


class FindReservations(Command, frozen=True):
    """Have just those reservations of an engine that it has told of."""

    engine: str
    found: tuple[FoundReservation, ...]


AnyCommand = (
    SubmitJob
    | SubmitAgain
    | EditJob
    | HoldJob
    | ReleaseJob
    | NoteJob
    | NoteKept
    | NoteOutputs
    | NoteRestored
    | CancelJob
    | StopSweep
    | ProposeTrial
    | SuspendJob
    | ResumeJob
    | DrainNode
    | UndrainNode
    | DeclareHealth
    | ReserveNodes
    | EndReservation
    | CreateDataset
    | CloseVersion
    | GrantData
    | RevokeData
    | RemoveData
    | ApplyConfig
    | FindNodes
    | FindReservations
)
