"""Who of a tenant's own makes way in its cells: for a more urgent job, or at its turn.

Rule: lowest priority first; surplus tasks of elastic gangs before whole gangs where the tenant
lets urgent jobs evict. A place is sought in the cells that these have, and only then in
others in their place. Where hardware is lost, nobody else may have less for it: of cells that
are given up and not taken at once, lost ones would be made up for out of what others are owed.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.rights import objection
from allotment.core.cells.safety import shortage, shorter
from allotment.core.cells.search import Found
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.owed import in_the_way, place_beside
from allotment.core.preemption import still_needed
from allotment.core.request import Shape, needs_of
from allotment.core.shedding import Leaving, Shed, Unit, elastic_among
from allotment.core.takeover import (
    Holder,
    awaited,
    gangs_of,
    lesser_promises,
    promises_of,
    take_out,
)
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, Resources
from allotment.model.tenancy import Preempt


class Way(msgspec.Struct, frozen=True):
    """A place in a tenant's own cells, and those of its own who lose theirs for it."""

    found: Found
    losers: tuple[JobId, ...]
    promises: tuple[JobId, ...] = ()
    """Those who were promised what is there, and stand in line again."""
    victims: tuple[JobId, ...] = ()
    """Borrowers who must leave."""
    shed: Shed = ()
    """Gangs of either kind that only shrink, and how many tasks each keeps."""


def outranked(cluster: Cluster, waiting: Standing, now: Instant) -> Way | None:
    """Find who of a tenant's own less urgent gangs must make way for a more urgent job.

    Lowest priority first; of one priority first those who are only promised a place, then
    whoever the victims policy would send first; whoever turns out not to be needed keeps
    its share.
    """
    tenant = cluster.tenants.get(waiting.shape.tenant)
    if tenant is None or tenant.preempt is Preempt.NONE:
        return None
    lower = lower_ones(cluster, waiting, now)
    shrinking = elastic_among(cluster, lower) if tenant.preempt is Preempt.EVICT else ()
    return way_past(cluster, waiting, lower, now, shrinking)


def way_past(
    cluster: Cluster,
    waiting: Standing,
    holders: Sequence[Holder],
    now: Instant,
    shrinking: Sequence[Unit] = (),
) -> Way | None:
    """Find who of these, first ones first, must make way for a job, and which borrowers.

    Where it is enough that some of those who are `shrinking` do, nobody goes whole.
    """
    way = None
    if shrinking:
        way = _by_shedding(cluster, waiting.shape, shrinking)
    if way is None and holders:
        way = give_way(cluster, waiting.shape, holders)
    if way is None:
        return None
    with Trial(cluster) as trial:
        for job in way.promises:
            trial.unreserve(job)
        for job in way.losers:
            trial.drop(job)
        for job, tasks in way.shed:
            trial.shed(cluster.gangs[job], tasks)
        room = in_the_way(cluster, waiting.shape, way.found, now)
    if room is None:
        return None
    promises, shed = (*way.promises, *room.promises), (*way.shed, *room.shed)
    return Way(way.found, way.losers, promises, room.victims, shed)


def _by_shedding(cluster: Cluster, shape: Shape, elastic: Sequence[Unit]) -> Way | None:
    """Find a place that is there once less urgent gangs give up surplus tasks alone."""
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    with cells.keeping(shape.tenant, shape.pin):
        way = _way_by_shedding(cluster, cells, shape, elastic)
    if way is not None and _spares_others(cluster, cells, shape, way):
        return way
    return _way_by_shedding(cluster, cells, shape, elastic)


def _way_by_shedding(
    cluster: Cluster, cells: Cells, shape: Shape, elastic: Sequence[Unit]
) -> Way | None:
    needs = needs_of(shape.requests)

    def look() -> Found | None:
        return place_beside(cluster, shape)

    with Trial(cluster) as trial:
        leaving = Leaving(trial)
        found: Found | None = None
        for gang, least in elastic:
            leaving.let_go(gang, least)
            found = look()
            if found is not None:
                found = leaving.keep_most(look, found)
                break
        if found is None:
            return None
        place = found
        _take_over(trial, place, needs)

        def stands() -> bool:
            return cluster.ledger.settled(place.slots) and not objection(
                cells, shape.tenant, shape.pin, place.slots, needs, place.quota
            )

        return Way(place, (), shed=leaving.take_back(stands).shed)


