"""What a user asked for. Values only; how they are written down is `wire`'s business."""

from enum import StrEnum
from typing import Final

import msgspec

from allotment.model.code import CodeBundle
from allotment.model.data_use import DataUse
from allotment.model.environment import Environment
from allotment.model.ids import JobId
from allotment.model.quantity import MIB, NOTHING, SECOND, Millis, Resources

NEVER: Millis = Millis(-1)
"""A time limit that never strikes."""

MOST_WEIGHT = 10
"""Of a job among those with which it takes turns."""
WITHHELD = "***"
"""Stands for a secret that is not shown, or not there. No secret may be this."""


class Priority:
    """Bounds of a job's priority; higher goes first."""

    LOWEST = 0
    NORMAL = 100
    HIGHEST = 1000


class Arch(StrEnum):
    """Host architecture a task needs."""

    ANY = "any"
    X86_64 = "x86_64"
    ARM64 = "arm64"


ANY_ARCH: Final = Arch.ANY


class Completion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When a role decides its job: how many of its tasks must fail, or succeed.

    `min_failed` tasks failing ends the attempt as failed; `min_succeeded` tasks
    succeeding ends it as succeeded; None means all of them.
    """

    min_failed: int = 1
    min_succeeded: int | None = None


USUAL = Resources(cpu_milli=1000, memory=512 * MIB)
"""What a task gets at most of what its owner does not name."""


class Port(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Ports a task wants: `count` of them, from `begin` on, or chosen for it when 0."""

    label: str
    begin: int = 0
    count: int = 1


class TaskRole(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, cache_hash=True):
    """A template for `count` alike tasks; or, with `least`, for between that and `count`.

    `resources.gpu_memory` is bytes on each device. `gpu_types` lists acceptable device
    types, best first; empty means any. A `command` is a shell line or an argument list.
    """

    name: str
    count: int
    command: str | tuple[str, ...]
    resources: Resources = NOTHING
    gpu_types: tuple[str, ...] = ()
    arch: Arch = Arch.ANY
    ports: tuple[Port, ...] = ()
    retry: int | None = None
    """Overrides the job's retry count when this role is the one that failed."""
    completion: Completion = Completion()
    group: int = 0
    """Tasks that must lie together, in rank order; 0 when it does not matter."""
    group_within: str = ""
    """The level of which one region must hold each group."""
    least: int = 0
    """It starts with as few tasks as this; 0 where it needs all of them."""
    elastic: bool = False
    """It can go on with fewer tasks than it started with, down to `least`."""
    by_default: tuple[str, ...] = ()
    """Parts of `resources`, of `USUAL`, that its owner did not name: they were chosen here."""

    @property
    def needed(self) -> int:
        """Return how many tasks there must be room for before any starts."""
        return self.least or self.count

    @property
    def step(self) -> int:
        """Return by how many tasks it may be larger or smaller: groups stay whole."""
        return self.group or 1


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a job saves its progress.

    `signal` warns it before it is stopped; it then has `grace_ms` to save and end.
    `every_ms` of 0 leaves the rhythm to the job. `keep` old checkpoints stay. Each that it
    reports becomes a version of the dataset `save`, where one is named. `driver` lets the GPU's
    driver take its device memory while it is suspended: should that go wrong, it is started
    again from its last checkpoint.
    """

    dir: str = ""
    every_ms: Millis = Millis(0)
    keep: int = 2
    signal: str = "TERM"
    grace_ms: Millis = Millis(10 * SECOND)
    save: str = ""
    driver: bool = False


class EndKind(StrEnum):
    """How a dependency must have ended."""

    SUCCESS = "success"
    ANY = "any"


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Start only after another job ended."""

    job: JobId
    end: EndKind = EndKind.SUCCESS
    any_of: int = 0
    """Those of one job with the same number are a choice: one is enough; 0: no choice."""
    ref: str = ""
    """A name, an array or a part of one, as its user wrote it; a submission puts ids in its
    place, so nothing that was accepted has any."""

    def met_by(self, succeeded: bool) -> bool:
        """Whether the end of its job is what it waits for."""
        return succeeded or self.end is EndKind.ANY


