"""Places in cells: what a tenant is owed now, what is idle, and who of its own makes way.

Where shares are counted (`cluster.cells` is None) none of this is asked.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.rights import objection
from allotment.core.cells.search import Found, find
from allotment.core.cluster import MOST_MEMOS, Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.preemption import let_off
from allotment.core.request import Shape, needs_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant
from allotment.model.tenancy import Preempt


def owed_place(cluster: Cluster, shape: Shape) -> Found | None:
    """Find where a gang of this shape may be now out of its tenant's own cells.

    What was not found is not looked for again until something was given back.
    """
    assert cluster.cells is not None, "asked only where shares are cells"
    if shape.opportunistic or cluster.unowed.get(shape) == cluster.ledger.version:
        return None
    found: Found | None = None
    if not _too_large(cluster.cells, shape):
        found = find(cluster.cells, shape.tenant, shape.pin, shape.requests)
    if found is None:
        if len(cluster.unowed) >= MOST_MEMOS:
            cluster.unowed.clear()
        cluster.unowed[shape] = cluster.ledger.version
    return found


def _too_large(cells: Cells, shape: Shape) -> bool:
    """Tell, at a glance, that too few leaves are left of all that the tenant is owed."""
    whole = sum(r.count * r.devices for r in shape.requests if r.need.gpu_milli >= DEVICE)
    return whole > cells.room_of(shape.tenant, shape.pin)


def owed_ever(cluster: Cluster, shape: Shape) -> bool:
    """Tell whether a gang would fit in its tenant's cells if all were empty and healthy."""
    if shape.opportunistic:
        return False
    known = cluster.owed_if_empty.get(shape)
    if known is None:
        empty = cluster.empty_cells()
        known = find(empty, shape.tenant, shape.pin, shape.requests) is not None
        if len(cluster.owed_if_empty) >= MOST_MEMOS:
            cluster.owed_if_empty.clear()
        cluster.owed_if_empty[shape] = known
    return known


def idle_place(cluster: Cluster, shape: Shape) -> tuple[Slot, ...] | None:
    """Find idle leaves for a gang of this shape."""
    assert cluster.cells is not None, "asked only where shares are cells"
    return find_idle(cluster.cells, shape.requests, cluster.ledger)


def in_the_way(
    cluster: Cluster, shape: Shape, found: Found, now: Instant
) -> tuple[JobId, ...] | None:
    """Name the borrowers who must leave a place; None if it is too small even so.

    Those on its leaves; where the host is too full, others of its nodes, cheapest first.
    """
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    needs = needs_of(shape.requests)
    gone = list(found.borrowers)
    with Trial(cluster) as trial:
        for job in gone:
            trial.drop(job)
        if trial.fits(found.slots, needs):
            return tuple(gone)
        key = cluster.policies.victims.key
        beside = {
            job
            for slot in found.slots
            for at, number in cells.at(slot.node)
            for job in cells.borrowers[at][number]
        }
        for gang in sorted(
            (cluster.gangs[job] for job in beside if job in cluster.gangs),
            key=lambda gang: (key(gang, now), -gang.id),
        ):
            trial.drop(gang.id)
            gone.append(gang.id)
            if trial.fits(found.slots, needs):
                return tuple(gone)
    return None


class Way(msgspec.Struct, frozen=True):
    """A place in a tenant's own cells, and those of its own who lose theirs for it."""

    found: Found
    losers: tuple[JobId, ...]


def outranked(cluster: Cluster, waiting: Standing, now: Instant) -> Way | None:
    """Find who of a tenant's own less urgent gangs must make way for a more urgent job.

    Lowest priority first, then whoever the victims policy would send first; whoever turns
    out not to be needed keeps its share.
    """
    tenant = cluster.tenants.get(waiting.shape.tenant)
    if tenant is None or tenant.preempt is Preempt.NONE:
        return None
    key = cluster.policies.victims.key
    lower = sorted(
        (
            gang
            for gang in cluster.gangs.values()
            if gang.tenant == tenant.name
            and gang.entitlement is Entitlement.GUARANTEED
            and gang.priority < waiting.priority
            and not gang.leaving
            and not gang.suspended
        ),
        key=lambda gang: (gang.priority, key(gang, now), -gang.id),
    )
    return give_way(cluster, waiting.shape, lower)


def room_by_demotion(cluster: Cluster, shape: Shape, losers: Sequence[JobId]) -> bool:
    """Tell whether there is a place once gangs only lose their guarantee, and stay.

    Cells that they give up are nobody's then: where hardware is lost, others may be owed
    them first.
    """
    assert cluster.cells is not None, "asked only where shares are cells"
    with Trial(cluster) as trial:
        for loser in losers:
            trial.demote(cluster.gangs[loser])
        return find(cluster.cells, shape.tenant, shape.pin, shape.requests) is not None


def give_way(cluster: Cluster, shape: Shape, gangs: list[Gang]) -> Way | None:
    """Find a place that is there once some of these gangs, first ones first, lose theirs.

    It is sought in the cells that these have, and only then in others in their place: so
    fewer must go, and it is the same whichever nodes are free beside.
    """
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    with cells.keeping(shape.tenant, shape.pin):
        way = _way(cluster, cells, shape, gangs)
    return way or _way(cluster, cells, shape, gangs)


def _way(cluster: Cluster, cells: Cells, shape: Shape, gangs: list[Gang]) -> Way | None:
    missing = sum(r.count * r.devices for r in shape.requests)
    missing -= cells.room_of(shape.tenant, shape.pin)
    needs = needs_of(shape.requests)
    with Trial(cluster) as trial:
        losers: list[Gang] = []
        found: Found | None = None
        for gang in gangs:
            losers.append(trial.drop(gang.id))
            missing -= sum(len(slot.devices) for slot in gang.slots)
            if missing > 0:
                continue
            found = find(cells, shape.tenant, shape.pin, shape.requests)
            if found is not None:
                break
        if found is None:
            return None
        place = found
        for job in place.borrowers:
            trial.drop(job)
        trial.hold(place.slots, needs)

        def stands() -> bool:
            return not objection(
                cells, shape.tenant, shape.pin, place.slots, needs, place.quota
            )

        needed = let_off(trial, losers, place.slots, stands)
    return Way(place, needed)
