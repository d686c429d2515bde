"""Affinity: gangs share nodes with gangs of their own size, and take turns there.

Rule: a node has the affinity of the gang that has been on it longest: how many devices that
asked for. A gang that one node can hold goes to a node of its own affinity with room, the least
loaded first; else to an empty node; else wherever it fits. Where it fits nowhere, it takes its
turn, with the gangs of its own affinity before others, on the least loaded node first. Of the
suspended gangs that go elsewhere (`elsewhere.py`) one on the most loaded node is the first.

Source: Xiao et al., Gandiva, OSDI 2018, section 3.2 (reactive mode, Algorithm 1).

Bad at: leaving whole nodes free. Each size begins a node of its own, so that a gang of a whole
node finds fewer of them than with `pack`.
"""

from msgspec.structs import replace

from allotment.core.books import FreePlace
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.ledger import ANY_TYPE, NodeBook
from allotment.core.plan import Place, Proposals
from allotment.core.request import Request, total_of
from allotment.core.slices import Slices, line_of
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Placement, Slot
from allotment.model.quantity import DEVICE, Instant
from allotment.model.spec import ANY_ARCH
from allotment.policies.placing.pack import Pack
from allotment.policies.rescheduling.in_slices import InSlices, Line
from allotment.policies.rescheduling.migrating import (
    Migrating,
    Movable,
    lines_that_migrate,
    migrating,
)
from allotment.policies.rescheduling.packing import packing_lines
from allotment.policies.rescheduling.stints import Worth, may_start_anew

SCALE = 1_000
"""A load of so much is one gang for each device."""


class Residents(Movable):
    """Gangs by the nodes that they are on, suspended ones too, beside those that may move."""

    def __init__(
        self, slices: Slices, lines: frozenset[Line], packing: frozenset[Line] = frozenset()
    ) -> None:
        super().__init__(slices, lines, packing)
        self._there: dict[NodeId, dict[JobId, Gang]] = {}
        self._summed: dict[NodeId, tuple[int, int]] = {}
        """Affinity of a node and what is asked for there, until what is there changes."""

    def enter(self, gang: Gang) -> None:
        super().enter(gang)
        if not gang.is_surplus and _size(gang):
            for node in _nodes(gang):
                self._there.setdefault(node, {})[gang.id] = gang
                self._summed.pop(node, None)

    def leave(self, gang: Gang) -> None:
        super().leave(gang)
        if gang.is_surplus:
            return
        for node in _nodes(gang):
            there = self._there.get(node)
            if there is not None and there.pop(gang.id, None) is not None:
                self._summed.pop(node, None)
                if not there:
                    del self._there[node]

    def affinity(self, node: NodeId) -> int:
        """Return the size of the gang that has been longest on a node; 0 if there is none."""
        return self._told(node)[0]

    def load(self, book: NodeBook) -> int:
        """Return what the gangs on a node ask for, as a part of it: `SCALE` is all of it."""
        return self._told(book.id)[1] * SCALE // max(1, len(book.types) * DEVICE)

    def _told(self, node: NodeId) -> tuple[int, int]:
        known = self._summed.get(node)
        if known is None:
            gangs = self._there.get(node, {}).values()
            first = min(gangs, key=lambda gang: (gang.placed_at, gang.id), default=None)
            asked = (s.gpu_milli for gang in gangs for s in gang.slots if s.node == node)
            known = self._summed[node] = (_size(first) if first is not None else 0, sum(asked))
        return known


