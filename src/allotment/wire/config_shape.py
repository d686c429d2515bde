"""The cluster configuration, as pydantic models in model units."""

from typing import Annotated, cast

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag, model_validator

from allotment.model.engines import EngineType
from allotment.model.quantity import HOUR, Millis
from allotment.model.spec import Arch, GiveWay
from allotment.model.tenancy import (
    Limits,
    Preempt,
    QueueOrder,
    QueueState,
    RankBy,
    ShareBy,
    Visibility,
)
from allotment.wire import amounts, words
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.cells_shape import CellsShape, ShareCount
from allotment.wire.config_budgets import BudgetShape
from allotment.wire.config_objectives import ObjectivesShape, read_percent
from allotment.wire.dated_shape import PeriodShape
from allotment.wire.fields import (
    LAST_PORT,
    MOST_GPUS,
    Cpu,
    Duration,
    GiveWayWord,
    Gpu,
    Line,
    Name,
    NameOrNone,
    NodeName,
    NodeNameOrNone,
    Path,
    Retry,
    Size,
    SizeOrNone,
    Truth,
    Word,
    read_gpu_count,
    read_host_arch,
)
from allotment.wire.image_rules import Image
from allotment.wire.job_shape import Shape, form_of
from allotment.wire.mlflow_shape import MlflowShape
from allotment.wire.pools_shape import PoolShape
from allotment.wire.preempt_rules import PreemptRulesShape
from allotment.wire.problems import LIST_FORM, MAP_FORM
from allotment.wire.pythons_source import PythonsWord
from allotment.wire.queue_shape import (
    AmountsShape,
    CapShape,
    MostJobs,
    MostJobsOrNone,
    Overtaken,
    State,
    read_cpu_or_none,
)
from allotment.wire.rest_shape import RestShape
from allotment.wire.text import shown

MOST_GPUS_IN_ALL = 100_000
MOST_MARGIN_MILLI = 100_000
"""How many thousandths of earlier run times a job may be taken to run."""

LIMITS = Limits()
User = Annotated[str, PlainValidator(words.read_user)]


def read_engine_type(value: object) -> EngineType:
    """Read the kind of system that runs tasks."""
    if value not in tuple(EngineType):
        hint = (
            "local: this machine; slurm: a partition of Slurm; pilot: one held as a whole; "
            "kubernetes: a cluster"
        )
        raise not_a("local, slurm, pilot or kubernetes", value, hint)
    return EngineType(str(value))


def read_order(value: object) -> QueueOrder:
    """Read whether later jobs may overtake a blocked one."""
    if value not in tuple(QueueOrder):
        raise not_a(
            "strict, skip, easy or conservative",
            value,
            "may later jobs overtake a blocked one? strict: no; skip: yes; easy: if they do "
            "not delay it; conservative: if they delay no job before them",
        )
    return QueueOrder(str(value))


def read_preempt(value: object) -> Preempt:
    """Read what more urgent jobs of a tenant may do to its less urgent ones."""
    if value not in tuple(Preempt):
        hint = "none: they wait; evict: they take the place; demote: they take the guarantee"
        raise not_a("none, evict or demote", value, hint)
    return Preempt(str(value))


def read_share(value: object) -> ShareBy:
    """Read the sharing rule: which claimant comes next."""
    if value not in tuple(ShareBy):
        hint = "drf compares dominant shares, fair_share compares recent use"
        raise not_a("first_come, max_min, drf or fair_share", value, hint)
    return ShareBy(str(value))


def read_rank(value: object) -> RankBy:
    """Read in what order the jobs of a queue come."""
    if value not in tuple(RankBy):
        hint = "submitted means: higher priority first, then earlier submission"
        names = "submitted, shortest, least_attained, deadline or round_robin"
        raise not_a(names, value, hint)
    return RankBy(str(value))


def read_visibility(value: object) -> Visibility:
    """Read what other users see of a job."""
    if value not in tuple(Visibility):
        hint = "private hides command, environment and output from others; open hides nothing"
        raise not_a("private or open", value, hint)
    return Visibility(str(value))


def read_half_life(value: object) -> Millis:
    """Read in what time half of what was used is forgotten."""
    length = amounts.read_duration(value)
    if length < HOUR:
        raise Amiss(f"{shown(value)} is too short", "give at least 1h")
    return length


def read_slice(value: object) -> Millis:
    """Read how long slices are; `auto` is AUTO_SLICE."""
    return AUTO_SLICE if value == "auto" else amounts.read_duration(value)


