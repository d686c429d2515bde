"""The tenants that share the cluster, and what each is guaranteed."""

from enum import StrEnum

import msgspec

from allotment.model.amounts import NO_AMOUNTS, Amounts
from allotment.model.budget import FOREVER, Budget
from allotment.model.cells import CellShare, Topology
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup
from allotment.model.image_rules import ImageRule
from allotment.model.objectives import NO_OBJECTIVES, Objectives
from allotment.model.pools import Pool
from allotment.model.quantity import DAY, HOUR, NOTHING, Millis, Resources, WallTime
from allotment.model.spec import GiveWay
from allotment.model.tracking import MlflowSetup


class QueueOrder(StrEnum):
    """Whether a job that cannot start holds up those behind it in its queue."""

    STRICT = "strict"
    SKIP = "skip"
    EASY = "easy"
    """Others may pass it as long as, by what is known of run times, it starts no later."""
    CONSERVATIVE = "conservative"
    """So, and no other job that waits before them starts later than planned."""


class ShareBy(StrEnum):
    """Which claimant comes next: a tenant, a queue or a user."""

    FIRST_COME = "first_come"
    """The one that asked first."""
    MAX_MIN = "max_min"
    """The one with the fewest devices."""
    DRF = "drf"
    """The one with the smallest dominant share."""
    FAIR_SHARE = "fair_share"
    """The one that has used least recently."""


class RankBy(StrEnum):
    """In what order the jobs of a queue come, before any overtakes another."""

    SUBMITTED = "submitted"
    """Higher priority first, then earlier submission."""
    SHORTEST = "shortest"
    """The shortest first, by what is known of run times."""
    LEAST_ATTAINED = "least_attained"
    """The job that has had the least device-time."""
    DEADLINE = "deadline"
    """The job with the nearest deadline."""
    ROUND_ROBIN = "round_robin"
    """Higher priority first, then whichever has waited longest since it last ran."""


class QueueState(StrEnum):
    """What a queue, and all in it, takes and starts."""

    OPEN = "open"
    CLOSED = "closed"
    """It refuses new jobs; what is in it goes on."""
    DRAINING = "draining"
    """It refuses new jobs, and is to be empty soon; what is in it goes on."""
    STOPPED = "stopped"
    """It refuses new jobs and starts none; what runs goes on."""