class ArraySlice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """This job's place in an array. `parent` is the first job's id, 0 before it is minted."""

    index: int
    size: int
    parent: JobId
    max_running: int = 0
    """How many of the array may run at a time; 0 means no cap."""
    members: int = 0
    """How many jobs it has, where it repeats only some of the indices; 0: all `size`."""
    params: tuple[tuple[str, str], ...] = ()
    """Where it is of a grid or a sweep: this job's values."""
    metric: str = ""
    """Where it is a trial of a sweep: the name of what it is compared by."""
    rungs: tuple[int, ...] = ()
    """The steps at which it is compared."""

    @property
    def jobs(self) -> int:
        """Return how many jobs the array has: their ids follow on `parent`."""
        return self.members or self.size


class GiveWay(StrEnum):
    """What becomes of a job that has to leave its place."""

    AS_TENANT = ""
    """As its tenant has it."""
    REQUEUE = "requeue"
    """It is warned, may save a checkpoint, ends, and stands in line again."""
    SUSPEND = "suspend"
    """It is frozen where it is, keeps its memory, and goes on once its devices are free."""
    CANCEL = "cancel"
    """It is warned, ends, and is over."""
    MIGRATE = "migrate"
    """It is warned, ends, and goes on elsewhere at once, if something is idle."""


SUSPEND: Final = GiveWay.SUSPEND


class Dialect(StrEnum):
    """The form a job was written in: decides which extra variables its tasks get."""

    NATIVE = "native"
    CLASSIC = "classic"
    SLURM = "slurm"
    LSF = "lsf"
    PYTORCH_JOB = "pytorchjob"
    TF_JOB = "tfjob"
    MPI_JOB = "mpijob"
    BATCH_JOB = "k8s-job"
    """Kubernetes' own."""
    TRAIN_JOB = "trainjob"
    JOB_SET = "jobset"
    FRAMEWORK = "framework"
    """FrameworkController's."""


MPI_SLOTS = "OMPI_MCA_orte_set_default_slots"
"""The variable with which an MPIJob says how many ranks a worker has."""
MPI_WAITS = ("sleep", "infinity")
"""What a worker of an MPIJob does by itself, until its launcher has ended."""
MPI_PORT = "mpi"
"""The label of the port that such a worker has for those who start ranks in it."""

SET_JOBS = "JOBSET_REPLICAS"
"""The variable with which a JobSet says how many Jobs each of its roles is made of."""


class Mpi(StrEnum):
    """Who starts the ranks of a job with MPI, and tells them of each other."""

    NONE = ""
    """It has none, or its command sees to that."""
    PMIX = "pmix"
    """Its tasks are the ranks, and the engine tells them of each other by PMIx."""
    PMI2 = "pmi2"
    """The same by PMI-2, which also speaks PMI-1."""
    MPIRUN = "mpirun"
    """Its first task starts the ranks, in the tasks that the host file lists."""

    @property
    def by_engine(self) -> bool:
        """Whether the tasks are the ranks, and the engine starts all of them together."""
        return self in (Mpi.PMIX, Mpi.PMI2)


