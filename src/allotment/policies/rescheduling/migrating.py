"""Migration: running gangs go where they are closer together, and off nearly empty nodes.

Rule: a gang of a queue that migrates, and lies on more nodes than it need, goes to a place on
fewer of them; the gangs that are most apart first. Then the gangs on the node with the most
free devices go to nodes with fewer, if at least three in four of its devices are free: so
whole nodes become free for large gangs. A gang goes to devices of the same types, and only if
it loses next to nothing: it is sent away as if it were evicted, saves, and goes on from that.
Where its rate is known, it goes closer together only if that pays (`predicting.py`); one that
is slower where it went goes back to its place, if that is free and it pays, once.
No gang moves for a waiting job, and none moves another. One that is suspended for its turn
goes where devices are idle, while others have its own (`elsewhere.py`).

It looks after jobs had their places: when something became free, and every ten seconds while
a gang that has a better place may not go yet.

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3: migration for locality on departures
and in the background, and defragmentation with its stopping rule.

Bad at: gangs that are not slower for being apart, and tell nothing of their steps.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from allotment.core.books import FreePlace
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.ledger import ANY_TYPE, NodeBook
from allotment.core.plan import Decision, Proposals
from allotment.core.regions import NODE
from allotment.core.request import Request, devices_of
from allotment.core.slices import Slices, line_of
from allotment.core.trial import Trial
from allotment.model.gains import MoveFor
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import SECOND, Instant, earlier
from allotment.policies.placing.pack import Pack
from allotment.policies.placing.spread import Spread
from allotment.policies.rescheduling.elsewhere import elsewhere, stuck
from allotment.policies.rescheduling.in_slices import InSlices, Line, in_slices
from allotment.policies.rescheduling.moves import BetterPlace, free_place, moves
from allotment.policies.rescheduling.nearer_in_cells import nearer_in_cells, within
from allotment.policies.rescheduling.packing import packing_lines
from allotment.policies.rescheduling.predicting import by_moving, node_count, pays
from allotment.policies.rescheduling.stints import (
    Stints,
    Worth,
    may_start_anew,
    restart_from,
)

EVERY, AT_MOST_EVERY = 10 * SECOND, SECOND
"""How long from one look to the next: for a gang that may not go yet, and at least."""
EMPTY_PARTS, OF_PARTS = 3, 4
"""A node is left where so many parts of its devices, or more, are free."""

PAIR = 2
"""From so many nodes a gang can go to one only."""


class Movable(Stints):
    """Running gangs of queues that migrate, beside those that take turns."""

    def __init__(
        self, slices: Slices, lines: frozenset[Line], packing: frozenset[Line] = frozenset()
    ) -> None:
        super().__init__(slices, packing)
        self._lines = lines
        self.apart: dict[JobId, Gang] = {}
        """Those on more than one node."""
        self.on: dict[NodeId, dict[JobId, Gang]] = {}
        """Those on one node, by it, if they use its devices."""
        self.back: dict[JobId, Gang] = {}
        """Those that were faster where they were before."""

    def enter(self, gang: Gang) -> None:
        super().enter(gang)
        if (
            line_of(gang.standing.shape) not in self._lines
            or gang.is_surplus
            or gang.suspended
            or not gang.preemptible
            or not gang.standing.runs
        ):
            return
        nodes = {slot.node for slot in gang.slots}
        if gang.gauge is not None and gang.gauge.back:
            self.back[gang.id] = gang
        if len(nodes) > 1:
            self.apart[gang.id] = gang
        elif devices_of(gang.requests):
            self.on.setdefault(gang.slots[0].node, {})[gang.id] = gang

    def leave(self, gang: Gang) -> None:
        super().leave(gang)
        if gang.is_surplus:
            return
        self.apart.pop(gang.id, None)
        self.back.pop(gang.id, None)
        there = self.on.get(gang.slots[0].node)
        if there is not None:
            there.pop(gang.id, None)
            if not there:
                del self.on[gang.slots[0].node]

    def any(self) -> bool:
        """Whether there is a gang that could move. O(1)."""
        return bool(self.apart or self.on)


class Look:
    """One look for better places."""

    def __init__(self, at: Instant, most_free: int) -> None:
        self.at, self.most_free = at, most_free
        self.seen = set[JobId]()
        """The gangs that it has come to: what others take since makes no place better."""
        self.holds_back = False


class Migrating(InSlices):
    """The rescheduler of a cluster with queues that migrate; others may take turns."""

    def __init__(
        self,
        cluster: Cluster,
        lines: frozenset[Line],
        worth: Worth,
        roaming: frozenset[Line] = frozenset(),
        *,
        save_when_told: bool,
    ) -> None:
        """Gangs of `lines` migrate; suspended ones of these, and of `roaming`, go elsewhere.

        Where jobs `save_when_told`, a restart costs them no work that is not saved.
        """
        super().__init__(cluster)
        self._roaming = (lines | roaming) & cluster.slices.keys()
        self.order: Movable = Movable(
            cluster.slices, lines, packing_lines(cluster.tenants.values())
        )
        self._worth = worth
        self._save_when_told = save_when_told
        self._looked_at = Instant(-EVERY)
        self._version = -1
        """The books as they were at the last look."""
        self._holds_back = False
        """Whether a gang had a better place then, and could not go yet."""
        self._look: Look | None = None
        """The present look. It is due until it is over; each gang that goes ends a cycle."""

    # ── when ────────────────────────────────────────────────────────────────────────────

    def looks(self, now: Instant) -> bool:
        return super().looks(now) or self._migrates(now) or self._some_are_stuck(now)

    def next_look(self, now: Instant) -> Instant | None:
        first, due = super().next_look(now), self._due()
        return first if due is None else earlier(first, Instant(max(now + 1, due)))

    def _some_are_stuck(self, now: Instant) -> bool:
        """Whether a suspended gang waits that may go elsewhere, though devices are free."""
        return any(True for _ in stuck(self.cluster, self._roaming, self._worth, now))

    def _migrates(self, now: Instant) -> bool:
        due = self._due()
        return due is not None and now >= due

    def _due(self) -> int | None:
        """Return when it looks next for better places."""
        if not (self.order.any() and self.cluster.ledger.whole_free):
            return None
        if self.cluster.ledger.version != self._version:
            return self._looked_at + AT_MOST_EVERY
        return self._looked_at + EVERY if self._holds_back or self.order.back else None

    # ── what ────────────────────────────────────────────────────────────────────────────

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        yield from super().around(self._and_elsewhere(decisions, now), now)
        if self._migrates(now):
            look = self._look
            if look is None or look.at != now:
                look = self._look = Look(now, self._most_free())
            yield from self._moves(look, now)
            self._looked_at, self._version = now, self.cluster.ledger.version
            self._holds_back, self._look = look.holds_back, None

    def _and_elsewhere(self, decisions: Proposals, now: Instant) -> Proposals:
        """Yield the decisions of the queue pass, then which suspended gangs go elsewhere."""
        yield from decisions
        gangs = list(stuck(self.cluster, self._roaming, self._worth, now))
        place_for = partial(self._idle_place, now)
        yield from elsewhere(self.cluster, gangs, self._first, place_for, now)

    def _first(self, gang: Gang) -> tuple[int, Instant, JobId]:
        """Return the place of a suspended gang: the most urgent first, then whose turn was."""
        return -gang.priority, gang.suspended_at or gang.placed_at, gang.id

    def _idle_place(self, now: Instant, gang: Gang) -> FreePlace | None:  # noqa: ARG002
        """Find a free place for a suspended gang, on devices of the types of its own."""
        return self._of_its_types(gang, self._free_place(gang, gang.requests))

    def _free_place(self, gang: Gang, requests: tuple[Request, ...]) -> FreePlace | None:
        """Find a free place; where shares are counted, apart from what a gang has."""
        if self.cluster.cells is not None:
            return free_place(self.cluster, gang, requests)
        slots = self.cluster.ledger.find(requests, Pack())
        return None if slots is None else (slots, ())

    def _of_its_types(self, gang: Gang, place: FreePlace | None) -> FreePlace | None:
        """Return a place, if its devices are of the same types as those of a gang."""
        same = place is not None and self._types(place[0]) == self._types(gang.slots)
        return place if same else None

    def _moves(self, look: Look, now: Instant) -> Iterator[Decision]:
        back = partial(self._if_worth, look, MoveFor.BACK, self._before)
        yield from moves(self.cluster, sorted(self.order.back), back, now, MoveFor.BACK)
        together = partial(self._if_worth, look, MoveFor.NEARER, partial(self._together, look))
        apart = sorted(self.order.apart.values(), key=_most_apart)
        new = [gang.id for gang in apart if gang.id not in look.seen]
        yield from moves(self.cluster, new, together, now)
        emptied = self._emptiest()
        if emptied is not None:
            off = partial(self._if_worth, look, MoveFor.ROOM, partial(self._off, emptied))
            new = sorted(self.order.on[emptied.id].keys() - look.seen)
            yield from moves(self.cluster, new, off, now, MoveFor.ROOM)

    def _if_worth(
        self, look: Look, why: MoveFor, place_for: BetterPlace, gang: Gang
    ) -> FreePlace | None:
        """Find a better place for a gang, if it gains by going there, and loses little."""
        look.seen.add(gang.id)
        stays = why is not MoveFor.BACK and gang.gauge is not None and gang.gauge.stays
        found = None if stays or gang.id in self.cluster.reserved else place_for(gang)
        found = self._of_its_types(gang, found)
        if found is None:
            return None
        gain = by_moving(gang, found[0], why, look.at)
        if self._worth(gang, look.at) and (
            why is MoveFor.ROOM
            or pays(gang, gain, look.at, save_when_told=self._save_when_told)
        ):
            return found
        look.holds_back = True
        return None

    def _before(self, gang: Gang) -> FreePlace | None:
        """Return the place where a gang was before, if it is free; where shares are counted."""
        gauge, cluster = gang.gauge, self.cluster
        back, books = gauge.back if gauge is not None else (), cluster.ledger.books
        there = all(
            slot.node in books and max(slot.devices, default=-1) < len(books[slot.node].types)
            for slot in back
        )
        if cluster.cells is not None or not (back and there and cluster.slots_open(back)):
            return None
        with Trial(cluster) as trial:
            trial.drop(gang.id)
            return (back, ()) if trial.fits(back, gang.needs) else None

    def _together(self, look: Look, gang: Gang) -> FreePlace | None:
        """Find a place on fewer nodes, where it may keep devices that it has."""
        if self.cluster.cells is not None:
            return nearer_in_cells(self.cluster, gang)
        find = self.cluster.ledger.find
        if node_count(gang.slots) == PAIR and not self._fits_a_node(look, gang):
            return None
        with Trial(self.cluster) as trial:
            trial.drop(gang.id)
            # The emptiest nodes hold most of a gang that none holds as a whole.
            slots = find(within(gang.requests, NODE), Pack()) or find(gang.requests, Spread())
        nearer = slots is not None and node_count(slots) < node_count(gang.slots)
        return (slots, ()) if slots is not None and nearer else None

    def _fits_a_node(self, look: Look, gang: Gang) -> bool:
        """Whether a node may have devices enough for a gang, by numbers alone."""
        wanted, own = devices_of(gang.requests), Counter[NodeId]()
        for slot in gang.slots:
            own[slot.node] += len(slot.devices)
        books = self.cluster.ledger.books
        most = max(_free(books[node]) + count for node, count in own.items())
        return wanted <= max(look.most_free, most)

    def _most_free(self) -> int:
        """Return the most free devices of any node. O(nodes)."""
        return max(map(_free, self.cluster.ledger.books.values()), default=0)

    def _off(self, emptied: NodeBook, gang: Gang) -> FreePlace | None:
        """Find a place on nodes with fewer free devices than one that is to be left."""
        place = self._free_place(gang, within(gang.requests, NODE))
        if place is None:
            return None
        node = place[0][0].node
        fuller = _free(self.cluster.ledger.books[node]) < _free(emptied)
        return place if fuller and node != emptied.id else None

    def _emptiest(self) -> NodeBook | None:
        """Return the node in use with the most free devices, if most of them are free."""
        books = self.cluster.ledger.books
        found = (
            book
            for node in self.order.on
            if _free(book := books[node]) * OF_PARTS >= len(book.types) * EMPTY_PARTS
        )
        return min(found, key=lambda book: (-_free(book), book.id), default=None)

    def _types(self, slots: Sequence[Slot]) -> list[str]:
        """Return the types of the devices of a place, sorted."""
        type_of = self.cluster.ledger.type_of
        return sorted(type_of(slot.node, index) for slot in slots for index in slot.devices)


def migrating(
    cluster: Cluster,
    worth: Worth = may_start_anew,
    roaming: frozenset[Line] = frozenset(),
    *,
    save_when_told: bool = False,
) -> InSlices | None:
    """Make the rescheduler of a cluster, if any of its queues is sliced, or migrates.

    Suspended gangs of the queues in `roaming` go elsewhere, too.
    """
    lines = lines_that_migrate(cluster)
    if lines or roaming & cluster.slices.keys():
        return Migrating(cluster, lines, worth, roaming, save_when_told=save_when_told)
    return in_slices(cluster)


def lines_that_migrate(cluster: Cluster) -> frozenset[Line]:
    """Return the queues that migrate, with their tenants."""
    return frozenset(
        (tenant.name, queue.name)
        for tenant in cluster.tenants.values()
        for queue in tenant.queues
        if queue.migrates
    )


def ran_for_long(gang: Gang, now: Instant) -> bool:
    """Whether a gang that saves when it is told to go ran for long enough."""
    return now >= restart_from(gang)


def _most_apart(gang: Gang) -> tuple[int, JobId]:
    return -node_count(gang.slots), gang.id


def _free(book: NodeBook) -> int:
    return book.whole[ANY_TYPE]