def read_predict(value: object) -> int:
    """Read the factor from earlier run times to a job's, in thousandths; `none` is 0."""
    if value == "none":
        return 0
    if type(value) not in (int, float):
        raise not_a("a number", value, "write it like 1.25, or none to predict nothing")
    milli = round(cast("float", value) * 1000)
    if not 1_000 <= milli <= MOST_MARGIN_MILLI:
        raise Amiss(
            f"{shown(value)} is not a margin", "give 1 to 100, or none to predict nothing"
        )
    return milli


def read_breaker(value: object) -> int:
    """Read what share of the devices may be out of use; `none` for none of them."""
    return 0 if value == "none" else read_percent(value)


def read_kept(value: object) -> int:
    """Read how many finished jobs stay in memory."""
    return amounts.read_whole(value, 0, 10_000_000)


def read_pids(value: object) -> int:
    """Read how many processes and threads a task may have."""
    return amounts.read_whole(value, 16, 4_194_304)


def read_port_range(value: object) -> tuple[int, int]:
    """Read `20000-31999` into a half-open range; `none` is an empty one."""
    if value == "none":
        return (0, 0)
    ends = value.split("-") if isinstance(value, str) else ()
    if len(ends) != 2 or not all(end.strip().isdecimal() and len(end) < 9 for end in ends):
        raise not_a("a range of ports", value, "write it like 20000-31999, or none")
    first, last = int(ends[0]), int(ends[1])
    if not 1024 <= first <= last <= LAST_PORT:
        raise Amiss(
            f"{shown(value)} is not a range of free ports", f"stay within 1024-{LAST_PORT}"
        )
    return (first, last + 1)


def read_near(value: object) -> list[int]:
    """Read the indexes of devices."""
    indexes = cast("list[object]", value) if isinstance(value, list) else []
    if not indexes:
        shown_as = "an empty list" if isinstance(value, list) else value
        raise not_a("a list of device indexes", shown_as, "write it like [0, 1]")
    return [amounts.read_whole(each, 0, MOST_GPUS - 1) for each in indexes]


def _empty_map(value: object) -> object:
    """Let `vision:` with nothing behind it stand for all defaults."""
    return {} if value is None else value


def _not_empty(value: object) -> object:
    if value == {} or value == []:
        raise Amiss("must have at least one entry", "add one, or take the key out")
    return value


Share = Annotated[ShareBy, PlainValidator(read_share)]
Weight = Annotated[int, PlainValidator(amounts.read_weight, json_schema_input_type=float)]


class GpuShape(Shape):
    """Devices of one type. `virtual` None leaves it to what the machine really has."""

    type: Word = Field(examples=["A100-80G"])
    count: Annotated[int, PlainValidator(read_gpu_count)] = Field(examples=["8"])
    memory: SizeOrNone = 0
    virtual: Truth | None = None
    uuids: list[Word] = Field(default=[])

    @model_validator(mode="after")
    def _one_uuid_each(self) -> "GpuShape":
        if self.uuids and len(self.uuids) != self.count:
            message = f"has {len(self.uuids)} for {self.count} devices"
            raise Amiss(message, "give one for each, or none", at=("uuids",))
        return self


Gpus = Annotated[
    Annotated[GpuShape, Tag(MAP_FORM)] | Annotated[list[GpuShape], Tag(LIST_FORM)],
    Discriminator(form_of),
]


class NicShape(Shape):
    """A network card for traffic between devices."""

    name: Word = Field(examples=["mlx5_0"])
    near: Annotated[list[int], PlainValidator(read_near)] = Field(examples=["[0, 1]"])


def _read_claimants(value: object) -> object:
    """Read one word as a list of one."""
    return [value] if isinstance(value, str) else value


Claimants = Annotated[
    list[Word], BeforeValidator(_read_claimants), Field(min_length=1, max_length=100)
]
"""TENANT or TENANT/QUEUE: one, or several of which the first is the usual one."""


Schedulers = Annotated[list[Word], BeforeValidator(_read_claimants), Field(max_length=100)]
"""Names of schedulers: one, or several."""
Patterns = Annotated[list[Word], BeforeValidator(_read_claimants), Field(max_length=1000)]
"""Names of nodes, in which `*` may stand: one, or several."""
LabelKeys = Annotated[list[Word], BeforeValidator(_read_claimants), Field(max_length=16)]
"""Labels of nodes, by their keys: one, or several."""