REQUEUE_CODE = 121
"""A batch script that asked to be queued again ends with this exit code."""


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a script runs that was written for a batch system: once, for all of its job.

    The script is the command of the only role, and holds what all its tasks need. `tasks` is
    how many processes a launcher in it (`srun`) starts. `output`, `error` and `input` are
    patterns of file names (`%j`); without `error` both streams go to `output`.
    """

    tasks: int = 1
    args: tuple[str, ...] = ()
    output: str = ""
    error: str = ""
    input: str = ""
    append: bool = False
    """Whether the files of an earlier attempt are continued, not written anew."""
    warn_ms: Millis = Millis(0)
    """So long before the time limit it gets the signal of its checkpoint; 0: never."""
    warn_script: bool = False
    """Whether that signal is for the script itself, not for what its launcher started."""
    requeue_on: tuple[int, ...] = ()
    """Exit codes with which it asks to be queued again."""
    variables: tuple[tuple[str, str], ...] = ()
    """What its batch system would tell it, as far as it is known when it is submitted."""


class Offered(msgspec.Struct, frozen=True, gc=False):
    """What others made for a task to be: its engine only puts it in its place."""

    name: str
    """As its engine names it: `team-a/train-0`."""
    uid: str
    """What differs from others of that name, earlier or later."""


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job as its user described it. Limits are `NEVER` where there is none.

    All tasks of all roles form one gang: none starts unless all can. Only the last role may
    have a `least`, so that a gang of fewer tasks has no gaps in its ranks.
    """

    name: str
    tenant: str
    roles: tuple[TaskRole, ...]
    queue: str = "default"
    priority: int = Priority.NORMAL
    image: str = ""
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()
    """Environment whose values are never shown, logged or returned; or `WITHHELD`."""
    workdir: str = ""
    data_dir: str = ""
    code_dir: str = ""
    output_dir: str = ""
    retry: int = 0
    max_run_ms: Millis = NEVER
    max_queue_ms: Millis = NEVER
    checkpoint: Checkpoint | None = None
    depends_on: tuple[Dependency, ...] = ()
    array: ArraySlice | None = None
    hold_on_failure_ms: Millis = Millis(0)
    preemptible: bool = True
    """May use idle resources beyond its tenant's guarantee, and be evicted from them."""
    within: str = ""
    """The level (`node`, or a label of nodes) of which one region must hold all its tasks."""
    prefer: str = ""
    """The level of which one region should hold them, if that is possible at once."""
    dialect: Dialect = Dialect.NATIVE
    pin: str = ""
    """The pinned cell of its tenant's that must hold it; '' keeps it out of all of them."""
    opportunistic: bool = False
    """Never uses its tenant's guarantee: it runs on what is idle, or waits."""
    deadline_ms: Millis = NEVER
    """How long after its submission it should have ended, where its queue goes by that."""
    on_eviction: GiveWay = GiveWay.AS_TENANT
    labels: tuple[tuple[str, str], ...] = ()
    """What people find it by; nothing is scheduled by them."""
    batch: Batch | None = None
    """How its command runs where that is a script of a batch system."""
    engine: str = ""
    """The engine to run on; '' for whichever, but one for all its tasks; or ANY_ENGINE."""
    mpi: Mpi = Mpi.NONE
    offered: tuple[Offered, ...] = ()
    """What others made on its engine, one for each task; () where the engine makes it."""
    code: CodeBundle | None = None
    """The code that it takes along; None where it uses folders of the machine."""
    environment: Environment | None = None
    """The Python packages that it asks for."""
    data: tuple[DataUse, ...] = ()
    """The datasets that it uses, each mounted at a path of its own."""
    save: str = ""
    """The dataset of which its outputs become a version, once it succeeded; '' for none."""
    weight: int = 1
    """How many time slices its turn is long, in a queue that has them: 1 to `MOST_WEIGHT`."""

    @property
    def family(self) -> str:
        """Return its name without its index, where it is one of an array."""
        return self.name.removesuffix(f".{self.array.index}") if self.array else self.name

    @property
    def makes_versions(self) -> bool:
        """Whether its outputs or its checkpoints become versions of a dataset."""
        return bool(self.save or (self.checkpoint is not None and self.checkpoint.save))

    @property
    def withheld(self) -> tuple[str, ...]:
        """Name the secrets that are not there: a backup was restored that left them out."""
        return tuple(name for name, value in self.secrets if value == WITHHELD)

    @property
    def task_count(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def least_count(self) -> int:
        """Return how many tasks there must be room for before any starts."""
        return self.task_count - self.roles[-1].count + self.roles[-1].needed

    def sized(self, tasks: int) -> "JobSpec":
        """Return same job with just so many tasks, as if it had asked for no other number."""
        last = self.roles[-1]
        if not last.least:
            return self
        count = last.count - (self.task_count - tasks)
        role = msgspec.structs.replace(last, count=count, least=0, elastic=False)
        return msgspec.structs.replace(self, roles=(*self.roles[:-1], role))

    def role_of(self, index: int) -> tuple[TaskRole, int]:
        """Return the role of the index-th task and its place in that role."""
        for role in self.roles:
            if index < role.count:
                return role, index
            index -= role.count
        raise IndexError(index)

    def total(self) -> Resources:
        """Sum up what the whole gang holds, GPU memory over all its devices."""
        total = NOTHING
        for role in self.roles:
            need = role.resources
            devices = -(-need.gpu_milli // 1000)
            per_task = msgspec.structs.replace(need, gpu_memory=need.gpu_memory * devices)
            total += per_task * role.count
        return total
