"""The native form of a job, as pydantic models: what is read, and the API's schema.

Fields are in model units already (bytes, thousandths, milliseconds); how each is written
is its reader's business, in `amounts` and `words`.
"""

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from allotment.model.engines import ANY_ENGINE
from allotment.model.grid import Grid, combinations
from allotment.model.quantity import SECOND, Millis
from allotment.model.spec import NEVER, USUAL, Arch, Dialect, EndKind, GiveWay, Mpi, Priority
from allotment.sweeps.label import LABEL
from allotment.wire.amiss import Amiss
from allotment.wire.fields import (
    LAST_PORT,
    ArchWord,
    Command,
    Cpu,
    DataName,
    DialectWord,
    Digest,
    DurationOrNone,
    EndWord,
    EnvValue,
    ExitCode,
    FileCount,
    GiveWayWord,
    Gpu,
    GpuTypes,
    Hold,
    JobRef,
    Keep,
    Line,
    MaxRunning,
    MinFailed,
    MountPoint,
    MpiWord,
    Name,
    NameOrNone,
    Path,
    PortCount,
    PortNumber,
    PriorityWord,
    Retry,
    SecretText,
    SignalWord,
    Size,
    SizeOrNone,
    TaskCount,
    TimeLimit,
    Truth,
    Variable,
    Weight,
    Word,
)
from allotment.wire.grids import GridValues
from allotment.wire.indices import Indices
from allotment.wire.labels import MOST_LABELS, LabelKey, LabelValue, not_too_many
from allotment.wire.problems import LIST_FORM, MAP_FORM, WORD_FORM
from allotment.wire.sweep_shape import SweepShape
from allotment.wire.words import same_variable, taken_label

CHOSEN = ("cpu", "memory")
"""What the service chooses where a job does not name it."""


class Shape(BaseModel):
    """A map of known keys; any other key is a problem."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


def left_out(shape: Shape) -> tuple[str, ...]:
    """Return the parts that the service is to choose."""
    return tuple(part for part in CHOSEN if part not in shape.model_fields_set)


class ResourcesShape(Shape):
    """What one task needs."""

    cpu: Cpu = USUAL.cpu_milli
    memory: Size = USUAL.memory
    gpu: Gpu = 0
    gpu_type: GpuTypes = ()
    gpu_memory: SizeOrNone = 0
    disk: SizeOrNone = 0

    @model_validator(mode="after")
    def _gpus_before_their_kind(self) -> "ResourcesShape":
        for key in ("gpu_type", "gpu_memory"):
            if not self.gpu and getattr(self, key):
                raise Amiss("says which GPU, and `gpu` is 0", "add gpu: 1", at=(key,))
        return self


NO_KEYS: JsonDict = {"default": {}}
NO_ITEMS: JsonDict = {"default": []}
"""What the schema says of fields made by a factory: a default that is no constant costs
pydantic a deep copy for each job."""


class CountShape(Shape):
    """Between how many tasks there are."""

    min: TaskCount = Field(examples=[2])
    max: TaskCount = Field(examples=[8])
    elastic: Truth = False
    """Whether it can go on with fewer tasks than it started with."""

    @model_validator(mode="after")
    def _from_least_to_most(self) -> "CountShape":
        if self.min > self.max:
            raise Amiss(
                f"is more than the {self.max} tasks there are at most",
                "take a smaller number, or a larger `max`",
                at=("min",),
            )
        return self


class CompletionShape(Shape):
    """When a role decides its job."""

    min_failed: MinFailed = 1
    min_succeeded: TaskCount | None = None


class GroupsShape(Shape):
    """How many tasks must lie together, and within what."""

    size: TaskCount
    within: Word = Field(examples=["socket"])


class PortShape(Shape):
    """Ports under one label."""

    label: Name
    begin: PortNumber = 0
    count: PortCount = 1

    @model_validator(mode="after")
    def _ends_in_range(self) -> "PortShape":
        if self.begin and self.begin + self.count - 1 > LAST_PORT:
            raise Amiss(f"goes beyond port {LAST_PORT}", "begin lower, or take fewer")
        return self


def form_of(value: object) -> str | None:
    """Return the tag of a map or a list; None for anything else."""
    if isinstance(value, dict):
        return MAP_FORM
    return LIST_FORM if isinstance(value, (list, tuple)) else None


def _word_or_map(value: object) -> str:
    return MAP_FORM if isinstance(value, (dict, BaseModel)) else WORD_FORM


Ports = Annotated[
    Annotated[dict[Name, PortCount], Tag(MAP_FORM)]
    | Annotated[list[PortShape], Tag(LIST_FORM)],
    Discriminator(form_of),
]


Count = Annotated[
    Annotated[TaskCount, Tag(WORD_FORM)] | Annotated[CountShape, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]


class RoleParts(Shape):
    """What a role has, and a job with only one."""

    count: Count = Field(default=1, examples=["4", "{min: 2, max: 8}"])
    resources: ResourcesShape = Field(
        default=ResourcesShape(), examples=["{cpu: 4, memory: 8GiB, gpu: 1}"]
    )
    arch: ArchWord = Arch.ANY
    ports: Ports = Field(default={}, examples=["{http: 1}"])
    completion: CompletionShape = CompletionShape()
    groups: GroupsShape | None = Field(default=None, examples=["{size: 4, within: socket}"])

    @property
    def most(self) -> int:
        """Return how many tasks there are at most."""
        return self.count if isinstance(self.count, int) else self.count.max

    @property
    def needed(self) -> int:
        """Return how many tasks there are at least."""
        return self.count if isinstance(self.count, int) else self.count.min

    @model_validator(mode="after")
    def _groups_without_a_rest(self) -> "RoleParts":
        size = self.groups.size if self.groups else 1
        for count in (self.needed, self.most):
            if count % size:
                raise Amiss(
                    f"{count} tasks do not make groups of {size}",
                    "take a number that divides them",
                    at=("groups", "size"),
                )
        return self

    @model_validator(mode="after")
    def _enough_tasks_to_succeed(self) -> "RoleParts":
        wanted = self.completion.min_succeeded
        if wanted is not None and wanted > self.needed:
            only = "" if self.needed == self.most else "only "
            raise Amiss(
                f"{wanted} tasks can never succeed where there are {only}{self.needed}",
                "leave it out for all of them",
                at=("completion", "min_succeeded"),
            )
        return self

    @model_validator(mode="after")
    def _labels_once(self) -> "RoleParts":
        labels = [port if isinstance(port, str) else port.label for port in self.ports]
        if doubles := same_variable(labels):
            first, second = doubles
            is_list = isinstance(self.ports, list)
            raise Amiss(
                *taken_label(labels[second], labels[first]),
                at=("ports", second, "label") if is_list else ("ports", labels[second]),
            )
        return self


class RoleShape(RoleParts):
    """A template for alike tasks."""

    command: Command | None = Field(default=None, examples=["python train.py"])
    retry: Retry | None = None


class SecretFrom(Shape):
    """A secret that the submitter's environment holds."""

    from_env: Word