ALL = ""
"""In place of a tenant: what holds for all."""


def _read_qos(value: object) -> object:
    """Read one word as what holds for all tenants."""
    if not isinstance(value, str):
        return value
    return {ALL: value} if value else {}


Qos = Annotated[dict[str, Name], BeforeValidator(_read_qos)]
"""One quality of service for all tenants, or one for each of some."""


def _read_spaces(value: object) -> object:
    """Read a pattern as what holds for all tenants."""
    if not isinstance(value, str):
        return value
    if "{tenant}" not in value:
        hint = "jobs-{tenant}; one namespace for all is `namespace`"
        raise Amiss(f"{shown(value)} has no {{tenant}} in it", hint)
    return {ALL: value}


TenantSpaces = Annotated[dict[str, Word], BeforeValidator(_read_spaces)]
"""A namespace for each tenant, by a pattern, or for each of some."""


class EngineShape(Shape):
    """A system that runs tasks: this machine, a partition of Slurm, a Kubernetes cluster."""

    type: Annotated[EngineType, PlainValidator(read_engine_type)]
    partition: NameOrNone = Field(default="", examples=["main"])
    accounts: dict[str, Name] = Field(default={}, examples=["{vision: research}"])
    qos: Qos = Field(default={}, examples=["normal", "{vision: high}"])
    reservation: Word = Field(default="", examples=["allotment"])
    folder: Path = Field(default="", examples=["/var/lib/allotment"])
    rest: RestShape | None = Field(default=None, examples=["{socket: /run/slurmrestd.sock}"])
    apptainer: Path = Field(default="", examples=["/opt/apptainer/bin/apptainer", "none"])
    kubeconfig: Word = Field(default="", examples=["/etc/allotment/kubeconfig"])
    context: Word = Field(default="", examples=["gpu-cluster"])
    namespace: NameOrNone = Field(default="", examples=["allotment"])
    image: Word = Field(default="", examples=["pytorch/pytorch:2.6.0"])
    volumes: dict[Path, Name] = Field(default={}, examples=["{/shared: host}"])
    shared: dict[Path, Name] = Field(default={}, examples=["{/state/environments: host}"])
    force_after: Duration = Field(default=Millis(0), examples=["30min"])
    fence_after: Duration = Field(default=Millis(0), examples=["15min"])
    namespaces: dict[str, Claimants] = Field(default={}, examples=["{team-a: [lab/nlp, lab]}"])
    schedulers: Schedulers = Field(default=[], examples=["hivedscheduler"])
    tenant_namespaces: TenantSpaces = Field(default={}, examples=["jobs-{tenant}"])
    visible: Patterns = Field(default=[], examples=["[dgx-*, n1]"])
    labels: LabelKeys = Field(default=[], examples=["[example.com/rack]"])

    @model_validator(mode="after")
    def _absolute(self) -> "EngineShape":
        if self.folder and not self.folder.startswith("/"):
            raise Amiss("is not an absolute path", "/var/lib/allotment", at=("folder",))
        if self.apptainer not in ("", "none") and not self.apptainer.startswith("/"):
            raise Amiss(
                "is not an absolute path", "/usr/bin/apptainer, or none", at=("apptainer",)
            )
        return self

    @model_validator(mode="after")
    def _heard_in_time(self) -> "EngineShape":
        if 0 < self.fence_after < SHORTEST_FENCE_MS:
            message = "is too short: a node passes on what it hears within two minutes"
            raise Amiss(message, "5min at least", at=("fence_after",))
        return self

    @model_validator(mode="after")
    def _only_placed_here(self) -> "EngineShape":
        if self.schedulers and not self.namespaces:
            raise Amiss("has no pods to place", "namespaces: {team-a: lab}", at=("schedulers",))
        if "default-scheduler" in self.schedulers:
            raise Amiss(
                "names kube-scheduler, which would place the same pods", "take it out",
                at=("schedulers",),
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _where(self) -> "EngineShape":
        for key, types in OF_SLURM.items():
            if getattr(self, key) and self.type not in types:
                message = f"is given, and an engine of type {self.type} has no such"
                raise Amiss(message, f"type: {types[0]}", at=(key,))
        of_slurm = self.type in (EngineType.SLURM, EngineType.PILOT)
        if of_slurm and not self.partition:
            raise Amiss(
                "is missing", "name the partition: `sinfo` lists them", at=("partition",)
            )
        if not of_slurm and self.partition:
            owner = "this machine" if self.type is EngineType.LOCAL else "Kubernetes"
            raise Amiss(f"is given, and {owner} has none", "type: slurm", at=("partition",))
        if self.type is not EngineType.KUBERNETES:
            for key in OF_KUBERNETES:
                if getattr(self, key):
                    raise Amiss("is for engines of Kubernetes", "type: kubernetes", at=(key,))
        return self


SHORTEST_FENCE_MS = 5 * 60 * 1000

OF_SLURM = {
    "accounts": (EngineType.SLURM,),
    "qos": (EngineType.SLURM,),
    "rest": (EngineType.SLURM,),
    "reservation": (EngineType.SLURM, EngineType.PILOT),
    "folder": (EngineType.PILOT,),
    "apptainer": (EngineType.SLURM,),
}
"""Which engines have some keys."""
OF_KUBERNETES = (
    "kubeconfig", "context", "namespace", "image", "volumes", "force_after", "fence_after",
    "namespaces", "schedulers", "visible", "tenant_namespaces", "labels", "shared",
)  # fmt: skip


class NodeShape(Shape):
    """A machine, or several that are alike but for their names."""

    name: NodeNameOrNone = Field("", examples=["n1"])
    names: list[NodeName] = Field(default=[], examples=["[n1, n2]"])
    cpu: Cpu = Field(examples=["8"])
    memory: Size = Field(examples=["32GiB"])
    disk: SizeOrNone = 0
    gpu: Gpus = Field(default=[], examples=["{type: A100-80G, count: 4, memory: 80GiB}"])
    arch: Annotated[Arch, PlainValidator(read_host_arch)] = Arch.X86_64
    address: Word = "127.0.0.1"
    labels: dict[Name, Line] = Field(default={}, examples=["{rack: r1}"])
    nics: list[NicShape] = Field(default=[], examples=["[{name: mlx5_0, near: [0, 1]}]"])
    engine: NameOrNone = Field(default="", examples=["gpus"])

    @model_validator(mode="after")
    def _called_once(self) -> "NodeShape":
        if not self.name and not self.names:
            raise Amiss("is missing", "add name: n1", at=("name",))
        if self.name and self.names:
            raise Amiss("is given beside `name`", "name one machine or several", at=("names",))
        return self


class VirtualGpusShape(Shape):
    """Devices to pretend, on a machine that has none."""

    type: Word = "virtual"
    count: Annotated[int, PlainValidator(read_gpu_count)] = Field(examples=["8"])
    memory: SizeOrNone = 0


class GuaranteedShape(Shape):
    """A tenant's share; what is None follows in proportion."""

    gpu: Gpu | None = None
    cpu: Annotated[int, PlainValidator(read_cpu_or_none)] | None = None
    memory: SizeOrNone | None = None
    disk: SizeOrNone | None = None
    gpu_memory: SizeOrNone | None = None


class UserCapShape(Shape):
    """What one user of a tenant may hold at once; what is left out is not capped."""

    gpu: Gpu | None = None
    cpu: Cpu | None = None
    memory: Size | None = None
    disk: Size | None = None
    gpu_memory: Size | None = None

    @model_validator(mode="after")
    def _more_than_nothing(self) -> "UserCapShape":
        if self.gpu == 0:
            raise Amiss("0 is not a cap", "leave it out, or give at least 1", at=("gpu",))
        return self


class TenantChangeShape(PeriodShape):
    """What a tenant is guaranteed for some time."""

    guaranteed: GuaranteedShape = Field(default=GuaranteedShape(), examples=["{gpu: 4}"])
    cells: dict[Word, ShareCount] = Field(default={}, examples=["{v100-node: 8}"])
    borrow: Truth = True
    weight: Weight = 1000
    per_user: UserCapShape = Field(default=UserCapShape(), examples=["{gpu: 8}"])


class QueueChangeShape(PeriodShape):
    """What a queue is guaranteed, and may use, for some time."""

    guaranteed: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 4}"])
    soft_limit: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 6}"])
    limit: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 8}"])
    lend: Truth = True
    borrow: Truth = True
    weight: Weight = 1000
    max_jobs: MostJobsOrNone = Field(default=None, examples=["10"])
    per_user: CapShape = Field(default=CapShape(), examples=["{gpu: 2}"])
    per_group: CapShape = Field(default=CapShape(), examples=["{gpu: 4}"])


