"""Urgent jobs where shares are counted: who of their own tenant loses its share for them.

Rule: as in cells (`core/own_way.py`). Where surplus tasks of elastic gangs are enough, these;
else, lowest priority first, one whole gang or promise at a time, until the tenant's guarantee
has room for the urgent job and there is a place, if need be by sending borrowers away; then
whoever turned out not to be needed keeps its share.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.entitle import due_of
from allotment.core.gang import Gang, Standing
from allotment.core.own_way import lower_ones
from allotment.core.preemption import Room, make_room, still_needed
from allotment.core.request import needs_of
from allotment.core.shedding import Leaving, Shed, Unit, elastic_among
from allotment.core.takeover import (
    Holder,
    awaited,
    gangs_of,
    promises_of,
    take_out,
)
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt


class Concession(msgspec.Struct, frozen=True):
    """A place for an urgent job, and what others lose for it."""

    slots: tuple[Slot, ...]
    losers: tuple[JobId, ...]
    """Gangs of its own tenant."""
    victims: tuple[JobId, ...]
    """Others whose leaving is awaited there."""
    promises: tuple[JobId, ...]
    shed: Shed = ()
    """Gangs that only shrink, of its own tenant and borrowers."""


def concession(cluster: Cluster, waiting: Standing, now: Instant) -> Concession | None:
    """Find who must give up its share, or a promise of it, for a more urgent job."""
    shape = waiting.shape
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is None or tenant.preempt is Preempt.NONE or shape.opportunistic or shape.pin:
        return None
    lower = lower_ones(cluster, waiting, now)
    shrinking = elastic_among(cluster, lower) if tenant.preempt is Preempt.EVICT else ()
    return conceded(cluster, waiting, lower, now, shrinking)


def conceded(
    cluster: Cluster,
    waiting: Standing,
    holders: Sequence[Holder],
    now: Instant,
    shrinking: Sequence[Unit] = (),
) -> Concession | None:
    """Find who of these, first ones first, must give up its share for a job, and its place.

    Where it is enough that some of those who are `shrinking` do, nobody goes whole.
    """
    shape = waiting.shape
    if shrinking and (found := _by_shedding(cluster, waiting, shrinking, now)) is not None:
        return found
    if not holders:
        return None
    promises = [each for each in holders if not isinstance(each, Gang)]
    with Trial(cluster) as trial:
        going = awaited(cluster, promises) if promises else []
        for gang in going:
            trial.drop(gang.id)
        losers: list[Holder] = []
        room: Room | None = None
        for holder in holders:
            take_out(trial, holder)
            losers.append(holder)
            if due_of(cluster, shape) is not Entitlement.GUARANTEED:
                continue
            room = _room(trial, waiting, now)
            if room is not None:
                break
        if room is None:
            return None
        return _spared(trial, waiting, room, losers, going)


def _by_shedding(
    cluster: Cluster, waiting: Standing, elastic: Sequence[Unit], now: Instant
) -> Concession | None:
    """Find a place that its tenant is owed once surplus tasks of these alone are gone."""

    def owed() -> bool:
        return due_of(cluster, waiting.shape) is Entitlement.GUARANTEED

    with Trial(cluster) as trial:

        def look() -> Room | None:
            return _room(trial, waiting, now) if owed() else None

        leaving = Leaving(trial)
        room: Room | None = None
        for gang, least in elastic:
            leaving.let_go(gang, least)
            room = look()
            if room is not None:
                room = leaving.keep_most(look, room)
                break
        if room is None:
            return None
        place = _take(trial, waiting, room)
        way = leaving.take_back(lambda: owed() and cluster.ledger.settled(place))
        return Concession(place, (), room.victims, room.promises, (*way.shed, *room.shed))


def _take(trial: Trial, waiting: Standing, room: Room) -> tuple[Slot, ...]:
    """Take a place, as it is once others have left it."""
    for job in room.promises:
        trial.unreserve(job)
    for job in room.victims:
        trial.drop(job)
    trial.shed_all(room.shed)
    trial.hold(room.slots, needs_of(waiting.shape.requests))
    return room.slots


def _spared(
    trial: Trial, waiting: Standing, room: Room, losers: Sequence[Holder], going: list[Gang]
) -> Concession:
    """Let everybody keep what the place can do without."""
    cluster, shape = trial.cluster, waiting.shape
    _take(trial, waiting, room)

    def owed() -> bool:
        return due_of(cluster, shape) is Entitlement.GUARANTEED

    needed = still_needed(trial, losers, room.slots, owed)
    waited_for = gangs_of(still_needed(trial, going, room.slots))
    return Concession(
        room.slots,
        gangs_of(needed),
        (*waited_for, *room.victims),
        (*promises_of(needed), *room.promises),
        room.shed,
    )


def _room(trial: Trial, waiting: Standing, now: Instant) -> Room | None:
    """Find a place out of what is free now, or what borrowers can be made to leave."""
    requests = waiting.shape.requests
    mark = trial.mark()
    slots = trial.find(requests)
    trial.rollback(mark)
    return Room(slots, ()) if slots is not None else make_room(trial, requests, now)


def share_by_demotion(
    cluster: Cluster, waiting: Standing, found: Concession, now: Instant
) -> bool:
    """Whether there is a place once gangs only lose their guarantee, and stay."""
    with Trial(cluster) as trial:
        for job in found.losers:
            trial.demote(cluster.gangs[job])
        for job in found.promises:
            trial.unreserve(job)
        if due_of(cluster, waiting.shape) is not Entitlement.GUARANTEED:
            return False
        return _room(trial, waiting, now) is not None
