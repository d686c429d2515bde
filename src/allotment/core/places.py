"""A place for a waiting job: an empty one, or one that others must leave first."""

from collections.abc import Iterable

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.displacement import Turn, displace, displace_in_cells
from allotment.core.entitle import due_of
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.giving_way import gently
from allotment.core.kept_right import promise_takes_kept
from allotment.core.outrank import conceded, concession, share_by_demotion
from allotment.core.owed import idle_place, in_the_way, owed_place
from allotment.core.own_way import Way, outranked, room_by_demotion, way_past
from allotment.core.packing import displace_pairs
from allotment.core.pending import Key
from allotment.core.plan import Decision, Demote, Evict, Place, Proposals
from allotment.core.preemption import eviction, make_room
from allotment.core.reclaim import shrinkable, surplus
from allotment.core.request import Shape, devices_of, needs_of
from allotment.core.shedding import Shed
from allotment.core.takeover import borrowed_promises
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Placement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC

_FIRST: Key = ((), JobId(0))
"""A place in line before everybody's."""


def is_turn(cluster: Cluster, now: Instant) -> bool:
    """Whether running gangs may be asked to make way, or to move, now."""
    turns = cluster.policies.turns
    return turns is not None and turns.next(now) == now


class Places:
    """Finds places during one cycle, and remembers who was sent away for them."""

    def __init__(self, cluster: Cluster, now: Instant, *, turn: bool) -> None:
        self.cluster = cluster
        self.now = now
        self.turn = turn
        self.sent: list[Gang] = []
        """Those who were sent away, and are not gone yet."""
        for promise in cluster.reserved.values() if self.turn else ():
            self.send(promise.victims)

    def find(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
        """Find a place for a job: an empty one, or one that others must leave first."""
        cluster, requests = self.cluster, waiting.shape.requests
        if cluster.cells is not None:
            return self._find_cells(waiting, due)
        if due is not None:
            slots = cluster.find(requests)
            if slots is not None:
                return Place(Placement(waiting.id, slots, due))
        if self._stands_back(waiting):
            return None
        if due is GUARANTEED and self._somebody_may_go():
            with Trial(cluster) as trial:
                room = make_room(trial, requests, self.now)
            if room is not None:
                place = Placement(waiting.id, room.slots, due)
                return self._reserve(
                    waiting, place, room.victims, room.promises, shed=room.shed
                )
        if (
            self.turn
            and cluster.pending.key(waiting.id) < self.worst()
            and (found := self._displace(waiting)) is not None
        ):
            place = Placement(waiting.id, found.slots, found.entitlement)
            return self._reserve(waiting, place, found.victims)
        return None

    def _find_cells(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
        """Find a place in the tenant's cells, or on idle ones."""
        cluster, shape = self.cluster, waiting.shape
        if due is GUARANTEED:
            found = owed_place(cluster, shape)
            if found is None:
                return None
            place = Placement(waiting.id, found.slots, due, found.quota)
            if not found.borrowers and cluster.slots_free(found.slots, shape.requests):
                return Place(place)
            room = in_the_way(cluster, shape, found, self.now)
            if room is None:
                return None
            return self._reserve(waiting, place, room.victims, room.promises, shed=room.shed)
        if due is OPPORTUNISTIC and (slots := idle_place(cluster, shape)) is not None:
            return Place(Placement(waiting.id, slots, due))
        if (
            self.turn
            and not self._stands_back(waiting)
            and cluster.pending.key(waiting.id) < self.worst()
            and (way := displace_in_cells(cluster, waiting, self.now)) is not None
        ):
            return self._past(waiting, way)
        return None

    def outrank(self, waiting: Standing) -> Proposals:
        """Let less urgent gangs of its tenant's make way for a job, where it has that right."""
        cluster, shape = self.cluster, waiting.shape
        if not cluster.outranking or shape.opportunistic:
            return
        if cluster.cells is None:
            yield from self._outrank_by_count(waiting)
            return
        way = self._own_way(waiting)
        if (
            way is not None
            and self._demotes(shape)
            and room_by_demotion(cluster, shape, way.losers, way.promises)
        ):
            for loser in way.losers:
                yield Demote(loser, waiting.id)
            if not way.promises:
                return
            way = self._own_way(waiting)
        if way is None:
            return
        yield self._past(waiting, way)

    def _own_way(self, waiting: Standing) -> Way | None:
        """Find who of its tenant's own makes way for a job; not in what another queue keeps."""
        cluster, shape = self.cluster, waiting.shape
        way = outranked(cluster, waiting, self.now)
        if way is None or shape.tenant not in cluster.queues.keeps:
            return way
        return None if promise_takes_kept(cluster, shape, self._past(waiting, way)) else way

    def _past(self, waiting: Standing, way: Way) -> Evict:
        """Reserve a place that others of its tenant's make way for."""
        found = way.found
        place = Placement(waiting.id, found.slots, GUARANTEED, found.quota)
        victims = (*way.losers, *way.victims)
        return self._reserve(waiting, place, victims, way.promises, shed=way.shed)

    def _outrank_by_count(self, waiting: Standing) -> Proposals:
        """Do so where shares are counted."""
        cluster = self.cluster
        found = concession(cluster, waiting, self.now)
        if (
            found is not None
            and self._demotes(waiting.shape)
            and share_by_demotion(cluster, waiting, found, self.now)
        ):
            for loser in found.losers:
                yield Demote(loser, waiting.id)
            if not found.promises:
                return
            found = concession(cluster, waiting, self.now)
        if found is not None:
            place = Placement(waiting.id, found.slots, GUARANTEED)
            victims = (*found.losers, *found.victims)
            # From here on they borrow: their share is the urgent job's.
            yield self._reserve(
                waiting, place, victims, found.promises, found.losers, found.shed
            )

    def reclaim(self, waiting: Standing) -> Proposals:
        """Let a job within its queue's guarantee have back what sibling queues were lent."""
        cluster, shape = self.cluster, waiting.shape
        holders, shrinking = surplus(cluster, waiting), shrinkable(cluster, waiting)
        if not (holders or shrinking) or shape.pin:
            return
        if cluster.cells is not None:
            way = way_past(cluster, waiting, holders, self.now, shrinking)
            if way is not None:
                yield self._past(waiting, way)
            return
        lent = conceded(cluster, waiting, holders, self.now)
        if lent is not None and share_by_demotion(cluster, waiting, lent, self.now):
            # They are in nobody's way: they run on, on what is idle.
            for loser in lent.losers:
                yield Demote(loser, waiting.id)
            if (decision := self.find(waiting, due_of(cluster, shape))) is not None:
                yield decision
            return
        if shrinking:
            lent = conceded(cluster, waiting, holders, self.now, shrinking)
        if lent is None:
            return
        place = Placement(waiting.id, lent.slots, GUARANTEED)
        victims = (*lent.losers, *lent.victims)
        yield self._reserve(waiting, place, victims, lent.promises, lent.losers, lent.shed)

    def _demotes(self, shape: Shape) -> bool:
        return self.cluster.tenants[shape.tenant].preempt is Preempt.DEMOTE

    def _displace(self, waiting: Standing) -> Turn | None:
        by_pairs = self.cluster.policies.packing is not None
        return (displace_pairs if by_pairs else displace)(self.cluster, waiting, self.now)

    def _somebody_may_go(self) -> bool:
        """Whether there are borrowers, or such as leave and whom no turn looks at."""
        cluster = self.cluster
        return (
            bool(cluster.borrowers)
            or bool(cluster.leaving and not self.turn)
            or bool(cluster.parting and not self.turn)
            or bool(borrowed_promises(cluster))
        )

    def _reserve(
        self,
        waiting: Standing,
        place: Placement,
        victims: tuple[JobId, ...],
        instead: tuple[JobId, ...] = (),
        demote: tuple[JobId, ...] = (),
        shed: Shed = (),
    ) -> Evict:
        shape = waiting.shape
        needs = needs_of(shape.requests)
        evict = eviction(
            self.cluster,
            ReservedPlace(
                waiting.id,
                place.slots,
                needs,
                place.entitlement,
                victims,
                place.quota,
                shape.pin,
            ),
            instead,
            shed,
        )
        if demote:
            evict = msgspec.structs.replace(evict, demote=demote)
        return gently(self.cluster, evict, self.now)

    def send(self, victims: Iterable[JobId]) -> list[Gang]:
        """Note who was sent away; give those who are still there."""
        gangs = self.cluster.gangs
        there = [gangs[job] for job in victims if job in gangs]
        self.sent += there
        return there

    def _stands_back(self, waiting: Standing) -> bool:
        """Whether somebody who was sent away comes before this job, and may return.

        By now enough may come free for them too; whoever takes it would be sent away at
        once. So the job waits until they are gone, and stand in line themselves.
        """
        cluster, running = self.cluster, self.cluster.running
        if not self.sent or running is None:
            return False
        if cluster.cells is not None:
            # Who leaves is in nobody's way there, and what is promised is taken.
            spare = cluster.cells.room_of(waiting.shape.tenant, waiting.shape.pin)
        else:
            ledger = cluster.ledger
            spare = ledger.whole_free - ledger.owed
            coming = (*cluster.leaving.values(), *cluster.parting.values())
            spare += sum(devices_of(gang.requests) for gang in coming)
        place = cluster.pending.key(waiting.id)
        return any(
            gang.tenant == waiting.shape.tenant
            and devices_of(gang.requests) <= spare
            and running.key(gang.id, self.now) < place
            for gang in self.sent
        )

    def worst(self) -> Key:
        """Return the place in line from which on nobody can be displaced."""
        running = self.cluster.running
        if not self.turn or running is None:
            return _FIRST
        return running.worst(self.now) or _FIRST