SHORTEST_SLICE_MS = 1_000
AUTO_SLICE = Millis(-1)
"""In place of a length: as long as the suspensions of each gang are worth."""
LEAST_AUTO = Millis(60_000)
"""Slices are then at least so long."""


class QueueShape(Shape):
    """Where jobs line up, or a queue of such queues."""

    order: Annotated[QueueOrder, PlainValidator(read_order)] = QueueOrder.STRICT
    rank: Annotated[RankBy, PlainValidator(read_rank)] = RankBy.SUBMITTED
    share: Share = ShareBy.FIRST_COME
    weight: Weight = 1000
    parent: NameOrNone = Field(default="", examples=["research"])
    state: State = QueueState.OPEN
    guaranteed: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 4}"])
    soft_limit: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 6}"])
    limit: AmountsShape = Field(default=AmountsShape(), examples=["{gpu: 8}"])
    lend: Truth = True
    borrow: Truth = True
    overtaken: Overtaken | None = Field(default=None, examples=["10"])
    max_jobs: MostJobs | None = Field(default=None, examples=["10"])
    max_waiting: MostJobs | None = Field(default=None, examples=["100"])
    per_user: CapShape = Field(default=CapShape(), examples=["{gpu: 2}"])
    per_group: CapShape = Field(default=CapShape(), examples=["{gpu: 4}"])
    time_slice: Annotated[Millis | None, PlainValidator(read_slice)] = Field(
        default=None, examples=["60s", "auto"]
    )
    affinity: Truth = False
    migrate: Truth = False
    grow: Duration | None = Field(default=None, examples=["5min"])
    pack: Truth = False
    changes: list[QueueChangeShape] = Field(
        default=[], examples=["[{until: 2026-12-15, limit: {gpu: 8}}]"]
    )
    queues: "Queues" = Field(default={}, examples=["{train: {order: skip}}"])

    @property
    def slice_ms(self) -> Millis:
        """Return how long slices are, at least; 0 for no turns."""
        return LEAST_AUTO if self.time_slice == AUTO_SLICE else self.time_slice or Millis(0)

    @model_validator(mode="after")
    def _sliced(self) -> "QueueShape":
        if self.grow is not None and self.grow < SHORTEST_SLICE_MS:
            raise Amiss("is too short", "write 1s or more; 5min is usual", ("grow",))
        if self.time_slice is None and self.pack:
            hint = "add time_slice: auto; gangs that take turns are the ones that are packed"
            raise Amiss("has no effect without time_slice", hint, ("pack",))
        if self.time_slice is None:
            return self
        if self.slice_ms < SHORTEST_SLICE_MS:
            raise Amiss("is too short", "write 1s or more, or auto", ("time_slice",))
        if self.rank not in (RankBy.SUBMITTED, RankBy.ROUND_ROBIN):
            hint = "take it out: jobs that take turns come in the order of their turns"
            raise Amiss("cannot be used with time_slice", hint, ("rank",))
        return self