Secret = Annotated[
    Annotated[SecretText, Tag(WORD_FORM)] | Annotated[SecretFrom, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]


class CheckpointShape(Shape):
    """How the job saves its progress."""

    dir: Path = ""
    every: DurationOrNone = Millis(0)
    keep: Keep = 2
    signal: SignalWord = "TERM"
    grace: DurationOrNone = Millis(10 * SECOND)
    save: DataName = Field(default="", examples=["weights"])
    """The dataset of which each that is reported becomes a version."""
    driver: Truth = False
    """Whether the GPU's driver may take its device memory while it is suspended."""


class CodeShape(Shape):
    """Code that is taken along: of which folder, or which was sent already."""

    take: Path = Field(default="", examples=["."])
    bundle: Digest = ""
    """What it is called, once it was sent."""
    commit: Line = ""
    branch: Line = ""
    changed: FileCount = 0
    """How many files were not as in that commit."""
    difference: Digest = ""
    """What it is called that git said of them."""

    @model_validator(mode="after")
    def _of_a_folder(self) -> "CodeShape":
        if not self.take and not self.bundle:
            raise Amiss("names no folder", "write code: {take: .}", at=("take",))
        return self


CodeFolder = Annotated[
    Annotated[Path, Tag(WORD_FORM)] | Annotated[CodeShape, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]


class DataShape(Shape):
    """Where a job finds a dataset."""

    at: MountPoint = Field(examples=["/data/imagenet"])
    write: Truth = False
    digest: Digest = ""
    """What of it was meant, once that was settled."""


DataAt = Annotated[
    Annotated[MountPoint, Tag(WORD_FORM)] | Annotated[DataShape, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]

Data = Annotated[
    Annotated[Path, Tag(WORD_FORM)] | Annotated[dict[DataName, DataAt], Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]
"""A folder of the machine, or datasets by their names."""


def _file_or_lines(value: object) -> str:
    return LIST_FORM if isinstance(value, (list, tuple)) else WORD_FORM


Requirements = Annotated[
    Annotated[Path, Tag(WORD_FORM)] | Annotated[list[Word], Tag(LIST_FORM)],
    Discriminator(_file_or_lines),
]


class EnvironmentShape(Shape):
    """The Python packages that a job asks for."""

    python: Line = Field(default="", examples=["'3.11'"])
    requirements: Requirements = Field(default=[], examples=["[numpy==2.3.4]"])
    """The lines, or a file that has them."""
    key: Line = ""
    """What they were resolved to, once they were."""
    lock: Line = ""
    """The digest of the lock that they were read from, once they were."""


class AlternativeShape(Shape):
    """A job of which, or of others, one is to be waited for."""

    job: JobRef
    end: EndWord = EndKind.SUCCESS


Alternative = Annotated[
    Annotated[JobRef, Tag(WORD_FORM)] | Annotated[AlternativeShape, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]


class DependencyShape(Shape):
    """Another job to wait for, or several of which one is enough."""

    job: JobRef | None = None
    end: EndWord = EndKind.SUCCESS
    any_of: list[Alternative] = Field(default=[], examples=["[12, prepare]"])

    @model_validator(mode="after")
    def _one_of_the_two(self) -> "DependencyShape":
        if (self.job is None) is not bool(self.any_of):
            raise Amiss("has to have either `job` or `any_of`", "write {job: 12, end: any}")
        if self.any_of and "end" in self.model_fields_set:
            raise Amiss(
                "cannot be used with `any_of`", "write it with each: {job: 12, end: any}",
                at=("end",),
            )  # fmt: skip
        return self


DependsOn = Annotated[
    Annotated[JobRef, Tag(WORD_FORM)] | Annotated[DependencyShape, Tag(MAP_FORM)],
    Discriminator(_word_or_map),
]


class ArrayShape(Shape):
    """As many jobs as `count`, alike but for their index."""

    count: TaskCount = 0
    """0 where a grid or the indices say how many there are."""
    max_running: MaxRunning = 0
    indices: Indices = Field(default=(), examples=["1-10:3"])


class BatchShape(Shape):
    """How a script runs that was written for a batch system: once, for all of its job."""

    tasks: TaskCount = 1
    args: list[EnvValue] = []
    output: Line = Field(default="", examples=["slurm-%j.out"])
    error: Line = ""
    input: Line = ""
    append: Truth = False
    warn: DurationOrNone = Millis(0)
    warn_script: Truth = False
    requeue_on: list[ExitCode] = []
    variables: dict[Variable, EnvValue] = {}


def _some_role(value: object) -> object:
    if value == {}:
        raise Amiss("must have at least one role", "such as main: {command: python train.py}")
    return value


class JobShape(RoleParts):
    """A job: either `roles`, or the keys of a single role (`command` …) beside the others."""

    name: Name = Field(examples=["train-resnet"])
    tenant: NameOrNone = ""
    queue: Name = "default"
    priority: PriorityWord = Priority.NORMAL
    weight: Weight = 1
    image: Line = ""
    env: dict[Variable, EnvValue] = Field(
        default_factory=dict, json_schema_extra=NO_KEYS, examples=["{LR: 0.1}"]
    )
    secrets: dict[Variable, Secret] = Field(
        default_factory=dict, json_schema_extra=NO_KEYS, examples=["{TOKEN: {from_env: TOKEN}}"]
    )
    roles: Annotated[dict[Name, RoleShape], BeforeValidator(_some_role)] | None = Field(
        default=None, examples=["{main: {command: python train.py}}"]
    )
    command: Command | None = Field(default=None, examples=["python train.py"])
    data: Data = Field(default="", examples=["{imagenet: /data/imagenet}"])
    code: CodeFolder = Field(default="", examples=["{take: .}"])
    environment: EnvironmentShape | None = Field(
        default=None, examples=["{requirements: [numpy==2.3.4]}"]
    )
    output: Path = ""
    save: DataName = Field(default="", examples=["results"])
    workdir: Path = ""
    retry: Retry = 0
    max_run_time: TimeLimit = NEVER
    max_queue_time: TimeLimit = NEVER
    deadline: TimeLimit = NEVER
    checkpoint: CheckpointShape | None = Field(default=None, examples=["{dir: ckpt}"])
    depends_on: list[DependsOn] = Field(
        default_factory=list, json_schema_extra=NO_ITEMS, examples=["[12, {job: 13, end: any}]"]
    )
    grid: dict[Variable, GridValues] = Field(
        default_factory=dict,
        json_schema_extra=NO_KEYS,
        examples=["{lr: [0.1, 0.01], seed: 1..5}"],
    )
    array: ArrayShape | None = Field(default=None, examples=["{count: 10, max_running: 2}"])
    sweep: SweepShape | None = Field(
        default=None, examples=["{parameters: {lr: [0.1, 0.01]}, metric: loss}"]
    )
    hold_on_failure: Hold = Millis(0)
    preemptible: Truth = True
    on_eviction: GiveWayWord = GiveWay.AS_TENANT
    within: Line = Field(default="", examples=["node"])
    prefer: Line = Field(default="", examples=["rack"])
    pin: NameOrNone = Field(default="", examples=["vision-own"])
    engine: NameOrNone = Field(default="", examples=["here"])
    mpi: MpiWord = Field(default=Mpi.NONE, examples=["pmix"])
    opportunistic: Truth = False
    labels: Annotated[dict[LabelKey, LabelValue], AfterValidator(not_too_many)] = Field(
        default_factory=dict, json_schema_extra=NO_KEYS, examples=["{team: vision}"]
    )
    dialect: DialectWord = Dialect.NATIVE
    """Which form's extra variables the tasks get; for jobs that were read from another."""
    batch: BatchShape | None = None

    @model_validator(mode="after")
    def _counted_once(self) -> "JobShape":
        count, made = self.array.count if self.array else 0, combinations(self.axes)
        indices = self.array.indices if self.array else ()
        if indices and (self.grid or count not in (0, len(indices))):
            message = f"names {len(indices):,} jobs, and something else names others"
            raise Amiss(message, "keep one of the two", at=("array", "indices"))
        if self.grid and count not in (0, made):
            message = f"is {count}, and the grid makes {made:,} jobs"
            raise Amiss(message, "leave it out", at=("array", "count"))
        if self.array and not count and not (self.grid or indices or self.sweep):
            raise Amiss("is missing", "say how many jobs it has", at=("array", "count"))
        return self

    @model_validator(mode="after")
    def _trials_apart(self) -> "JobShape":
        if self.sweep is None:
            return self
        if self.grid:
            message = "cannot be used with `sweep`, which has its own parameters"
            raise Amiss(message, "move them to sweep.parameters", at=("grid",))
        if self.array and (self.array.count or self.array.indices):
            message = "says how many jobs there are, and the sweep does"
            raise Amiss(message, "keep only array: {max_running: 4}", at=("array",))
        if self.checkpoint is not None and self.checkpoint.dir:
            message = "is one folder for all trials, which would continue from each other's"
            raise Amiss(message, "leave it out: each has its own", at=("checkpoint", "dir"))
        if len(self.labels) >= MOST_LABELS and LABEL not in self.labels:
            message = f"has {len(self.labels)} labels, and the sweep adds one"
            raise Amiss(message, "take one out", at=("labels",))
        return self

    @model_validator(mode="after")
    def _one_script(self) -> "JobShape":
        if self.batch is None:
            return self
        role, *others = (self,) if self.roles is None else tuple(self.roles.values())
        if others or role.count != 1:
            message = "is about one script, which is the command of one role with one task"
            raise Amiss(message, "take it out, or all other tasks", at=("batch",))
        if not isinstance(role.command, str) or not role.command.startswith("#!"):
            message = "is about a script, and the command is none: its first line must be #!"
            raise Amiss(message, "begin the command with #!/bin/sh", at=("batch",))
        return self

    @model_validator(mode="after")
    def _ranks_alike(self) -> "JobShape":
        if self.mpi is Mpi.NONE:
            return self
        role, *others = (self,) if self.roles is None else tuple(self.roles.values())
        wrong = (
            ("batch" if self.batch else "", "take it out: the script calls its own launcher"),
            ("the command of an image" if not role.command else "", "write `command`"),
            ("several roles" if others else "", "use one role: its tasks are the ranks"),
            (
                "an elastic role"
                if isinstance(role.count, CountShape) and role.count.elastic
                else "",
                "take `elastic` out: ranks cannot leave",
            ),
            ("`engine: any`" if self.engine == ANY_ENGINE else "", "name one engine, or none"),
        )
        for what, hint in wrong:
            if what:
                raise Amiss(f"cannot be used with {what}", hint, at=("mpi",))
        if self.mpi is Mpi.MPIRUN and (role.completion.min_succeeded or 1) > 1:
            message = (
                "is more than 1, and with `mpi: mpirun` only the first task ends by itself"
            )
            raise Amiss(message, "take `min_succeeded` out", at=("mpi",))
        return self

    @property
    def axes(self) -> Grid:
        """Return the parameters of its grid, with their values."""
        return tuple(self.grid.items())

    @model_validator(mode="after")
    def _guaranteed_if_pinned(self) -> "JobShape":
        if self.pin and self.opportunistic:
            message = (
                "cannot be used with `opportunistic`, which never uses its tenant's guarantee"
            )
            raise Amiss(message, "keep one of the two", at=("pin",))
        if self.opportunistic and not self.preemptible:
            message = "is false, but an opportunistic job can be evicted at any time"
            raise Amiss(message, "remove one of the two", at=("preemptible",))
        return self


class _Schema(GenerateJsonSchema):
    """Leaves defaults out: they are in model units, not as they would be written."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def job_schema() -> JsonSchemaValue:
    """Return the JSON schema of the native form, for the API's description."""
    return JobShape.model_json_schema(schema_generator=_Schema)