def lower_ones(cluster: Cluster, waiting: Standing, now: Instant) -> list[Holder]:
    """Return a tenant's own less urgent gangs and promises, the first to lose theirs first.

    Gangs that its rules protect now are left out.
    """
    key, mercy = cluster.policies.victims.key, cluster.mercy
    tenant = waiting.shape.tenant
    spared = mercy is not None and mercy.exhausted(tenant, now)
    gangs = [
        ((gang.priority, 1, *key(gang, now), -gang.id), gang)
        for gang in (cluster.gangs.values() if not spared else ())
        if gang.tenant == tenant
        and gang.entitlement is Entitlement.GUARANTEED
        and gang.priority <= waiting.priority
        and not gang.leaving
        and not gang.suspended
        and (
            gang.priority < waiting.priority
            if mercy is None
            else mercy.yields(waiting, gang, now)
        )
    ]
    promises = [
        ((priority, 0, -promise.job), promise)
        for priority, promise in lesser_promises(cluster, waiting)
    ]
    return [holder for _, holder in sorted([*gangs, *promises], key=lambda pair: pair[0])]


def room_by_demotion(
    cluster: Cluster, shape: Shape, losers: Sequence[JobId], promises: Sequence[JobId] = ()
) -> bool:
    """Whether there is a place once gangs only lose their guarantee, and stay.

    Cells that they give up are nobody's then: where hardware is lost, others may be owed
    them first.
    """
    with Trial(cluster) as trial:
        for loser in losers:
            trial.demote(cluster.gangs[loser])
        for promise in promises:
            trial.unreserve(promise)
        return place_beside(cluster, shape) is not None


def give_way(cluster: Cluster, shape: Shape, holders: Sequence[Holder]) -> Way | None:
    """Find a place that is there once some of these, first ones first, lose theirs.

    It is sought in the cells that these have, and only then in others in their place: so
    fewer must go, and it is the same whichever nodes are free beside.
    """
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    with cells.keeping(shape.tenant, shape.pin):
        way = _way(cluster, cells, shape, holders)
    if way is not None and _spares_others(cluster, cells, shape, way):
        return way
    return _way(cluster, cells, shape, holders)


def _spares_others(cluster: Cluster, cells: Cells, shape: Shape, way: Way) -> bool:
    """Whether nobody lacks more cells for it that a place is taken."""
    if not any(space.broken for space in cells.spaces):
        return True
    before, found = shortage(cells.spaces), way.found
    place = (shape.tenant, shape.pin, found.slots, needs_of(shape.requests), found.quota)
    with Trial(cluster) as trial:
        for job in way.promises:
            trial.unreserve(job)
        for job in way.losers:
            trial.drop(job)
        for job, tasks in way.shed:
            trial.shed(cluster.gangs[job], tasks)
        between = shortage(cells.spaces)
        cells.take(*place, JobId(0))
        after = shortage(cells.spaces)
        cells.give(*place, JobId(0))
    return not (shorter(before, after) and shorter(between, after))


def _way(cluster: Cluster, cells: Cells, shape: Shape, holders: Sequence[Holder]) -> Way | None:
    missing = sum(r.count * r.devices for r in shape.requests)
    missing -= cells.room_of(shape.tenant, shape.pin)
    needs = needs_of(shape.requests)
    promises = [each for each in holders if not isinstance(each, Gang)]
    with Trial(cluster) as trial:
        # They leave in any case, and are in nobody's way in cells that are not theirs.
        for gang in awaited(cluster, promises) if promises else ():
            trial.drop(gang.id)
        losers: list[Holder] = []
        found: Found | None = None
        for holder in holders:
            take_out(trial, holder)
            losers.append(holder)
            missing -= sum(len(slot.devices) for slot in holder.slots)
            if missing > 0:
                continue
            found = place_beside(cluster, shape)
            if found is not None:
                break
        if found is None:
            return None
        place = found
        _take_over(trial, place, needs)

        def stands() -> bool:
            return not objection(
                cells, shape.tenant, shape.pin, place.slots, needs, place.quota
            )

        needed = still_needed(trial, losers, place.slots, stands)
    return Way(place, gangs_of(needed), promises_of(needed))


def _take_over(trial: Trial, place: Found, needs: tuple[Resources, ...]) -> None:
    """Let borrowers, and surplus on its way out, be off a place, and hold it."""
    cluster = trial.cluster
    for job in place.borrowers:
        if job in cluster.parting:
            trial.let_part(job)
        gang = cluster.gangs.get(job)
        if gang is not None and gang.entitlement is Entitlement.OPPORTUNISTIC:
            trial.drop(job)
    trial.hold(place.slots, needs)