Queues = dict[Name, Annotated[QueueShape, BeforeValidator(_empty_map)]]
QueueShape.model_rebuild()


class TenantShape(Shape):
    """A group with a guaranteed share."""

    guaranteed: GuaranteedShape = Field(default=GuaranteedShape(), examples=["{gpu: 4}"])
    users: list[User] = Field(default=[], examples=["[alice]"])
    groups: list[User] = Field(default=[], examples=["[vision]"])
    images: Annotated[list[Image], BeforeValidator(_not_empty)] = Field(
        default=[], examples=['["registry.example.org/vision/*"]']
    )
    borrow: Truth = True
    cells: dict[Word, ShareCount] = Field(default={}, examples=["{v100-node: 8}"])
    pins: list[Name] = Field(default=[], examples=["[vision-own]"])
    preempt: Annotated[Preempt, PlainValidator(read_preempt)] = Preempt.NONE
    on_eviction: GiveWayWord = GiveWay.REQUEUE
    preempt_rules: PreemptRulesShape | None = Field(
        default=None, examples=["{min_run: 10m, evictions: 20}"]
    )
    per_user: UserCapShape = Field(default=UserCapShape(), examples=["{gpu: 8}"])
    share: Share = ShareBy.FIRST_COME
    weight: Weight = 1000
    budgets: list[BudgetShape] = Field(default=[], examples=["[{every: month, hard: 5000}]"])
    objectives: ObjectivesShape = Field(
        default=ObjectivesShape(), examples=["{wait_within_guarantee: 10min}"]
    )
    changes: list[TenantChangeShape] = Field(
        default=[], examples=["[{from: 2026-12-01, guaranteed: {gpu: 8}}]"]
    )
    queues: Annotated[Queues, BeforeValidator(_not_empty)] = Field(
        default={"default": QueueShape()}, examples=["{default: {order: strict}}"]
    )