class Terms(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a queue and the other queues of its tenant owe each other."""

    guaranteed: Amounts = NO_AMOUNTS
    """What of its tenant's guarantee is its own; of a part that is not named, nothing."""
    soft_limit: Amounts = NO_AMOUNTS
    """Beyond this it goes only while no other queue waits below its own."""
    lend: bool = True
    """May other queues of the tenant use what of its guarantee it does not?"""
    borrow: bool = True
    """May its jobs hold more than it is guaranteed?"""
    overtaken: int = 0
    """How many that came after it may start before a job; 0 sets no bound."""


NO_TERMS = Terms()


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a tenant's jobs line up: in the leaves of a tree.

    `name` is the whole path, with dots between its parts: `research.train`.
    """

    name: str
    order: QueueOrder = QueueOrder.STRICT
    rank: RankBy = RankBy.SUBMITTED
    share: ShareBy = ShareBy.FIRST_COME
    """Which of its users comes next."""
    weight_milli: int = 1000
    """How much it counts for among the queues of its tenant, in thousandths."""
    parent: str = ""
    """The queue around it, by its whole path; '' stands for the tenant itself."""
    state: QueueState = QueueState.OPEN
    terms: Terms = NO_TERMS
    """What it and the other queues of its tenant owe each other."""
    limit: Amounts = NO_AMOUNTS
    """What its jobs may hold at once, by any entitlement; what is not named has no limit."""
    max_jobs: int | None = None
    """Jobs of it that may hold a place at once."""
    max_waiting: int | None = None
    """Jobs of it that may wait; more are refused."""
    per_user: Amounts = NO_AMOUNTS
    """What the jobs of one user may hold in it at once."""
    per_group: Amounts = NO_AMOUNTS
    """What the jobs of one group may hold in it at once."""
    time_slice_ms: Millis = Millis(0)
    """For how long its gangs run before others of it may have their turn; 0 for no turns."""
    slices_by_cost: bool = False
    """Whether that is the least: a gang whose suspension takes long runs for longer."""
    migrates: bool = False
    """Whether its running gangs go to better places when these become free."""
    grow_ms: Millis = Millis(0)
    """For how long devices are idle before its elastic gangs grow onto them; 0 for never."""
    packs: bool = False
    """Whether gangs that take turns on devices may run there at once, where they gain by it."""
    by_affinity: bool = False
    """Whether its gangs go to nodes with gangs of their own size, if they can."""

    @property
    def guaranteed(self) -> Amounts:
        """Return what of its tenant's guarantee is its own."""
        return self.terms.guaranteed


class Preempt(StrEnum):
    """How a tenant's job of higher priority gets room that one of lower priority has."""

    NONE = "none"
    """It waits."""
    EVICT = "evict"
    """The other is evicted, as a whole."""
    DEMOTE = "demote"
    """The other loses its guarantee and runs on as a borrower; evicted only if it must."""


class PreemptRules(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What protects running jobs from more urgent ones of their own tenant; 0 sets no bound.

    None of it protects a borrower from a tenant that reclaims its guarantee.
    """

    min_run_ms: Millis = Millis(0)
    """How long a job keeps its share once it runs, in any case."""
    evictions: int = 0
    """How many jobs may lose their share within `per_ms`."""
    lost_device_ms: int = 0
    """How much unsaved work, in device-time, may be lost within `per_ms`."""
    per_ms: Millis = Millis(HOUR)
    starved_ms: Millis = Millis(0)
    """A job that waited so long takes from one of its priority that ran as long; 0: never."""
    short_ms: Millis = Millis(0)
    """A job with at most this `max_run_time` takes from longer ones of its priority; 0: off."""

    @property
    def lenient(self) -> bool:
        """Whether a job may take from one of its own priority at all."""
        return self.starved_ms > 0 or self.short_ms > 0

    @property
    def bounded(self) -> bool:
        """Whether there is a budget at all."""
        return self.evictions > 0 or self.lost_device_ms > 0


class Tenant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group with a guaranteed share: a counted vector, and where there is a topology, cells.

    With cells, `guaranteed` is what they hold in sum. `users` and `groups` say who may
    submit; both empty means everybody.
    """

    name: str
    guaranteed: Resources = NOTHING
    queues: tuple[Queue, ...] = (Queue("default"),)
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    borrow: bool = True
    """May its jobs use what other tenants leave idle?"""
    cells: tuple[CellShare, ...] = ()
    pins: tuple[str, ...] = ()
    """Pinned cells that are its own, by id."""
    preempt: Preempt = Preempt.NONE
    """What its more urgent jobs may do to less urgent ones of its own."""
    per_user: Resources = NOTHING
    """What one user may hold at once, guaranteed and borrowed together; 0 means no cap."""
    share: ShareBy = ShareBy.FIRST_COME
    """Which of its queues comes next."""
    weight_milli: int = 1000
    """How much it counts for among the tenants, in thousandths."""
    objectives: Objectives = NO_OBJECTIVES
    """Its service objectives: they are measured, and change no decision."""
    budgets: tuple[Budget, ...] = ()
    """GPU-hours that its jobs may use in a stretch of time."""
    preempt_rules: PreemptRules = PreemptRules()
    on_eviction: GiveWay = GiveWay.REQUEUE
    """What becomes of its jobs that must go, where they do not say it themselves."""
    images: tuple[ImageRule, ...] = ()
    """Which images its jobs may name; empty for all."""

    def queue(self, name: str) -> Queue | None:
        """Return a queue by its whole path."""
        return next((queue for queue in self.queues if queue.name == name), None)


class PerUser(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What of the service one user may use at once."""

    requests: int = 16
    """Requests that are worked on; nine times as many may wait for their turn."""
    streams: int = 128
    """Followed logs and events, and files on their way."""
    execs: int = 16
    """Commands inside running tasks."""
    jobs: int = 25_000
    """Jobs that are not over, waiting or running."""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Cluster-wide limits and lengths of time, in milliseconds unless named otherwise."""

    platform_retries: int = 10
    backoff_first_ms: int = 1_000
    backoff_most_ms: int = 300_000
    phase_ms: int = 60_000
    """How long any phase of starting may take; -1 for ever."""
    barrier_ms: int = 120_000
    keep_finished: int = 1_000
    """Finished jobs kept in memory before the oldest are archived."""
    keep_history_ms: int = 90 * DAY
    """How long archived jobs, their events, logs and outputs of ours are kept."""
    task_log_bytes: int = 64 << 20
    task_pids: int = 1_024
    ports: tuple[int, int] = (20_000, 32_000)
    """Half-open range from which attempts get theirs; (0, 0) gives none."""
    half_life_ms: int = 7 * DAY
    """The time in which half of past use is forgotten, where past use counts."""
    predict_milli: int = 1_250
    """Run times without a limit are predicted as so much of earlier ones; 0: no prediction."""
    breaker_ppm: int = 100_000
    """What share of each type of device automatic means may take out of use, in millionths."""
    per_user: PerUser = PerUser()
    image_store: int = 50 << 30
    """Bytes of unpacked images that a machine keeps for the next task."""
    pull_ms: int = HOUR
    """How much longer an attempt with an image may take to start."""
    code_files: int = 20_000
    """How many files a job may take along as its code."""
    code_bytes: int = 256 << 20
    """And how large they may be in all."""
    code_store: int = 4 << 30
    """How much of the disk the code of one user may take."""
    environment_store: int = 50 << 30
    """Bytes of environments that a machine keeps for the next task."""
    data_store: int = 100 << 30
    """How much of the disk the managed datasets of one tenant may take."""
    data_files: int = 200_000
    """How many files one version of a dataset may have."""
    data_cache: int = 100 << 30
    """Bytes from object stores that a machine keeps for the next task."""


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tenant is guaranteed, as a whole, and what of it one user may hold."""

    guaranteed: Resources = NOTHING
    cells: tuple[CellShare, ...] = ()
    borrow: bool = True
    weight_milli: int = 1000
    per_user: Resources | None = None
    """What one user may hold then; None where that is as always."""


class DatedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds of a tenant, or of one of its queues, from `begin` until before `end`."""

    tenant: str
    begin: WallTime = WallTime(0)
    end: WallTime = FOREVER
    share: Share | None = None
    """What the tenant is guaranteed then; None where it is a queue that changes."""
    queue: Queue | None = None
    """What the queue is then, in place of that of the same name."""


class Visibility(StrEnum):
    """What of a job others than its owner and the administrators may see."""

    PRIVATE = "private"
    """That it is there, what it asks for, where it stands and why; not what it runs."""
    OPEN = "open"
    """All of it but its secrets: its commands, environment and output too."""


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster as its administrator describes it: one value, replaced as a whole."""

    nodes: tuple[Node, ...]
    tenants: tuple[Tenant, ...]
    limits: Limits = Limits()
    default_tenant: str = ""
    topology: Topology = Topology()
    share: ShareBy = ShareBy.FIRST_COME
    """Which tenant comes next, first of all in what it is guaranteed, then in what is idle."""
    changes: tuple[DatedChange, ...] = ()
    """What differs at some time; of one tenant or queue only one at a time."""
    written: tuple[Tenant, ...] = ()
    """The tenants as they are without changes, while `tenants` are changed; else empty."""
    visibility: Visibility = Visibility.PRIVATE
    engines: tuple[EngineSetup, ...] = ()
    """What runs the nodes; empty where the service was started with its only one."""
    mlflow: MlflowSetup | None = None
    """Where experiments are tracked; None where nowhere."""
    pools: tuple[Pool, ...] = ()
    """What is known of pools of nodes besides what their nodes show."""
    pythons: str = ""
    """Where Pythons are fetched from that the machine does not have; '' where none are."""
