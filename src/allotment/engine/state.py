"""The state: what the event log says, kept at hand.

`apply` in engine/apply.py is its only writer. Everything but `jobs`, `config`, `nodes` and
the counters is an index, rebuilt from them when a snapshot is loaded.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import islice

import msgspec
from msgspec.structs import replace

from allotment.core.claimants import Spent
from allotment.core.cluster import Cluster
from allotment.core.disruption import Loss
from allotment.core.gang import Gang, ReservedPlace, Standing, doubled
from allotment.core.guarantee import guarantee_of
from allotment.core.policies import Policies
from allotment.core.request import Shape, fixed, needs_of, shape_of, sized
from allotment.core.reservations import Reservations
from allotment.engine.budgets import Budgets
from allotment.engine.content_book import ContentBook
from allotment.engine.foretelling import Foretelling
from allotment.engine.gauges import gauge_of
from allotment.engine.keeping import kept_by
from allotment.engine.ports_pool import PortPool
from allotment.engine.quantum import pause_of
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.run_history import Runs
from allotment.engine.suspicions import Suspected, Suspicions
from allotment.engine.sweep_records import SweepRecord
from allotment.engine.timers import Timers
from allotment.model.amounts import short, vector_of
from allotment.model.budget import Account
from allotment.model.cluster import NodeState
from allotment.model.content import Content, ContentKind, Held, brought_by
from allotment.model.datasets import Dataset
from allotment.model.dated import in_force, moments
from allotment.model.dependencies import choices
from allotment.model.health import WHOLE, Condition, HardwareHealth, Part
from allotment.model.ids import JobId, NodeId, Seq
from allotment.model.ledger import Entitlement, Quota, Slot
from allotment.model.lifecycle import QUEUED, JobState
from allotment.model.node_runs import NodeRuns
from allotment.model.others import Others
from allotment.model.port_layout import port_count
from allotment.model.quantity import NO_TIME, NOTHING, Instant, Millis, Resources, WallTime
from allotment.model.reservations import Reservation
from allotment.model.spec import NEVER, ArraySlice, Dependency, JobSpec
from allotment.model.tenancy import Config, Preempt

UNKNOWN = Millis(-1)
"""The run time of a job of which none is predicted."""


class SavedPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reserved place as it is kept in a snapshot."""

    job: JobId
    slots: tuple[Slot, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]
    quota: Quota = ()


class Image(msgspec.Struct, omit_defaults=True):
    """The state as one value, for a snapshot: what cannot be derived from anything else."""

    seq: Seq
    at: Instant
    config: Config
    next_job: JobId
    jobs: list[JobRecord]
    nodes: dict[NodeId, tuple[NodeState, str]]
    places: list[SavedPlace] = msgspec.field(name="promises")
    health: list[Condition] = []
    shut_since: dict[NodeId, Instant] = {}
    drains_kept: dict[NodeId, str] = {}
    spent: tuple[Spent, ...] = ()
    reservations: list[Reservation] = msgspec.field(default_factory=list, name="windows")
    accounts: list[Account] = []
    """What was used of budgets."""
    losses: tuple[Loss, ...] = ()
    runs: list[Runs] = []
    """What finished jobs tell of the next ones."""
    overtaken: dict[JobId, int] = {}
    """How often waiting jobs were overtaken, in queues where that is bounded."""
    admitted: list[JobId] = []
    """Members of capped arrays that count against the cap: those waiting or placed."""
    suspected: list[Suspected] = []
    """When hardware was suspected of late."""
    wall_ms: int = 0
    """How far the machine's clock is ahead of the engine's time."""
    clock_set_at: Instant = Instant(0)
    """When it was set last."""
    clock_set_ms: int = 0
    """By how much then."""
    others: dict[NodeId, Others] = {}
    """What others use of nodes beside Allotment."""
    taken: dict[NodeId, tuple[int, ...]] = {}
    """Which of their devices are counted as used by these."""
    next_node: NodeId = NodeId(0)
    """What a node that comes is numbered; older versions went by the configuration."""
    datasets: list[Dataset] = []
    sweeps: list[SweepRecord] = []
    images: dict[str, NodeRuns] = {}
    """Of older snapshots: which nodes have the images that jobs bring."""
    content: list[tuple[Content, Held]] = []
    """Which nodes have what jobs bring."""


class CappedArray:
    """Members of one capped array: those waiting or placed, and those kept out, in order."""

    def __init__(self) -> None:
        self.inside: set[JobId] = set()
        self.outside: dict[JobId, None] = {}


