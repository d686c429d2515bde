"""The door to the product: its books are filled, asked, and audited.

What is asked is what the scheduler asks: `engine.decide.check` at submission; then
`core.own_cells` and `core.preemption`: a place in the tenant's own cells, who of its own
makes way for more urgent work, what is idle. Gangs that run on after a restart keep what
`rights.quota_for` grants them.

What is reserved is a promise on the books, so who takes it over is the product's answer too.
What the product does not have is done here, in the plainest way: HiveD's *suggested nodes*
(all others are closed while it decides).
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from allotment.core.cells.book import Cells, Found
from allotment.core.cells.rights import quota_for
from allotment.core.cluster import Cluster as Books
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.own_cells import guaranteed_place
from allotment.core.plan import PreemptionPlan
from allotment.core.preemption.room import losers, preempt_lower
from allotment.core.request import Shape, shape_of
from allotment.engine.decide import check
from allotment.engine.state import State
from allotment.model.cell_quota import shortages
from allotment.model.cells import Topology
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Quota, Slot
from allotment.model.quantity import Instant, Resources
from allotment.model.spec import JobSpec, TaskRole
from allotment.model.tenancy import Config, Preempt
from tests.golden.hived import geometry
from tests.golden.hived.cluster import CPU_MILLI, MEMORY, Cluster
from tests.golden.hived.words import (
    Answer,
    Ask,
    Book,
    Held,
    Placed,
    Refused,
    Reserved,
    Task,
    Waits,
)
from tests.support.audit_cells import flaws
from tests.support.builders import ALICE, POLICIES

NOW = Instant(1)
GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


class Known(msgspec.Struct, frozen=True):
    """Who an entry of the books is: a gang, a part of one, or who is promised a place."""

    name: str
    lazy: bool = False


class Ours:
    """Implements `adapter.UnderTest`."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self.state = State(POLICIES)
        self.book = Book()
        self.known: dict[JobId, Known] = {}

    @property
    def books(self) -> Books:
        return self.state.cluster

    @property
    def cells(self) -> Cells:
        assert self.books.cells is not None
        return self.books.cells

    def open(self, cluster: Cluster) -> str:
        self.cluster = cluster
        missing = shortages(cluster.topology, cluster.tenants)
        if not missing:
            self._empty()
        return "; ".join(f"{each.type}: {each.wanted} of {each.available}" for each in missing)

    def _empty(self) -> None:
        tenants = tuple(
            msgspec.structs.replace(tenant, preempt=Preempt.EVICT)
            for tenant in self.cluster.tenants
        )
        topology: Topology = self.cluster.topology
        self.state = State(POLICIES)
        self.state.configure(Config(self.cluster.nodes, tenants, topology=topology))
        self.known = {}

    # ── loading ─────────────────────────────────────────────────────────────────────────

    def load(self, book: Book) -> list[str]:
        self.book = book
        self._empty()
        for node in book.bad:
            self.books.set_bad(node, frozenset(d.index for d in self._devices(node)))
        kept = {leaf for r in book.reserved for leaf in geometry.leaves_of(r.tasks)}
        for held in book.held:
            self._hold(held, kept)
        for each in book.reserved:
            self._promise(each)
        return list(flaws(self.cells))

    def _devices(self, node: NodeId):
        return next(each.devices for each in self.cluster.nodes if each.id == node)

    def _hold(self, held: Held, kept: set[tuple[NodeId, int]]) -> None:
        """Enter a gang; where its leaves are reserved it sits as one who is leaving."""
        taken: list[Task] = []
        lent: list[Task] = []
        for task in held.tasks:
            leaving = tuple(d for d in task.devices if (task.node, d) in kept)
            staying = tuple(d for d in task.devices if d not in leaving)
            if not held.guaranteed:
                leaving, staying = task.devices, ()
            if leaving:
                lent.append(Task(task.node, leaving))
            if staying:
                taken.append(Task(task.node, staying, task.cell))
        known = Known(held.gang, held.lazy)
        if taken:
            self._enter(known, held.tenant, held.pin, held.priority, taken)
        if lent:
            self._enter(known, held.tenant, held.pin, held.priority, lent)

    def _enter(
        self, known: Known, tenant: str, pin: str, priority: int, tasks: Sequence[Task]
    ) -> None:
        """Put a gang on the books: as its tenant's own where its tasks name cells."""
        spec = _spec(tenant, [len(t.devices) for t in tasks], (), pin, priority)
        shape, job = shape_of(spec), self._next(known)
        quota = tuple(task.cell for task in tasks if task.cell)
        self.books.add(
            Gang(
                id=job,
                tenant=tenant,
                priority=priority,
                requests=shape.requests,
                slots=tuple(_slot(task) for task in tasks),
                needs=tuple(_amount(len(task.devices)) for task in tasks),
                entitlement=GUARANTEED if quota else OPPORTUNISTIC,
                placed_at=Instant(0),
                standing=Standing(job, shape, priority, Instant(0)),
                quota=quota,
                pin=pin,
                opportunistic=priority < 0,
            )
        )

    def _promise(self, kept: Reserved) -> None:
        """Put a reservation on the books: a promise to one who waits while others leave."""
        sizes = [len(task.devices) for task in kept.tasks]
        shape = shape_of(_spec(kept.tenant, sizes, (), kept.pin, kept.priority))
        job = self._next(Known(kept.gang))
        self.books.pending.add(Standing(job, shape, kept.priority, Instant(0)), Instant(0))
        victims = tuple(
            each
            for each, gang in sorted(self.books.gangs.items())
            if self.known[each].name in kept.victims and gang.entitlement is OPPORTUNISTIC
        )
        for victim in victims:
            self.books.mark_leaving(victim)
        self.books.reserve(
            ReservedPlace(
                job,
                tuple(_slot(task) for task in kept.tasks),
                tuple(_amount(size) for size in sizes),
                GUARANTEED,
                victims,
                tuple(task.cell for task in kept.tasks if task.cell),
                kept.pin,
            )
        )

    def _next(self, known: Known) -> JobId:
        job = JobId(len(self.known) + 1)
        self.known[job] = known
        return job

    # ── placing ─────────────────────────────────────────────────────────────────────────

    def place(self, ask: Ask) -> Answer:
        types = () if ask.pin else ask.types
        spec = _spec(ask.tenant, ask.sizes, types, ask.pin, ask.priority)
        try:
            check(self.state, spec, ALICE)
        except Rejected as why:
            return Refused(str(why))
        own = next((each for each in self.book.reserved if each.gang == ask.gang), None)
        if own is not None:
            nodes = geometry.nodes_of(own.tasks)
            if not nodes & self.book.bad and (ask.nodes is None or nodes <= ask.nodes):
                return Placed(own.tasks, own.victims)
            others = tuple(each for each in self.book.reserved if each is not own)
            self.load(Book(self.book.held, others, self.book.bad))
        barred = [
            n.id for n in self.cluster.nodes if ask.nodes is not None and n.id not in ask.nodes
        ]
        for node in barred:
            self.books.set_open(node, is_open=False)
        answer = self._decide(ask.priority, shape_of(spec))
        for node in barred:
            self.books.set_open(node, is_open=True)
        return answer

    def _decide(self, priority: int, shape: Shape) -> Answer:
        if shape.opportunistic:
            slots = self.books.guarantee.idle_place(shape.requests)
            if slots is None:
                return Waits("nothing idle")
            return Placed(tuple(Task(slot.node, slot.devices) for slot in slots))
        found, lost = guaranteed_place(self.books, shape), tuple[JobId, ...]()
        if found is None:
            waiting = Standing(JobId(10**6), shape, priority, NOW)
            plan = preempt_lower(self.books, waiting, NOW)
            if plan is None:
                return Waits("no room")
            lost = tuple(losers(self.books, waiting, plan))
            found = self._after(shape, plan, lost)
        many = len(found.quota) > 1
        tasks = tuple(
            Task(slot.node, slot.devices, found.quota[at if many else 0])
            for at, slot in enumerate(found.slots)
        )
        return self._placed(tasks, found.borrowers, lost)

    def _after(self, shape: Shape, plan: PreemptionPlan, lost: tuple[JobId, ...]) -> Found:
        """Look again once those who agreed to stay as borrowers are such, as a cycle does."""
        lazy = [self.books.gangs[job] for job in lost if self.known[job].lazy]
        others = [self.books.drop(job) for job in lost if not self.known[job].lazy]
        promises = [self.books.reserved[job] for job in plan.revoke]
        for promise in promises:
            self.books.unreserve(promise.job)
        grounds = {gang.id: gang.quota for gang in lazy}
        for gang in lazy:
            self.books.entitle(gang, OPPORTUNISTIC)
        found = guaranteed_place(self.books, shape)
        for gang in lazy:
            self.books.entitle(gang, GUARANTEED, grounds[gang.id])
        for gang in others:
            self.books.add(gang)
        for promise in promises:
            self.books.reserve(promise)
        return found or Found(plan.slots, plan.quota, self._borrowers_on(plan))

    def _borrowers_on(self, plan: PreemptionPlan) -> tuple[JobId, ...]:
        gangs = self.books.gangs
        return tuple(job for job in plan.evict if gangs[job].entitlement is OPPORTUNISTIC)

    def _placed(
        self, tasks: tuple[Task, ...], borrowers: Sequence[JobId], losers: Sequence[JobId]
    ) -> Placed:
        """Who loses its guarantee stays where it agreed to, and is sent away where not."""
        gone = {self.known[job] for job in losers}
        lazy = {known.name for known in gone if known.lazy and not self._sits_on(known, tasks)}
        sent = {self.known[job].name for job in borrowers} | {known.name for known in gone}
        return Placed(tasks, tuple(sorted(sent - lazy)), demoted=tuple(sorted(lazy)))

    def _sits_on(self, known: Known, tasks: Sequence[Task]) -> bool:
        wanted = geometry.leaves_of(tasks)
        return any(
            wanted & _leaves(gang.slots)
            for job, gang in self.books.gangs.items()
            if self.known[job] == known
        )

    # ── afterwards ──────────────────────────────────────────────────────────────────────

    def settle(self, ask: Ask, answer: Answer) -> list[str]:
        if not isinstance(answer, Placed):
            return list(flaws(self.cells))
        wanted = geometry.leaves_of(answer.tasks)
        for job, promise in list(self.books.reserved.items()):
            if self.known[job].name == ask.gang or wanted & _leaves(promise.slots):
                self.books.unreserve(job)
        for job, gang in list(self.books.gangs.items()):
            name = self.known[job].name
            if name in answer.victims:
                self.books.drop(job)
            elif name in answer.demoted:
                self.books.entitle(gang, OPPORTUNISTIC)
        self._enter(Known(ask.gang), ask.tenant, ask.pin, ask.priority, answer.tasks)
        return list(flaws(self.cells))

    def recover(self, reported: tuple[Held, ...], bad: frozenset[NodeId]) -> frozenset[str]:
        """Take up what runs as `State.configure` does: urgent gangs first, then health."""
        self.load(Book())
        kept: set[str] = set()
        for held in sorted(reported, key=lambda each: (-each.priority, each.gang)):
            quota = self._quota(held)
            if quota:
                many = len(quota) > 1
                tasks = tuple(
                    msgspec.structs.replace(task, cell=quota[at if many else 0])
                    for at, task in enumerate(held.tasks)
                )
                self._enter(Known(held.gang), held.tenant, held.pin, held.priority, tasks)
                kept.add(held.gang)
        for node in bad:
            self.books.set_bad(node, frozenset(d.index for d in self._devices(node)))
        return frozenset(kept)

    def _quota(self, held: Held) -> Quota:
        if not held.guaranteed or not held.tasks:
            return ()
        slots = [_slot(task) for task in held.tasks]
        needs = [_amount(len(task.devices)) for task in held.tasks]
        return quota_for(self.cells, held.tenant, held.pin, slots, needs)


def _spec(
    tenant: str, sizes: Sequence[int], types: tuple[str, ...], pin: str, priority: int
) -> JobSpec:
    """Make a job: tasks of one size in a row are a role. HiveD's own never borrow."""
    roles = tuple(
        TaskRole(f"r{at}", len(list(alike)), "true", _amount(size), types)
        for at, (size, alike) in enumerate(groupby(sizes))
    )
    return JobSpec(
        "job",
        tenant,
        roles,
        priority=max(priority, 0),
        pin=pin,
        preemptible=priority < 0,
        opportunistic=priority < 0,
    )


def _amount(devices: int) -> Resources:
    """What a task of so many devices needs: just their share of the host."""
    return Resources(
        gpu_milli=1000 * devices, cpu_milli=CPU_MILLI * devices, memory=MEMORY * devices
    )


def _leaves(slots: Sequence[Slot]) -> set[tuple[NodeId, int]]:
    return {(slot.node, device) for slot in slots for device in slot.devices}


def _slot(task: Task) -> Slot:
    return Slot(task.node, task.devices, 1000 * len(task.devices))
