"""Read models: what API, CLI, Python client and pages show. One column set for all of them.

Times are milliseconds since the epoch, 0 when not yet; lengths are milliseconds; memory
is bytes; devices and CPU are thousandths. Secrets never come this far.
"""

from collections.abc import Mapping

import msgspec

from allotment.model.cluster import NodeState
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.engines import Ability
from allotment.model.events import Outcome, Phase
from allotment.model.gains import Gain, Measured, Packing
from allotment.model.health import HardwareHealth
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import AttemptState, JobState, TaskState
from allotment.model.others import Others
from allotment.model.quantity import Moment, Resources, WallTime
from allotment.model.reasons import Blocked
from allotment.model.suspension import Suspension
from allotment.service.cells_view import TenantCells
from allotment.service.ports import Silence


class ArrayPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The index of the job in its array; -1 if the row is about the whole array."""

    id: JobId
    index: int
    size: int
    params: dict[str, str] = {}
    """Its values if it is of a grid; left out for users who may not see inside it."""


class JobRow(msgspec.Struct, frozen=True):
    """One line of `allot ps`."""

    id: JobId
    name: str
    tenant: str
    queue: str
    user: str
    state: JobState
    priority: int
    tasks: int
    total: Resources
    attempt: int
    submitted_at: Moment
    started_at: Moment
    """When it first ran."""
    finished_at: Moment
    ran_ms: int
    """Over all attempts, up to now."""
    reason: str = ""
    """Why it waits, or how it ended, in a word."""
    entitlement: Entitlement | None = None
    nodes: tuple[str, ...] = ()
    borrowed: tuple[str, ...] = ()
    """The parts in which it goes beyond what its tenant is guaranteed: `gpu`, `cpu` …"""
    array: ArrayPlace | None = None
    counts: dict[str, int] = {}
    """For a row about an array: how many of its jobs are in each state."""
    labels: dict[str, str] = {}
    unheard: Silence | None = None
    """Its engine does not answer now: what is said of it is what was heard last."""
    weight: int = 1
    """How many time slices its turn is long, in a queue that has them."""


class TaskView(msgspec.Struct, frozen=True):
    """One task of an attempt."""

    index: int
    name: str
    """`role.number`, as in `--task worker.1`."""
    state: TaskState
    node: str
    devices: tuple[int, ...]
    pid: int = 0
    started_at: Moment = 0
    ended_at: Moment = 0
    phases: tuple[Phase, ...] = ()
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None
    held_until: int = 0
    """It failed, and is kept for a look until then: its job keeps its place."""
    engine_job: str = ""
    """What its engine calls it, where that is another system: the number of a Slurm job."""
    suspension: Suspension | None = None
    """How it is suspended now, as far as its engine said."""


class AttemptView(msgspec.Struct, frozen=True):
    """One try at running a job."""

    no: int
    state: AttemptState
    entitlement: Entitlement
    placed_at: Moment
    started_at: Moment
    ended_at: Moment
    ran_ms: int
    outcome: Outcome | None
    stop_cause: str
    wanted_by: JobId | None
    diagnosis: Diagnosis | None
    lost_ms: int
    tasks: tuple[TaskView, ...]
    gain: Gain | None = None
    """What it was expected to gain, where it left for a place of its own."""
    gained: Measured | None = None
    """What it was found to have gained by coming to its place, in steps an hour."""
    packing: Packing | None = None
    """How it runs beside the gang that has its devices, where it does while suspended."""
    with_image: int = 0
    """On how many of its nodes its image was known to be when it was placed there."""
    with_environment: int = 0
    with_data: int = 0
    """The same of its environment, and of all versions of data that it uses."""


class CheckpointView(msgspec.Struct, frozen=True):
    """The newest good checkpoint."""

    path: str
    at: Moment
    attempt: int
    step: int
    progress_milli: int


class ProgressView(msgspec.Struct, frozen=True):
    """What a running job told of its progress, which need not be true."""

    step: int
    total: int
    """How many there are; 0 where it did not say."""
    steps_per_hour: int | None
    """Over the last two minutes or so; None until two different steps were told."""
    left_ms: int | None
    """How long it still takes at that rate; None where that is not known."""
    at: WallTime
    """When it told of that step."""
    metrics: Mapping[str, float]
    """Other numbers, by names of its own; none for users who may not see inside the job."""


class RunView(msgspec.Struct, frozen=True):
    """A run that a job made in MLflow, as MLflow says it."""

    run: str
    attempt: int
    status: str
    url: str
    """Its page."""


class JobView(msgspec.Struct, frozen=True):
    """Everything about one job: `allot show`."""

    row: JobRow
    spec: dict[str, object]
    """The job in its native form, secrets redacted."""
    warnings: tuple[str, ...]
    attempts: tuple[AttemptView, ...]
    checkpoint: CheckpointView | None
    evictions: int
    used_retries: int
    platform_retries: int
    lost_ms: int
    diagnosis: Diagnosis | None
    why: Blocked | None
    output_dir: str
    archived: bool = False
    private: bool = False
    """The private parts were left out: the caller may not see them."""
    note: str = ""
    noted_by: str = ""
    noted_at: Moment = 0
    saved: str = ""
    """The version of a dataset that its outputs are."""
    unsaved: str = ""
    """Why they did not become one."""
    kept: str = ""
    """The version of a dataset that is the newest of its checkpoints that were kept."""
    unkept: str = ""
    """Why its newest checkpoint did not become one."""
    progress: ProgressView | None = None
    """Of the attempt that runs, if it tells of any."""
    lost: str = ""
    """Of a trial that its sweep stopped: where it stood, such as `5th of 9 at rung 1`."""
    runs: tuple[RunView, ...] = ()
    """Those that it made in MLflow, the newest first."""
    held_up: tuple[str, ...] = ()
    """What its tasks wait for now to begin, or to be over."""

    @property
    def id(self) -> JobId:
        return self.row.id

    @property
    def state(self) -> JobState:
        return self.row.state


class NodeView(msgspec.Struct, frozen=True):
    """One line of `allot nodes`."""

    id: int
    name: str
    state: NodeState
    reason: str
    arch: str
    total: Resources
    free: Resources
    devices: tuple["DeviceView", ...]
    tasks: int
    health: HardwareHealth = HardwareHealth.HEALTHY
    """Of the node as a whole; its devices have their own."""
    trouble: str = ""
    """What is wrong with it, or with its devices, in words."""
    suspected: int = 0
    """How often it, or a device of it, was suspected by automatic means in 30 days."""
    unheard: Silence | None = None
    """Its engine does not answer now: what runs there goes on."""
    engine: str = ""
    """What runs its tasks; empty where the service has but one engine without a name."""
    lacks: tuple[Ability, ...] = ()
    """What that engine cannot do: jobs that ask for it are never placed here."""
    others: Others | None = None
    """What is in use by others than Allotment, and so not free."""


class DeviceView(msgspec.Struct, frozen=True):
    """One device, and the jobs on it."""

    index: int
    type: str
    memory: int
    virtual: bool
    free_milli: int
    """The unused part; it cannot be used while the device is not healthy."""
    jobs: tuple[JobId, ...]
    health: HardwareHealth = HardwareHealth.HEALTHY
    suspected: int = 0
    """How often it was suspected by automatic means in 30 days."""


class TenantView(msgspec.Struct, frozen=True):
    """One line of `allot tenants`."""

    name: str
    guaranteed: Resources
    used: Resources
    """All it holds now."""
    own: Resources
    """What of it comes out of its guarantee."""
    borrowed: Resources
    lent: Resources
    """What of its guarantee others use now."""
    running: int
    waiting: int
    queues: tuple[str, ...]
    members: str
    cells: tuple[TenantCells, ...] = ()
    """Where shares are cells: what it has of each type."""


class EventView(msgspec.Struct, frozen=True):
    """One line of `allot events`."""

    seq: int
    at: Moment
    kind: str
    job: JobId | None
    user: str
    groups: tuple[str, ...]
    text: str
    """The event in words."""
    detail: dict[str, object]


class OutputFile(msgspec.Struct, frozen=True):
    """One file a job left in its output folder. `path` is relative to it."""

    attempt: int
    path: str
    size: int
    modified_at: int


class OutputPage(msgspec.Struct, frozen=True):
    """Files a job left. Not `complete`: there are more than were asked for."""

    items: tuple[OutputFile, ...]
    complete: bool


class Submitted(msgspec.Struct, frozen=True):
    """The answer to a submission. `ids` has all jobs of an array, `id` the first."""

    id: JobId
    ids: tuple[JobId, ...]
    name: str
    state: JobState
    warnings: tuple[str, ...] = ()
    repeated: bool = False
    """The idempotency key was known: this is the job it made then."""


class Health(msgspec.Struct, frozen=True):
    """What `/readyz` and `allot doctor` say of the service."""

    version: str
    pid: int
    state_dir: str
    backend: str
    ready: bool
    trouble: str
    jobs: int
    events: int
    started_at: Moment
    clock_set_at: Moment = 0
    """When the machine's clock was last set while it ran; 0 if never."""
    clock_set_ms: int = 0
    """By how much then: forward, or back where it is negative."""