class State:
    """Everything the engine knows, with its indexes."""

    packed: dict[JobId, JobId]
    packed_with: dict[JobId, JobId]
    """Gangs that run beside others, with those that have the devices; and by these."""
    packed_on: dict[NodeId, dict[JobId, int]]
    """How much CPU gangs that run beside others ask for on each node."""
    _shape: tuple[JobSpec, Shape] | None = None
    """Which job was asked for its shape last, and that."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.seq = Seq(0)
        self.at = Instant(0)
        """The time of the newest event: time never goes back."""
        self.config = Config(nodes=(), tenants=())
        self.nodes: dict[NodeId, tuple[NodeState, str]] = {}
        self.shut_since: dict[NodeId, Instant] = {}
        """Since when nodes are drained or lost."""
        self.drains_kept: dict[NodeId, str] = {}
        """Why an administrator drained nodes that are lost now: once back they still are."""
        self.reservations: dict[str, Reservation] = {}
        """The reservations: when nodes are set aside, and for which users."""
        self.datasets: dict[tuple[str, str], Dataset] = {}
        """By tenant and name."""
        self.sweeps: dict[JobId, SweepRecord] = {}
        """By the id of their array, in the order of their submission."""
        self.health: dict[Part, Condition] = {}
        """Parts of the hardware that are suspect or bad, and get no new work."""
        self.others: dict[NodeId, Others] = {}
        """What others use of nodes beside Allotment, where they do."""
        self.taken: dict[NodeId, frozenset[int]] = {}
        """Which of their devices are counted as used by these; `WHOLE` for all of a node."""
        self.content = ContentBook()
        self.doubts: dict[Part, Condition] = {}
        """Parts that something is said against, and that are used as before."""
        self.suspicions = Suspicions()
        self.packed, self.packed_with, self.packed_on = {}, {}, {}
        self.wall_ms = 0
        """How far the machine's clock is ahead of the engine's time: 0 until it is set."""
        self.clock_set_at, self.clock_set_ms = Instant(0), 0
        """When it was set last, and by how much."""
        self.next_job = JobId(1)
        self.next_node = NodeId(0)
        """Above the ids of all nodes there ever were: none is given again."""
        self.jobs: dict[JobId, JobRecord] = {}
        # Indexes.
        self.cluster = Cluster((), (), policies, guarantee_of)
        self.timers = Timers()
        self.ports = PortPool()
        self.keys: dict[tuple[str, str], JobId] = {}
        self.dependents: dict[JobId, set[JobId]] = {}
        self.arrays: dict[JobId, CappedArray] = {}
        """For each capped array, which of it may wait or be placed."""
        self.unfinished = defaultdict[str, int](int)
        """How many jobs of each user are not over."""
        self.unfinished_of = defaultdict[str, int](int)
        """How many jobs of each tenant are not over."""
        self.finished: deque[JobId] = deque()
        self.budgets = Budgets()
        self.foretelling = Foretelling(remembers=policies.predicts)

    def shape_of(self, spec: JobSpec) -> Shape:
        """Return the shape of a job where it does not matter whose it is.

        It is asked when a job is checked, and again when it begins to wait.
        """
        if self._shape is None or self._shape[0] is not spec:
            self._shape = spec, shape_of(spec)
        return self._shape[1]

    # ── questions ───────────────────────────────────────────────────────────────────────

    def eligible(self, job: JobRecord, now: Instant) -> bool:
        """Whether a queued job may wait at `now`."""
        return (
            job.state is QUEUED
            and job.not_before <= now
            and not self.waits_for_others(job)
            and not self.array_full(job)
        )

    def waits_for_others(self, job: JobRecord) -> bool:
        """Whether a job it depends on keeps it from starting."""
        needs = job.spec.depends_on
        if not needs:
            return False
        # Arrays end from their beginning: the last job is the likeliest to be missing.
        if any(not need.any_of and not self.is_met(need) for need in reversed(needs)):
            return True
        return any(need.any_of for need in needs) and bool(self.unmet(job))

    def unmet(self, job: JobRecord) -> list[JobId]:
        """Name the jobs this one still waits for; of a choice, those that may still do."""
        return [
            need.job
            for choice in choices(job.spec.depends_on)
            if not any(map(self.is_met, choice))
            for need in choice
            if len(choice) == 1 or not self.jobs[need.job].state.finished
        ]

    def is_met(self, need: Dependency) -> bool:
        """Whether a job has ended as another needs it."""
        other = self.jobs.get(need.job)
        if other is None:
            return True
        return other.state.finished and need.met_by(other.state is JobState.SUCCEEDED)

    def is_lost(self, need: Dependency) -> bool:
        """Whether a job has ended otherwise than another needs it."""
        other = self.jobs.get(need.job)
        return other is not None and other.state.finished and not self.is_met(need)

    def array_full(self, job: JobRecord) -> bool:
        """Whether the cap of its array keeps this member out of its queue."""
        array = job.spec.array
        if array is None or not array.max_running:
            return False
        line = self.arrays.get(array.parent)
        return (
            line is not None
            and job.id not in line.inside
            and (len(line.inside) >= array.max_running)
        )

    # ── the machine's clock ─────────────────────────────────────────────────────────────

    def wall(self, at: Instant) -> WallTime:
        """Return the time that the machine's clock of today shows, or would have shown."""
        return WallTime(at + self.wall_ms)

    def instant(self, at: WallTime) -> Instant:
        """Return the engine's time of a date."""
        return Instant(at - self.wall_ms)

    def set_clock(self, by_ms: int, now: Instant) -> None:
        """Go by a clock that was set: dates come earlier or later, all else stays."""
        self.wall_ms += by_ms
        self.clock_set_at, self.clock_set_ms = now, by_ms
        self._arm_dates()
        self.budgets.set_clock(self.wall_ms, self.cluster, now)
        if self.reservations:
            self.timers.arm_reservations(self.reservations_in_engine_time())
            self.reservations_changed()

    def reservations_in_engine_time(self) -> list[Reservation]:
        """Return the reservations that are set, with the engine's time in place of dates."""
        return [reservation.moved(-self.wall_ms) for reservation in self.reservations.values()]

    # ── waiting ────────────────────────────────────────────────────────────────────────

    def enqueue(self, job: JobRecord, now: Instant) -> None:
        """Let a job wait in its queue if it may, or arm the timer that lets it."""
        if job.state is not QUEUED or job.id in self.cluster.pending:
            return
        if job.not_before > now:
            self.timers.arm(job.not_before, job.id)
        elif job.spec.depends_on and self.waits_for_others(job):
            return
        elif (array := job.spec.array) is not None and self.array_full(job):
            self.arrays[array.parent].outside[job.id] = None
        else:
            if array is not None:
                self._enter_array(job)
            self.cluster.pending.add(self.standing(job), now)

    def dequeue(self, job: JobRecord, now: Instant) -> None:
        """Take a job out of its queue, and let the next member of its array in."""
        self.cluster.pending.remove(job.id)
        if job.spec.array is not None:
            self.leave_array(job, job.spec.array, now)

    def leave_array(self, job: JobRecord, array: ArraySlice, now: Instant) -> None:
        """Count a member no longer that is not placed any more, and let the next one in."""
        line = self.arrays.get(array.parent)
        if line is None:
            return
        if job.id not in self.cluster.reserved:
            # A gang on its way to its reserved place still counts.
            line.inside.discard(job.id)
        line.outside.pop(job.id, None)
        room = array.max_running - len(line.inside)
        for member in list(islice(line.outside, max(0, room))):
            del line.outside[member]
            self.enqueue(self.jobs[member], now)
        if not line.inside and not line.outside:
            del self.arrays[array.parent]

    def _enter_array(self, job: JobRecord) -> None:
        """Count a member that waits or is placed."""
        array = job.spec.array
        if array is not None and array.max_running:
            line = self.arrays.setdefault(array.parent, CappedArray())
            line.inside.add(job.id)
            line.outside.pop(job.id, None)

    def watch(self, job: JobRecord) -> None:
        """Note whose end this job waits for."""
        for dependency in job.spec.depends_on:
            self.dependents.setdefault(dependency.job, set()).add(job.id)

    def unwatch(self, job: JobRecord) -> None:
        """Forget what `watch` noted."""
        for dependency in job.spec.depends_on:
            self.dependents.get(dependency.job, set()).discard(job.id)

    # ── snapshots ───────────────────────────────────────────────────────────────────────

    def image(self) -> Image:
        """Return the state as one value."""
        return Image(
            seq=self.seq,
            at=self.at,
            config=self.config,
            next_job=self.next_job,
            jobs=[self.jobs[job] for job in sorted(self.jobs)],
            nodes=self.nodes,
            places=[
                SavedPlace(r.job, r.slots, r.entitlement, r.victims, r.quota)
                for _, r in sorted(self.cluster.reserved.items())
            ],
            health=[how for _, how in sorted((self.health | self.doubts).items())],
            shut_since=self.shut_since,
            drains_kept=self.drains_kept,
            accounts=self.budgets.accounts(),
            spent=self._spent(),
            reservations=[self.reservations[name] for name in sorted(self.reservations)],
            losses=self._losses(),
            runs=self.foretelling.history.all(),
            overtaken=self._overtaken(),
            admitted=sorted(job for line in self.arrays.values() for job in line.inside),
            suspected=self.suspicions.all(),
            wall_ms=self.wall_ms,
            clock_set_at=self.clock_set_at,
            clock_set_ms=self.clock_set_ms,
            others=self.others,
            taken={node: tuple(sorted(taken)) for node, taken in self.taken.items()},
            next_node=self.next_node,
            datasets=[self.datasets[key] for key in sorted(self.datasets)],
            sweeps=list(self.sweeps.values()),
            content=list(self.content.held.items()),
        )

    @classmethod
    def from_image(cls, image: Image, policies: Policies) -> "State":
        """Rebuild the state, indexes included. O(jobs)."""
        state = cls(policies)
        state.seq, state.at, state.next_job = image.seq, image.at, image.next_job
        state.nodes, state.shut_since = image.nodes, image.shut_since
        state.drains_kept = image.drains_kept
        state.next_node = image.next_node
        state.wall_ms, state.budgets = image.wall_ms, Budgets(image.wall_ms)
        state.clock_set_at, state.clock_set_ms = image.clock_set_at, image.clock_set_ms
        for condition in image.health:
            state.set_condition(condition.part, condition)
        state.suspicions = Suspicions(image.suspected)
        state.others = image.others
        state.taken = {node: frozenset(taken) for node, taken in image.taken.items()}
        state.reservations = {
            reservation.name: reservation for reservation in image.reservations
        }
        state.timers.arm_reservations(state.reservations_in_engine_time())
        state.datasets = {(each.tenant, each.name): each for each in image.datasets}
        state.sweeps = {sweep.id: sweep for sweep in image.sweeps}
        state.jobs = {job.id: job for job in image.jobs}
        state.foretelling.recall(image.runs, image.jobs)
        state.configure(image.config)
        for job in image.jobs:
            state.index(job)
        state.content.held = dict(image.content)
        for name, runs in image.images.items():
            state.content.note(Content(ContentKind.IMAGE, name), Held(runs))
        state.budgets.restore(image.accounts, state.cluster, state.at)
        if state.cluster.claimants is not None:
            state.cluster.claimants.recall(image.spent, state.at)
        if state.cluster.disruption is not None:
            state.cluster.disruption.recall(image.losses)
        if state.cluster.overtaking is not None:
            state.cluster.overtaking.recall(image.overtaken)
        # Older snapshots do not name them, but those with a reserved place are among them.
        for job_id in (*image.admitted, *(place.job for place in image.places)):
            state._enter_array(state.jobs[job_id])  # noqa: SLF001
        for job in image.jobs:
            state.enqueue(job, state.at)
        for place in image.places:
            state.cluster.reserve(state.reserved_place(place))
        ended = [job for job in image.jobs if job.state.finished]
        state.finished.extend(
            job.id for job in sorted(ended, key=lambda j: (j.finished_at, j.id))
        )
        return state

    def reserved_place(self, place: SavedPlace) -> ReservedPlace:
        """Complete a reserved place with the needs of its job."""
        job = self.jobs[place.job]
        shape = shape_of(job.spec)
        needs = needs_of(sized(shape, len(place.slots)))
        if job.state is JobState.SUSPENDED:
            needs = self.cluster.gangs[job.id].leases()
        return ReservedPlace(
            place.job,
            place.slots,
            needs,
            place.entitlement,
            place.victims,
            place.quota,
            shape.pin,
        )

    def configure(self, config: Config) -> None:
        """Build the books anew for a configuration, with every gang where it is."""
        old = self.cluster
        self.config = config
        self.next_node = NodeId(max([self.next_node - 1, *(n.id for n in config.nodes)]) + 1)
        spent, losses = self._spent(), self._losses()
        self.cluster = Cluster(
            config.nodes,
            config.tenants,
            self.policies,
            guarantee_of,
            config.topology,
            config.share,
            Millis(config.limits.half_life_ms),
        )
        if self.cluster.claimants is not None:
            self.cluster.claimants.recall(spent, self.at)
        self._arm_dates()
        self.cluster.reservations = Reservations(self.reservations_in_engine_time())
        if self.cluster.disruption is not None:
            self.cluster.disruption.recall(losses)
        self.ports.configure(config.limits.ports)
        foretold_anew = self._foretell()
        for gang in sorted(old.gangs.values(), key=self._claim):
            self._keep(gang)
        for job_id in sorted(old.placed.parting):
            self.cluster.add(self.surplus(self.jobs[job_id]))
        # Only now: a gang on hardware that is shut stays as it is.
        self._forget_gone_parts()
        there = self.cluster.nodes
        # A node that comes back has another id, and is told of anew.
        self.nodes = {node: how for node, how in self.nodes.items() if node in there}
        self.shut_since = {node: at for node, at in self.shut_since.items() if node in there}
        self.drains_kept = {
            node: why for node, why in self.drains_kept.items() if node in there
        }
        self.others = {node: use for node, use in self.others.items() if node in there}
        self.taken = {node: self.taken[node] for node in self.others}
        for node in {*self.nodes, *(part[0] for part in self.health), *self.others}:
            self.mark(node)
        self._demote_what_exceeds()
        if self.budgets.exist or any(tenant.budgets for tenant in config.tenants):
            self.budgets.configure(config.tenants, self.cluster, self.at)
        self._keep_line(old)
        if foretold_anew:
            self._stand_anew()

    def _keep_line(self, old: Cluster) -> None:
        """Let all jobs wait as before, and keep the reserved places that can be kept."""
        if self.cluster.overtaking is not None and old.overtaking is not None:
            self.cluster.overtaking.recall(old.overtaking.counts())
        for job in sorted(old.pending.all(), key=lambda waiting: waiting.id):
            self.cluster.pending.add(self._by_its_name(job), self.at)
        # Not in the order of the books: what was only thought of may have changed that.
        for _, place in sorted(old.reserved.items()):
            kept = self.cluster.guarantee.renewed(place)
            if kept is not None:
                self.cluster.reserve(kept)

    def _arm_dates(self) -> None:
        """Look at the configuration when it changes by date; at once, if it is behind."""
        behind = in_force(self.config, self.wall(self.at)) != self.config
        dates = (at for date in moments(self.config) if (at := self.instant(date)) > self.at)
        self.timers.arm_dates([self.at, *dates] if behind else dates)

    def _foretell(self) -> bool:
        """Begin or stop to predict, as anything goes by it; say whether it changed. O(jobs)."""
        return self.foretelling.configure(
            self.config.limits.predict_milli,
            self.jobs.values(),
            needed=self.cluster.orders.by_run_times or bool(self.reservations),
        )

    def expect_anew(self, jobs: Iterable[JobId]) -> None:
        """Let jobs stand as what is predicted of them now asks."""
        cluster = self.cluster
        for job in jobs:
            if job in cluster.pending:
                cluster.pending.again(self.standing(self.jobs[job]), self.at)
            elif job in cluster.gangs:
                cluster.expect_anew(cluster.gangs[job], self.standing(self.jobs[job]))

    def _overtaken(self) -> dict[JobId, int]:
        overtaking = self.cluster.overtaking
        return {} if overtaking is None else overtaking.counts()

    def _spent(self) -> tuple[Spent, ...]:
        claimants = self.cluster.claimants
        return () if claimants is None else claimants.spent()

    def reservations_changed(self) -> None:
        """Let all jobs wait as the reservations that are set now ask. O(n log n).

        Where they ask the same of each as before, O(reservations): an engine may tell of many.
        """
        before = self.cluster.reservations
        after = self.cluster.reservations = Reservations(self.reservations_in_engine_time())
        if self._foretell() or _asked_by(after) != _asked_by(before):
            self._stand_anew()
        else:
            self.cluster.ledger.version += 1

    def _stand_anew(self) -> None:
        cluster = self.cluster
        for waiting in sorted(cluster.pending.all(), key=lambda job: job.id):
            cluster.pending.again(self.standing(self.jobs[waiting.id]), self.at)
        for gang in cluster.gangs.values():
            cluster.expect_anew(gang, self.standing(self.jobs[gang.id]))
        cluster.ledger.version += 1

    def _losses(self) -> tuple[Loss, ...]:
        budget = self.cluster.disruption
        return () if budget is None else budget.losses()

    def _by_its_name(self, job: Standing) -> Standing:
        """Let a job stand under its owner's name just where there are caps on that now."""
        user, group = self._named(self.jobs[job.id])
        if (job.shape.user, job.shape.group) == (user, group):
            return job
        shape = replace(job.shape, user=user, group=group)
        return replace(job, shape=shape)

    def _named(self, job: JobRecord) -> tuple[str, str]:
        """Return the user and the group of a job, each where it matters whose it is."""
        spec, owner = job.spec, job.owner
        return self.cluster.named(spec.tenant, spec.queue, owner.user, owner.groups)

    def condition(self, part: Part) -> Condition | None:
        """Return how a part is that is not healthy."""
        return self.health.get(part) or self.doubts.get(part)

    def set_condition(self, part: Part, condition: Condition) -> None:
        """Note how a part is from now on. `mark` lets the books know."""
        where, other = self.doubts, self.health
        if condition.health.is_out:
            where, other = other, where
        other.pop(part, None)
        if condition.health is HardwareHealth.HEALTHY:
            where.pop(part, None)
            return
        where[part] = condition
        self.timers.arm_condition(condition)

    def mark(self, node: NodeId) -> None:
        """Let the books know what of a node is to be used now. O(its devices)."""
        machine = self.cluster.nodes.get(node)
        if machine is None:
            return
        state, _ = self.nodes.get(node, (NodeState.READY, ""))
        taken = self.taken.get(node, frozenset[int]())
        is_open = state is NodeState.READY and not (
            WHOLE in taken or (node, WHOLE) in self.health
        )
        bad = frozenset(
            d.index
            for d in machine.devices
            if d.index in taken or (node, d.index) in self.health
        )
        book = self.cluster.ledger.books[node]
        if book.open is not is_open:
            self.cluster.set_open(node, is_open)
        if book.bad != bad:
            self.cluster.set_bad(node, bad)
        use = self.others.get(node)
        host = Resources(cpu_milli=use.cpu_milli, memory=use.memory) if use else NOTHING
        if (book.others, book.taken) != (host, taken):
            self.cluster.ledger.set_others(node, host, taken)

    def _forget_gone_parts(self) -> None:
        """Forget what was wrong with hardware that is no longer in the configuration."""
        there = {
            (node.id, place)
            for node in self.config.nodes
            for place in (WHOLE, *(device.index for device in node.devices))
        } if self.health or self.doubts or self.suspicions.parts() else set[Part]()  # fmt: skip
        self.health = {part: how for part, how in self.health.items() if part in there}
        self.doubts = {part: how for part, how in self.doubts.items() if part in there}
        self.suspicions.keep_only(there)

    def _claim(self, gang: Gang) -> tuple[int, Instant, JobId]:
        """Rank gangs by which keeps its cells if not all can: urgent ones, if that counts."""
        tenant = self.cluster.tenants.get(gang.tenant)
        counts = tenant is not None and tenant.preempt is not Preempt.NONE
        return (-gang.priority if counts else 0, gang.placed_at, gang.id)

    def _keep(self, gang: Gang) -> None:
        """Let a gang be where it is; as a borrower if its tenant's cells no longer cover it."""
        if gang.entitlement is Entitlement.GUARANTEED and not gang.suspended:
            gang.quota = self.cluster.guarantee.quota_kept(gang)
            attempt = self.jobs[gang.id].attempts[-1]
            if self.cluster.cells is not None and not gang.quota:
                gang.entitlement = Entitlement.OPPORTUNISTIC
            attempt.entitlement, attempt.quota = gang.entitlement, gang.quota
        gang.standing = self._by_its_name(gang.standing)
        gang.gauge = gauge_of(self.cluster.tenants, self.jobs[gang.id])
        self.cluster.add(gang)

    def _demote_what_exceeds(self) -> None:
        """Let gangs beyond a smaller guarantee run on as borrowers, newest first.

        A gang that holds nothing of what there is too much of stays as it is, and one that
        fits beside those that stay, once all others are demoted, has its guarantee back.
        """
        gangs = [g for g in self.cluster.gangs.values() if self._counts(g)]
        demoted: list[tuple[Gang, Quota]] = []
        for gang in sorted(gangs, key=lambda g: (-g.placed_at, -g.id)):
            if self._holds_too_much(gang):
                demoted.append((gang, gang.quota))
                self._entitle(gang, Entitlement.OPPORTUNISTIC)
        for gang, quota in reversed(demoted):
            self._entitle(gang, Entitlement.GUARANTEED, quota)
            if self._exceeding(gang.tenant):
                self._entitle(gang, Entitlement.OPPORTUNISTIC)

    def exceeds_guarantees(self) -> bool:
        """Whether gangs hold more as their tenants' own than is guaranteed now.

        They cannot come to by what is decided here. Older versions did not count every part.
        """
        gangs = self.cluster.gangs.values()
        return any(self._counts(gang) and self._holds_too_much(gang) for gang in gangs)

    def _holds_too_much(self, gang: Gang) -> bool:
        """Whether a gang has part in what its tenant holds beyond its guarantee."""
        held = vector_of(gang.held())
        return any(part in held for part in self._exceeding(gang.tenant))

    def _counts(self, gang: Gang) -> bool:
        """Whether what a gang holds may be too much of its tenant's own.

        In cells a suspended one holds none of them, and keeps what it keeps on sufferance.
        """
        frozen = gang.suspended and self.cluster.cells is not None
        return gang.entitlement is Entitlement.GUARANTEED and not frozen

    def _exceeding(self, tenant: str) -> tuple[str, ...]:
        """Name the parts of which a tenant holds more as its own than it is guaranteed."""
        known = self.cluster.tenants.get(tenant)
        used = self.cluster.queues.tenants[tenant].own()
        for gang in (
            self.cluster.placed.frozen.values() if self.cluster.cells is not None else ()
        ):
            if gang.tenant == tenant and gang.entitlement is Entitlement.GUARANTEED:
                used -= gang.held()
        return short(used, known.guaranteed if known else NOTHING)

    def _entitle(self, gang: Gang, entitlement: Entitlement, quota: Quota = ()) -> None:
        """Let a gang hold what it holds by another entitlement, and its attempt say so."""
        self.cluster.entitle(gang, entitlement, quota)
        self.jobs[gang.id].attempts[-1].entitlement = entitlement

    def count(self, job: JobRecord, change: int) -> None:
        """Count a job that comes, 1, or is over, -1."""
        self.unfinished[job.owner.user] += change
        self.unfinished_of[job.spec.tenant] += change
        for content in brought_by(job.spec):
            self.content.count(content, change)

    def index(self, job: JobRecord) -> None:
        """Enter one job of a snapshot in the indexes."""
        if job.key:
            self.keys[job.owner.user, job.key] = job.id
        if job.state.finished:
            return
        self.count(job, 1)
        self.watch(job)
        attempt = job.attempt
        if attempt is not None:
            self.cluster.add(self.gang(job))
            if attempt.shrink is not None:
                self.cluster.add(self.surplus(job))
            self._enter_array(job)
            self.ports.take(attempt.port, port_count(job.spec))
            if attempt.packing is not None:
                self.enter_packed(job)
        self.timers.arm_job(job, self.config.limits)

    def enter_packed(self, job: JobRecord) -> None:
        """Enter a gang that runs beside another in the index, and arm the end of its trial."""
        packing = job.attempts[-1].packing
        assert packing is not None, "it runs beside another"
        self.packed[job.id] = packing.beside
        self.packed_with[packing.beside] = job.id
        gang = self.cluster.gangs[job.id]
        for slot, need in zip(gang.slots, gang.needs, strict=True):
            there = self.packed_on.setdefault(slot.node, {})
            there[job.id] = there.get(job.id, 0) + need.cpu_milli
        if packing.try_ends is not None:
            self.timers.arm(packing.try_ends, job.id)

    def leave_packed(self, job: JobRecord, beside: JobId) -> None:
        """Remove a gang from the index when it runs beside another no longer. O(nodes)."""
        del self.packed[job.id], self.packed_with[beside]
        for node, there in list(self.packed_on.items()):
            if there.pop(job.id, None) is not None and not there:
                del self.packed_on[node]

    def standing(self, job: JobRecord) -> Standing:
        """Return how a job stands in its queue now: in need, in what it was given, in time."""
        spec, attempt = job.spec, job.attempt if job.attempts else None
        served, since, starting = job.served_ms, None, False
        if attempt is not None:
            served = Millis(served + attempt.ran_ms)
            starting = not attempt.started_at
            since = attempt.placed_at if starting else attempt.running_since or None
        named = self.cluster.names_matter
        shape = shape_of(spec, *self._named(job)) if named else self.shape_of(spec)
        standing = Standing(
            job.id,
            fixed(shape, attempt.staying) if attempt is not None else shape,
            spec.priority,
            job.submitted_at,
            job.queued_at,
            served,
            job.lost_ms,
            spec.max_run_ms,
            since,
            starting,
            None if spec.deadline_ms == NEVER else Instant(job.submitted_at + spec.deadline_ms),
            self._predicted_ms(job, served) if self.foretelling.on else UNKNOWN,
            switch_of(attempt) if attempt is not None else NO_TIME,
            spec.weight,
            pause_of(self.cluster.tenants, job) if job.attempts else NO_TIME,
        )
        return self._within_reservations(standing, job) if self.reservations else standing

    def _predicted_ms(self, job: JobRecord, served_ms: int) -> Millis:
        """Predict the run time of a job: longer than what it has done, the lost left out."""
        if job.spec.max_run_ms != NEVER or (told := self.foretelling.told_ms(job)) < 0:
            return UNKNOWN
        kept = served_ms - job.lost_ms
        return Millis(doubled(told, kept + 1))

    def _within_reservations(self, standing: Standing, job: JobRecord) -> Standing:
        """Put in the shape of a job what reservations ask: its run time, which it may use."""
        span: int | None = standing.limit_ms
        if standing.limit_ms < 0 and (estimates := self.policies.estimates) is not None:
            span = estimates.run_ms(standing)
        shape = self.cluster.reservations.shaped(
            standing.shape, job.owner.user, -1 if span is None else span
        )
        return replace(standing, shape=shape)

    def begun(self, standing: Standing, attempt: AttemptRecord) -> Standing:
        """Return how a job stands that did when it was given a place, and now runs there."""
        return replace(
            standing,
            since=attempt.running_since,
            starting=False,
            switch_ms=switch_of(attempt),
        )

    def gang(self, job: JobRecord, waited: Standing | None = None) -> Gang:
        """Make the entry of a placed job for the books; `waited` is how it waited."""
        attempt = job.attempts[-1]
        if waited is None:
            standing = self.standing(job)
        else:
            shape = fixed(waited.shape, len(attempt.slots))
            standing = replace(waited, shape=shape, since=attempt.placed_at, starting=True)
        shape, role = standing.shape, job.spec.roles[-1]
        gang = Gang(
            job.id,
            shape.tenant,
            standing.priority,
            shape.requests,
            attempt.slots[: attempt.staying] if attempt.shrink else attempt.slots,
            needs_of(shape.requests),
            attempt.entitlement,
            attempt.placed_at,
            standing,
            shape.preemptible,
            attempt.saved_at or attempt.placed_at,
            attempt.quota,
            shape.pin,
            shape.opportunistic,
            job.owner.user,
            job.spec.on_eviction,
        )
        if waited is None:
            gang.leaving = attempt.stop is not None
            gang.suspended_at = attempt.suspended_at or None
            gang.wants_resume = attempt.wants_resume
            gang.shrinking = attempt.shrink is not None
            gang.beside = attempt.packing.beside if attempt.packing is not None else None
            gang.keeps = kept_by(attempt, gang.needs)
        if role.elastic:
            gang.least, gang.step = job.spec.least_count, role.step
        if self.cluster.rescheduler is not None:
            gang.gauge = gauge_of(self.cluster.tenants, job)
        return gang

    def surplus(self, job: JobRecord) -> Gang:
        """Make the entry of the tasks that a shrinking gang gives up: they borrow."""
        attempt = job.attempts[-1]
        requests = fixed(shape_of(job.spec), len(attempt.slots)).requests
        whole = replace(
            self.gang(job), requests=requests, slots=attempt.slots, needs=needs_of(requests)
        )
        return whole.surplus(attempt.staying)


def switch_of(attempt: AttemptRecord) -> Millis:
    """Return how long it took from being placed to running; 0 while it did not."""
    took = attempt.started_at - attempt.placed_at
    return Millis(took) if took > 0 else NO_TIME


def _asked_by(there: Reservations) -> tuple[object, ...]:
    """Return what the shapes of jobs go by: whether any is set, and for whom which are."""
    return bool(there.all), [
        (each.name, each.users, each.tenants, each.queues)
        for each in there.all
        if not (each.shut or each.for_nobody)
    ]