class ByAffinity(Migrating):
    """The rescheduler of a cluster with queues that go by affinity."""

    def __init__(
        self,
        cluster: Cluster,
        lines: frozenset[Line],
        moving: frozenset[Line],
        worth: Worth,
        *,
        save_when_told: bool,
    ) -> None:
        """Those of `lines` go by affinity, those of `moving` migrate."""
        super().__init__(cluster, moving, worth, lines, save_when_told=save_when_told)
        packing = packing_lines(cluster.tenants.values())
        self.order = self._residents = Residents(cluster.slices, moving, packing)
        self._lines = lines

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        return super().around(self._by_affinity(decisions, now), now)

    def _by_affinity(self, decisions: Proposals, now: Instant) -> Proposals:
        """Yield the decisions of the queue pass, better placed."""
        for decision in decisions:
            yield self._placed(decision, now) if isinstance(decision, Place) else decision

    # ── where jobs start ────────────────────────────────────────────────────────────────

    def _placed(self, decision: Place, now: Instant) -> Place:
        """Return the same start in the place that affinity has for it, if it has one."""
        placement = decision.placement
        if decision.reserved:
            return decision
        shape = self.cluster.pending[placement.job].shape
        requests = shape.requests
        if line_of(shape) not in self._lines or len(requests) != 1:
            return decision
        if len(placement.slots) != requests[0].count:
            return decision  # It starts larger than it must: in places all over the cluster.
        slots = self._own_or_empty(placement, requests[0], now)
        return replace(decision, placement=replace(placement, slots=slots or placement.slots))

    def _own_or_empty(
        self, placement: Placement, request: Request, now: Instant
    ) -> tuple[Slot, ...] | None:
        """Find a place on a node of a gang's own affinity, or on an empty one. O(nodes)."""
        cluster, size = self.cluster, total_of((request,)).gpu_milli
        if not size:
            return None
        kind = self._kind(placement.slots[0])
        for book in self._in_order(size):
            slots = _on(book, request, kind)
            if slots is not None and not cluster.barred(placement.job, slots, now):
                return slots
        return None

    def _in_order(self, size: int) -> list[NodeBook]:
        """Return the nodes of an affinity, least loaded first, and then those with none."""
        own: list[tuple[int, NodeId]] = []
        empty: list[tuple[int, NodeId]] = []
        books = self.cluster.ledger.books
        for node, book in books.items():
            affinity = self._residents.affinity(node)
            if affinity == size:
                own.append((self._residents.load(book), node))
            elif not affinity:
                empty.append((len(book.types), node))
        return [books[node] for _, node in (*sorted(own), *sorted(empty))]

    def _kind(self, slot: Slot) -> str:
        """Return by what the ledger counts devices like those of a slot."""
        ledger = self.cluster.ledger
        if len(ledger.types) == 1 or not slot.devices:
            return ANY_TYPE
        return ledger.type_of(slot.node, slot.devices[0])

    # ── whose turn it is ────────────────────────────────────────────────────────────────

    def _over(self, line: Line, job: Standing, now: Instant) -> list[Gang]:
        """Return those that may be preempted: on nodes of the job's own affinity first."""
        over = super()._over(line, job, now)
        if line not in self._lines:
            return over
        size, order, books = job.gpu_milli, self._residents, self.cluster.ledger.books
        places: dict[NodeId, tuple[bool, int, NodeId]] = {}

        def key(gang: Gang) -> tuple[int, tuple[bool, int, NodeId]]:
            node = gang.slots[0].node
            place = places.get(node)
            if place is None:
                place = order.affinity(node) != size, order.load(books[node]), node
                places[node] = place
            return gang.priority, place

        return sorted(over, key=key)

    # ── which suspended gangs go elsewhere ───────────────────────────────────────────────

    def _first(self, gang: Gang) -> tuple[int, Instant, JobId]:
        """Return the place of a suspended gang: one on the most loaded node comes first."""
        books = self.cluster.ledger.books
        load = max(self._residents.load(books[node]) for node in _nodes(gang))
        return -load, gang.suspended_at or gang.placed_at, gang.id

    def _idle_place(self, now: Instant, gang: Gang) -> FreePlace | None:
        """Find a free place of the types of a gang's devices, by affinity or else anywhere."""
        here, slots = Placement(gang.id, gang.slots, gang.entitlement), None
        if len(gang.requests) == 1:
            slots = self._own_or_empty(here, gang.requests[0], now)
        place = (slots, ()) if slots is not None else self._free_place(gang, gang.requests)
        return self._of_its_types(gang, place)


def by_affinity(
    cluster: Cluster, worth: Worth = may_start_anew, *, save_when_told: bool = False
) -> InSlices | None:
    """Make the rescheduler of a cluster with queues that go by affinity, take turns or migrate.

    In cells jobs start where their cells are: only suspended ones go elsewhere.
    """
    lines = frozenset(
        (tenant.name, queue.name)
        for tenant in cluster.tenants.values()
        for queue in tenant.queues
        if queue.by_affinity
    )
    if lines and cluster.cells is None:
        moving = lines_that_migrate(cluster)
        return ByAffinity(cluster, lines, moving, worth, save_when_told=save_when_told)
    return migrating(cluster, worth, lines, save_when_told=save_when_told)


def _on(book: NodeBook, request: Request, kind: str) -> tuple[Slot, ...] | None:
    """Find room for all tasks of a gang on one node."""
    need, count = request.need, request.count
    if not (book.open and request.arch in (ANY_ARCH, book.arch) and book.serves(request)):
        return None
    found = book.fit(need, kind, count, Pack())
    if len(found) < count:
        return None
    return tuple(Slot(book.id, devices, need.gpu_milli) for devices in found)


def _size(gang: Gang) -> int:
    """Return how many thousandths of devices a gang asks for."""
    return total_of(gang.requests).gpu_milli


def _nodes(gang: Gang) -> set[NodeId]:
    return {slot.node for slot in gang.slots}
