"""Everything a decision reads: machines, waiting jobs, placed gangs, shares, reserved places.

The engine keeps it true by folding events; the planner works on it through a `Trial`
that undoes itself. Nothing else changes what is held and reserved.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from allotment.core.book import Book, Holder
from allotment.core.books import Guarantee, Placed
from allotment.core.cells.book import Cells, PlacedInCells
from allotment.core.claimants import Claimants
from allotment.core.disruption import disruption_budget
from allotment.core.ends import Ends
from allotment.core.equivalence import equivalence_classes
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.ledger import Ledger
from allotment.core.memos import Memos
from allotment.core.pending import Pending, QueueOrders
from allotment.core.policies import Policies, Rescheduler
from allotment.core.quota import QuotaTree
from allotment.core.request import Request, Shape, needs_of, parts_of, whole
from allotment.core.reservations import NOWHERE, Reservations
from allotment.core.slices import slices_of
from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, Beside, Entitlement, Quota, Slot, having
from allotment.model.quantity import DAY, Instant, Millis, Resources, earlier
from allotment.model.queue_tree import QueueTree, all_stopped
from allotment.model.tenancy import Preempt, ShareBy, Tenant

__all__ = ["Cluster", "Gang", "ReservedPlace", "Standing"]


_COUNTED = Topology()
"""No topology: shares are so many devices, wherever they are."""


class Cluster:
    """The books of one cluster."""

    seen_version = -1
    """The version of the ledger at which the whole queue was last looked through."""
    _empty: Cells | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - what a configuration says, and how it is read
        self,
        nodes: Sequence[Node],
        tenants: Sequence[Tenant],
        policies: Policies,
        guaranteed: Callable[["Cluster"], Guarantee],
        topology: Topology = _COUNTED,
        share: ShareBy = ShareBy.FIRST_COME,
        half_life_ms: Millis = Millis(7 * DAY),
    ) -> None:
        self.policies = policies
        self.nodes = {node.id: node for node in nodes}
        self.tenants = {tenant.name: tenant for tenant in tenants}
        self.trees = {tenant.name: QueueTree(tenant) for tenant in tenants}
        self.device_types = tuple(sorted({d.type for node in nodes for d in node.devices}))
        self.orders = orders = QueueOrders(tenants, policies.ordering, policies.ranking)
        self.overtaking = orders.overtaking
        self.slices = slices_of(tenants)
        """In which queues gangs take turns, and how long each is."""
        self.preempts = any(tenant.preempt is not Preempt.NONE for tenant in tenants)
        """Whether a more urgent job may preempt less urgent ones of its tenant."""
        self.disruption = disruption_budget(tenants)
        """What protects jobs from more urgent ones of their tenant; None where nothing does."""
        self.ledger = Ledger(nodes)
        in_cells = any(tenant.cells or tenant.pins for tenant in tenants)
        self.cells = Cells(topology, nodes, tenants) if in_cells else None
        """Which tenants are guaranteed which cells; None where shares are counted."""
        made = policies.rescheduler
        self.rescheduler: Rescheduler | None = made(self) if made is not None else None
        self._hardware = [book for book in (self.ledger, self.cells) if book is not None]
        self._topology = topology
        rule = Claimants(share, half_life_ms, self.trees.values(), nodes, policies.fairness)
        fair = rule.any or orders.ranks_apart
        self.claimants = rule if fair else None
        """What claimants of a sharing rule have; None where all is first come, first served."""
        self.queues = QuotaTree(tenants, self.trees, self.ledger)
        """What tenants, queues, users and groups hold and may hold."""
        self.stops = all_stopped(self.trees.values())
        """The tenants and leaves of their queues in which nothing starts."""
        apart = fair or in_cells or self.queues.by_queue or self.queues.any
        alike = not (apart or self.stops or self.rescheduler)
        self.classes = equivalence_classes(orders.by_queue) if alike else None
        """Classes of shapes; None where those of different queues are never alike."""
        estimates = policies.estimates if orders.plan_ahead else None
        self.pending = Pending(orders.ordering, estimates, self.classes, self.overtaking)
        self.ends = Ends(estimates) if estimates is not None else None
        """When placed gangs are expected to end; kept only for queues that plan ahead."""
        self.placed = Placed(self.ledger)
        self.gangs, self.reserved = self.placed.gangs, self.placed.reserved
        self._books = self._all_books()
        self.reservations = Reservations()
        """The reservations: when nodes are set aside, and for which users."""
        self._fenced = NOWHERE
        """Nodes that are closed only while a place is looked for."""
        self.names_matter = self.queues.is_counted or fair
        """Whether jobs of different users or groups may not be alike."""
        self.memos = Memos()
        self.guarantee = guaranteed(self)
        """What tenants are guaranteed, in the form it has here."""

    def _all_books(self) -> tuple[Book, ...]:
        """Return every book that this configuration needs."""
        cells = PlacedInCells(self.cells) if self.cells is not None else None
        order = self.rescheduler.order if self.rescheduler is not None else None
        kept = (cells, self.claimants, order, self.ends)
        return (self.placed, self.queues, *(book for book in kept if book is not None))

    # ── gangs ───────────────────────────────────────────────────────────────────────────

    def add(self, gang: Gang) -> None:
        """Enter a placed gang, or the surplus of one: it holds its slots from now on."""
        self.ledger.take(gang.slots, gang.kept())
        self._enter(gang)

    def drop(self, job: JobId) -> Gang:
        """Remove a gang from the books and free what it held."""
        return self._strike(self.gangs[job])

    def parted(self, job: JobId) -> Gang:
        """Remove from the books what a gang gave up: it is gone."""
        return self._strike(self.placed.parting[job])

    def _strike(self, gang: Gang) -> Gang:
        self._leave(gang)
        self.ledger.give(gang.slots, gang.kept())
        return gang

    def holders(self) -> Iterator[Gang]:
        """Yield all that hold something: gangs, and what shrinking ones give up."""
        yield from self.gangs.values()
        yield from self.placed.parting.values()

    def _enter(self, gang: Gang) -> None:
        for book in self._books:
            book.enter(gang)

    def _leave(self, gang: Gang) -> None:
        for book in self._books:
            book.leave(gang)

    def promote(self, job: JobId, quota: Quota = (), beside: Beside = ()) -> None:
        """Turn a borrowing gang into its tenant's own use, with these leaves beside it."""
        gang = self.gangs[job]
        if beside:
            # A borrower is entered by its devices alone: what else it names may change.
            gang.slots = having(gang.slots, beside)
        self.entitle(gang, GUARANTEED, quota)

    def entitle(self, gang: Gang, entitlement: Entitlement, quota: Quota = ()) -> None:
        """Change the entitlement by which a gang holds what it holds."""
        if entitlement is gang.entitlement:
            return
        self._leave(gang)
        gang.entitlement, gang.quota = entitlement, quota
        self._enter(gang)
        self.ledger.version += 1

    def suspend(self, job: JobId, now: Instant, standing: Standing | None = None) -> None:
        """Free the devices and CPU of a gang; it keeps its memory."""
        gang = self.gangs[job]
        self._leave(gang)
        self._stand(gang, standing)
        gang.suspended_at = now
        self._enter(gang)
        self.ledger.give(gang.slots, gang.leases())

    def mark_leaving(self, job: JobId) -> None:
        """Note that a gang is told to go."""
        self.placed.mark_leaving(self.gangs[job])
        if self.rescheduler is None:  # Else it goes for a job that has its place.
            self.ledger.version += 1  # What it holds may be reserved now.

    def ask_resume(self, job: JobId) -> None:
        """Let a suspended gang wait for its own devices."""
        gang = self.gangs[job]
        gang.wants_resume = True
        self.placed.resuming[job] = gang
        self.pending.arrivals += 1

    def resume(
        self,
        job: JobId,
        entitlement: Entitlement,
        quota: Quota = (),
        standing: Standing | None = None,
    ) -> None:
        """Lease a suspended gang its devices and CPU again."""
        gang = self.gangs[job]
        self._leave(gang)
        self._stand(gang, standing)
        gang.suspended_at, gang.wants_resume = None, False
        gang.entitlement, gang.quota = entitlement, quota
        self._enter(gang)
        self.ledger.take(gang.slots, gang.leases())

    def has_devices(self, slots: Sequence[Slot]) -> bool:
        """Whether the devices of a place are in this configuration."""
        return all(
            (node := self.nodes.get(slot.node)) is not None
            and all(index < len(node.devices) for index in slot.devices)
            for slot in slots
        )

    def stand_anew(self, gang: Gang, standing: Standing) -> None:
        """Change a gang's place in its queue: it began to run only now."""
        if gang.least and gang.standing.starting:
            # Once it runs it can give up tasks that others wait for.
            self.memos.blocked.clear()
            self.pending.look_again()
        if self.rescheduler is not None:
            self.rescheduler.order.leave(gang)
        gang.standing, gang.rank = standing, None
        if self.rescheduler is not None:
            self.rescheduler.order.enter(gang)

    def expect_anew(self, gang: Gang, standing: Standing) -> None:
        """Let a gang stand differently also where it is sorted by when it ends."""
        if self.ends is not None:
            self.ends.leave(gang)
        self.stand_anew(gang, standing)
        if self.ends is not None:
            self.ends.enter(gang)

    def _stand(self, gang: Gang, standing: Standing | None) -> None:
        """Move a gang to another place in its queue; None while it is only tried."""
        if standing is not None:
            gang.standing, gang.rank = standing, None

    def held_on(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> dict[str, int]:
        """Return the parts that tasks hold on their slots; by type where a cap asks for it."""
        return self.queues.held_on(slots, needs)

    # ── order ───────────────────────────────────────────────────────────────────────────

    def rerank(self, now: Instant) -> None:
        """Ask anew for every rank that holds no longer."""
        if self.pending.until:
            self.pending.rerank(now)
        if self.disruption is not None and self.disruption.woken(now):
            self.ledger.version += 1
        if self.ends is not None and self.ends.outlived(now):
            self.pending.arrivals += 1  # Blocked jobs start later: others may overtake them.
        if self.rescheduler is not None and self.rescheduler.rerank(now):
            # A job may now have a place that it could not have before.
            self.ledger.version += 1

    def displaces(self, now: Instant) -> Rescheduler | None:
        """Return the rescheduler if it may displace gangs now."""
        rescheduler = self.rescheduler
        return rescheduler if rescheduler is not None and rescheduler.looks(now) else None

    def next_change(self, now: Instant) -> Instant | None:
        """Return when the order changes though nothing happens, or gangs may be displaced."""
        first = self.pending.until[0][0] if self.pending.until else None
        if self.ends is not None and len(self.pending):
            first = earlier(first, self.ends.next_guess())
        if self.disruption is not None:
            first = earlier(first, self.disruption.wake_at)
        if self.rescheduler is not None:
            first = earlier(first, self.rescheduler.next_look(now))
        return first

    def let_up(self) -> None:
        """Note that a job left its queue without a place: it holds up no other any more."""
        if not self.orders.all_skip or self.queues.softs:
            self.pending.arrivals += 1

    # ── reserved places ───────────────────────────────────────────────────────────────────

    def reserve(self, place: ReservedPlace, away: Gang | None = None) -> None:
        """Reserve a place: its slots are taken though others still sit there.

        `away` is the gang of its job where that is thought away, in a trial.
        """
        self.ledger.take(place.slots, place.needs)
        job = place.job
        gang = away or self.gangs.get(job)
        shape = gang.standing.shape if gang else self.pending[job].shape
        holder = Holder(shape, gang.user if gang else shape.user, gang is not None)
        for book in self._books:
            book.reserve(place, holder)

    def unreserve(self, job: JobId) -> ReservedPlace | None:
        """Drop a reserved place, or turn it into a placement right after."""
        place = self.reserved.get(job)
        if place is not None:
            self.ledger.give(place.slots, place.needs)
            for book in self._books:
                book.release(place)
        return place

    # ── questions ───────────────────────────────────────────────────────────────────────

    def is_settled(self) -> bool:
        """Whether every gang keeps what it holds as long as it likes."""
        return not (
            self.placed.leaving
            or self.placed.parting
            or self.preempts
            or self.queues.guarantees
            or self.placed.borrowers
        )

    def tenant_of(self, job: JobId) -> str:
        """Return the tenant of a job that waits or is placed."""
        return self.shape_of(job).tenant

    def named(
        self, tenant: str, queue: str, user: str, groups: Sequence[str]
    ) -> tuple[str, str]:
        """Return a job's user and group, each where it matters whose it is; '' elsewhere."""
        _, _, by_cap, group = self.queues.named(tenant, queue, user, groups)
        if self.claimants is not None and self.claimants.by_user(tenant, queue):
            return user, group
        return by_cap, group

    def standing_of(self, job: JobId) -> Standing | None:
        """Return how a job stands that waits or is placed; None if it is neither."""
        gang = self.gangs.get(job)
        return self.pending.get(job) if gang is None else gang.standing

    def shape_of(self, job: JobId) -> Shape:
        """Return the shape of a job that waits or is placed."""
        gang = self.gangs.get(job)
        return gang.standing.shape if gang else self.pending[job].shape

    def find(self, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
        """Find free slots for a gang: on wholly free devices, where they are exclusive."""
        placing = self.policies.placing
        if not self.policies.exclusive:
            return self.ledger.find(requests, placing)
        slots = self.ledger.find(whole(requests), placing)
        return slots and parts_of(slots, needs_of(requests))

    def asked_free(self, requests: tuple[Request, ...]) -> tuple[Request, ...]:
        """Return what must be free for a gang."""
        return whole(requests) if self.policies.exclusive else requests

    def empty_cells(self) -> Cells:
        """Return a book of the same cells in which nothing is taken: to be read only."""
        if self._empty is None:
            nodes, tenants = tuple(self.nodes.values()), tuple(self.tenants.values())
            self._empty = Cells(self._topology, nodes, tenants)
        return self._empty

    def slots_free(self, slots: Sequence[Slot], requests: tuple[Request, ...]) -> bool:
        """Whether slots found in cells are free on the machines too. O(tasks)."""
        books = self.ledger.books
        needs = needs_of(requests)
        if len(slots) == 1:
            return books[slots[0].node].has(slots[0], needs[0])
        if len({slot.node for slot in slots}) == len(slots):
            pairs = zip(slots, needs, strict=True)
            return all(books[slot.node].has(slot, need) for slot, need in pairs)
        version = self.ledger.version
        self.ledger.take(slots, needs)
        free = self.ledger.settled(slots)
        self.ledger.give(slots, needs)
        self.ledger.version = version
        return free

    def set_open(self, node: NodeId, is_open: bool) -> None:
        """Let a node take new work, or keep new work off it."""
        for book in self._hardware:
            book.set_open(node, is_open)

    def barred(self, job: JobId, slots: Sequence[Slot], now: Instant) -> bool:
        """Whether a reservation keeps a job, waiting or placed, off a place now."""
        standing = self.standing_of(job) if self.reservations.all else None
        return standing is not None and self.reservations.bar(standing.shape, slots, now)

    def shut_nodes(self) -> frozenset[NodeId]:
        """Name the nodes that are drained, lost or broken: closed, but not by a fence."""
        return frozenset(self.ledger.closed - self._fenced)

    def _fence(self, nodes: frozenset[NodeId]) -> None:
        """Let a search see just these nodes closed, besides those that are; until told anew."""
        if nodes == self._fenced:
            return
        ledger, version = self.ledger, self.ledger.version
        for node in sorted(self._fenced - nodes):
            self.set_open(node, True)
        shut = frozenset(
            node
            for node in nodes - self._fenced
            if node in ledger.books and ledger.books[node].open
        )
        for node in sorted(shut):
            self.set_open(node, False)
        self._fenced = self._fenced & nodes | shut
        ledger.version = version  # Nothing was given back.

    @contextmanager
    def fenced(self, shape: Shape, now: Instant) -> Generator[None, None, None]:
        """Look at the cluster as reservations let a job of this shape see it."""
        if not self.reservations.all:
            yield
            return
        before = self._fenced
        self._fence(self.reservations.shut_to(shape, now))
        try:
            yield
        finally:
            self._fence(before)

    def set_bad(self, node: NodeId, devices: frozenset[int]) -> None:
        """Set which devices of a node are not to be used; what sits there stays."""
        for book in self._hardware:
            book.set_bad(node, devices)

    def slots_open(self, slots: Sequence[Slot]) -> bool:
        """Whether a place is on open nodes and sound devices."""
        books = self.ledger.books
        return all(
            books[slot.node].open and books[slot.node].sound(slot.devices) for slot in slots
        )
