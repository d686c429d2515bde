"""The cheapest set of borrowers whose leaving makes room.

Rule: those who are leaving anyway come first, then borrowers in the order of the victims
policy, one whole gang at a time, until the place exists; then whoever turned out not to be
in the way is let off, dearest first. Only opportunistic gangs are ever chosen, so no
tenant loses anything it is owed, and no two evictions can chase each other: an eviction
always moves capacity from borrowed use to guaranteed use, of which there is a finite sum.
What is promised to borrowers goes before anybody who works; and where the surplus tasks of
elastic borrowers are enough, no whole gang goes.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.plan import Evict
from allotment.core.request import Request, lease_part
from allotment.core.shedding import Leaving, Shed, may_shed
from allotment.core.takeover import (
    Holder,
    borrowed_promises,
    gangs_of,
    promises_of,
    put_back,
    take_out,
)
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant


class Room(msgspec.Struct, frozen=True):
    """A place for a gang, and those who must leave it first."""

    slots: tuple[Slot, ...]
    victims: tuple[JobId, ...]
    promises: tuple[JobId, ...] = ()
    """Those who were promised what is there."""
    shed: Shed = ()
    """Elastic gangs that only shrink, and how many tasks each keeps."""


def make_room(trial: Trial, requests: tuple[Request, ...], now: Instant) -> Room | None:
    """Find a place that eviction can free, or None. The trial is left as it was.

    O(borrowers · search), but no search is made before the sums suffice.
    """

    def find() -> tuple[Slot, ...] | None:
        return trial.find(requests)

    return _clear(trial, find, requests, now)


def clear_leases(trial: Trial, gang: Gang, now: Instant) -> Room | None:
    """Find who must leave so that a suspended gang gets its own devices back."""

    def find() -> tuple[Slot, ...] | None:
        mark = trial.mark()
        trial.take_leases(gang)
        if trial.cluster.ledger.settled(gang.slots):
            return gang.slots
        trial.rollback(mark)
        return None

    leases = tuple(Request(r.count, lease_part(r.need), r.types, r.arch) for r in gang.requests)
    return _clear(trial, find, leases, now, besides=gang.id)


def _clear(
    trial: Trial,
    find: Callable[[], tuple[Slot, ...] | None],
    requests: tuple[Request, ...],
    now: Instant,
    besides: JobId | None = None,
) -> Room | None:
    if (room := _by_shedding(trial, find, requests, now)) is not None:
        return room
    start = trial.mark()
    dropped: list[Holder] = []
    for job in sorted(trial.cluster.parting):
        trial.let_part(job)
    slots: tuple[Slot, ...] | None = None
    ledger = trial.cluster.ledger
    for holder in list(_candidates(trial, now)):
        if (holder.id if isinstance(holder, Gang) else holder.job) == besides:
            continue
        take_out(trial, holder)
        dropped.append(holder)
        if ledger.may_hold(requests) and (slots := find()) is not None:
            break
    if slots is None:
        trial.rollback(start)
        return None
    needed = still_needed(trial, dropped, slots)
    trial.rollback(start)
    return Room(slots, gangs_of(needed), promises_of(needed))


def _by_shedding(
    trial: Trial,
    find: Callable[[], tuple[Slot, ...] | None],
    requests: tuple[Request, ...],
    now: Instant,
) -> Room | None:
    """Find room that is there once surplus tasks go, besides those who leave anyway."""
    cluster, ledger = trial.cluster, trial.cluster.ledger
    if not (cluster.elastic or cluster.parting) or borrowed_promises(cluster):
        return None
    elastic = [
        gang
        for gang in cluster.elastic.values()
        if gang.entitlement is Entitlement.OPPORTUNISTIC and may_shed(cluster, gang)
    ]
    key = cluster.policies.victims.key
    elastic.sort(key=lambda gang: (key(gang, now), -gang.id))

    def probe() -> tuple[Slot, ...] | None:
        mark = trial.mark()
        found = find() if ledger.may_hold(requests) else None
        trial.rollback(mark)
        return found

    start = trial.mark()
    leaving = Leaving(trial)
    for job in sorted(cluster.parting):
        trial.let_part(job)
    slots = find() if trial.mark() > start and ledger.may_hold(requests) else None
    units = [(gang, 0) for _, gang in sorted(cluster.leaving.items())]
    for gang, tasks in [*units, *((gang, gang.least) for gang in elastic)]:
        if slots is not None:
            break
        leaving.let_go(gang, tasks)
        found = probe()
        if found is not None:
            leaving.keep_most(probe, found)
            slots = find()
    if slots is None:
        trial.rollback(start)
        return None
    place = slots
    way = leaving.take_back(lambda: ledger.settled(place))
    trial.rollback(start)
    return Room(place, way.victims, shed=way.shed)


def _anyway() -> bool:
    return True


def let_off(
    trial: Trial,
    dropped: Sequence[Holder],
    slots: tuple[Slot, ...],
    stands: Callable[[], bool] = _anyway,
) -> tuple[JobId, ...]:
    """Bring back everybody the found place can do without; give the gangs that must go."""
    return gangs_of(still_needed(trial, dropped, slots, stands))


def still_needed(
    trial: Trial,
    dropped: Sequence[Holder],
    slots: tuple[Slot, ...],
    stands: Callable[[], bool] = _anyway,
) -> list[Holder]:
    """Bring back, dearest first, everybody the found place can do without; give the others.

    The place is taken on the ledger; `stands` tells whether its grounds still hold.
    """
    needed: list[Holder] = []
    for holder in reversed(dropped):
        put_back(trial, holder)
        if not trial.cluster.ledger.settled(slots) or not stands():
            take_out(trial, holder)
            needed.append(holder)
    needed.reverse()
    return needed


def _candidates(trial: Trial, now: Instant) -> Iterator[Holder]:
    """Return those who are leaving, what is promised to borrowers, then borrowers.

    These come cheapest first; ties: newest first.
    """
    cluster = trial.cluster
    promised = {victim for place in cluster.reserved.values() for victim in place.victims}
    yield from [gang for _, gang in sorted(cluster.leaving.items())]
    yield from borrowed_promises(cluster)
    key = cluster.policies.victims.key
    borrowers = [
        gang
        for gangs in cluster.borrowers.values()
        for gang in gangs.values()
        if not gang.leaving and gang.id not in promised
    ]
    borrowers.sort(key=lambda gang: (key(gang, now), -gang.id))
    for gang in borrowers:
        if gang.entitlement is Entitlement.OPPORTUNISTIC:
            yield gang


def eviction(
    cluster: Cluster,
    place: ReservedPlace,
    instead: tuple[JobId, ...] = (),
    shed: Shed = (),
) -> Evict:
    """Promise a place, and tell those on it to go who were not told yet.

    `instead` are those whose promises it takes over; `shed` are those who only shrink.
    """
    gangs = [cluster.gangs[job] for job in place.victims]
    tell = tuple(gang.id for gang in gangs if not gang.leaving)
    if cluster.cells is None:
        return Evict(place, tell, instead=instead, shed=shed)
    own = tuple(gang.id for gang in gangs if gang.entitlement is Entitlement.GUARANTEED)
    return Evict(place, tell, own, instead, shed=shed)