class BackoffShape(Shape):
    """The wait before a retry: doubled each time, from `first` to `most`."""

    first: Duration = Millis(LIMITS.backoff_first_ms)
    most: Duration = Millis(LIMITS.backoff_most_ms)

    @model_validator(mode="after")
    def _grows(self) -> "BackoffShape":
        if self.first > self.most:
            raise Amiss("is more than `most`", "make it the smaller of the two", at=("first",))
        return self


class PerUserShape(Shape):
    """What of the service one user may use at once."""

    requests: MostJobs = LIMITS.per_user.requests
    streams: MostJobs = LIMITS.per_user.streams
    execs: MostJobs = LIMITS.per_user.execs
    jobs: MostJobs = LIMITS.per_user.jobs


class LimitsShape(Shape):
    """Cluster-wide limits."""

    platform_retries: Retry = LIMITS.platform_retries
    backoff: BackoffShape = Field(default=BackoffShape(), examples=["{first: 1s, most: 5m}"])
    phase: Duration = Millis(LIMITS.phase_ms)
    barrier: Duration = Millis(LIMITS.barrier_ms)
    keep_finished: Annotated[int, PlainValidator(read_kept)] = LIMITS.keep_finished
    keep_history: Duration = Millis(LIMITS.keep_history_ms)
    task_log: Size = LIMITS.task_log_bytes
    task_pids: Annotated[int, PlainValidator(read_pids)] = LIMITS.task_pids
    image_store: Size = LIMITS.image_store
    pull: Duration = Millis(LIMITS.pull_ms)
    code_files: MostJobs = LIMITS.code_files
    code_bytes: Size = LIMITS.code_bytes
    code_store: Size = LIMITS.code_store
    environment_store: Size = LIMITS.environment_store
    data_store: Size = LIMITS.data_store
    data_files: MostJobs = LIMITS.data_files
    data_cache: Size = LIMITS.data_cache
    ports: Annotated[tuple[int, int], PlainValidator(read_port_range)] = LIMITS.ports
    preempt_rules: PreemptRulesShape = Field(
        default=PreemptRulesShape(), examples=["{min_run: 10m}"]
    )
    half_life: Annotated[Millis, PlainValidator(read_half_life)] = Millis(LIMITS.half_life_ms)
    predict: Annotated[int, PlainValidator(read_predict)] = LIMITS.predict_milli
    breaker: Annotated[int, PlainValidator(read_breaker)] = Field(
        default=LIMITS.breaker_ppm, examples=["10%"]
    )
    per_user: PerUserShape = Field(default=PerUserShape(), examples=["{jobs: 5000}"])


class ConfigShape(Shape):
    """The cluster as its administrator describes it."""

    engines: dict[Name, EngineShape] = Field(
        default={}, examples=["{here: {type: local}, gpus: {type: slurm, partition: main}}"]
    )
    nodes: Annotated[list[NodeShape], BeforeValidator(_not_empty)] | None = Field(
        default=None, examples=["[{name: n1, cpu: 8, memory: 32GiB}]"]
    )
    virtual_gpus: VirtualGpusShape | None = Field(default=None, examples=["{count: 8}"])
    hardware: list[Word] = Field(default=[], examples=["[64 x dgx-a100 in racks of 4]"])
    cells: CellsShape = CellsShape()
    tenants: Annotated[
        dict[Name, Annotated[TenantShape, BeforeValidator(_empty_map)]],
        BeforeValidator(_not_empty),
    ] = Field(examples=["{vision: {guaranteed: {gpu: 4}}}"])
    default_tenant: NameOrNone = ""
    share: Share = ShareBy.FIRST_COME
    visibility: Annotated[Visibility, PlainValidator(read_visibility)] = Visibility.PRIVATE
    limits: LimitsShape = Field(default=LimitsShape(), examples=["{task_log: 64MiB}"])
    pools: dict[Name, PoolShape] = Field(
        default={}, examples=["{h100: {price: 32.77, most: 20}}"]
    )
    mlflow: MlflowShape | None = Field(
        default=None, examples=["{url: https://mlflow.example.org}", "{start: true}"]
    )
    pythons: PythonsWord = Field(
        default="", examples=["https://pythons.example.org", "file:///srv/pythons/list.json"]
    )
