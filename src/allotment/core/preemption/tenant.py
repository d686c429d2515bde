"""Preemption inside a tenant: its own gangs lose their share to a job that comes before them.

For a more urgent job, or at a job's turn, or to give back what a sibling queue was lent. The
candidates come one by one until the tenant's share has room for the job and there is a place,
if need be by evicting borrowers; then those that turned out not to be needed keep theirs.
Where surplus tasks of elastic gangs are enough, no gang goes whole.

In cells a place is sought in the cells that the candidates have, and only then in others in
their place: so fewer must go, and it is the same whichever nodes are free beside. Where
hardware is lost, nobody else may have less for it: of cells that are given up and not taken at
once, lost ones would be made up for out of what others are owed.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.safety import shortage, shorter
from allotment.core.cells.search import Found
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.owed import place_beside
from allotment.core.preemption.candidates import lower_priority, surplus_of, whole
from allotment.core.preemption.owner import clear_cells, is_owed, owners_place
from allotment.core.preemption.search import Candidate, Holder, PreemptionPlan, search
from allotment.core.request import Shape, needs_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt


def preempt_lower(cluster: Cluster, waiting: Standing, now: Instant) -> PreemptionPlan | None:
    """Find which less urgent gangs of its tenant must give up their share for a job."""
    tenant = cluster.tenants.get(waiting.shape.tenant)
    if tenant is None or tenant.preempt is Preempt.NONE or waiting.shape.opportunistic:
        return None
    lower = lower_priority(cluster, waiting, now)
    surplus = surplus_of(cluster, lower) if tenant.preempt is Preempt.EVICT else ()
    return preempt(cluster, waiting, lower, now, surplus)


def preempt(
    cluster: Cluster,
    waiting: Standing,
    holders: Sequence[Holder],
    now: Instant,
    surplus: Sequence[Candidate] = (),
) -> PreemptionPlan | None:
    """Find which of these, first ones first, must give up their share for a job.

    Where it is enough that some of the `surplus` goes, no gang goes whole.
    """
    going = whole(_awaited_by(cluster, holders))
    for candidates in (surplus, [*going, *whole(holders)] if holders else ()):
        if candidates:
            plan = _preempt(cluster, waiting.shape, candidates, now)
            if plan is not None:
                return plan
    return None


def _awaited_by(cluster: Cluster, holders: Sequence[Holder]) -> list[Gang]:
    """Return the borrowers on their way out for some reserved places: they go in any case."""
    victims = {
        job for each in holders if isinstance(each, ReservedPlace) for job in each.victims
    }
    return [
        gang
        for job, gang in sorted(cluster.placed.leaving.items())
        if job in victims and gang.entitlement is Entitlement.OPPORTUNISTIC
    ]


def _preempt(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    if cluster.cells is None:
        return _search(cluster, shape, candidates, now)
    with cluster.cells.keeping(shape.tenant, shape.pin):
        plan = _search(cluster, shape, candidates, now)
    if plan is not None and _spares_others(cluster, cluster.cells, shape, plan):
        return plan
    return _search(cluster, shape, candidates, now)


def _search(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    missing = 0
    if cluster.cells is not None and not any(tasks for _, tasks in candidates):
        missing = sum(r.count * r.devices for r in shape.requests)
        missing -= cluster.cells.room_of(shape.tenant, shape.pin)

    def counted() -> Iterator[Candidate]:
        nonlocal missing
        for holder, tasks in candidates:
            if not (isinstance(holder, Gang) and holder.leaving):
                missing -= sum(len(slot.devices) for slot in holder.slots)
            yield holder, tasks

    with Trial(cluster) as trial:
        plan = search(
            trial,
            counted(),
            lambda: None if missing > 0 else _place(trial, shape, now),
            lambda plan: is_owed(cluster, shape, plan),
        )
        if plan is not None and cluster.cells is not None:
            plan = _with_borrowers(trial, shape, plan, now)
    if plan is None:
        return None
    demote = _demoted(cluster, shape, plan)
    others = (job for job in plan.evict if job not in demote)
    return msgspec.structs.replace(plan, evict=(*demote, *others), demote=demote)


def _place(trial: Trial, shape: Shape, now: Instant) -> PreemptionPlan | None:
    """Find a place, in cells as if there were no borrowers."""
    cluster = trial.cluster
    if cluster.cells is None:
        return owners_place(trial, shape, now)
    found = place_beside(cluster, shape)
    if found is None:
        return None
    gangs = (cluster.gangs.get(job) for job in found.borrowers)
    lent = (gang.id for gang in gangs if gang and gang.entitlement is Entitlement.OPPORTUNISTIC)
    return PreemptionPlan(found.slots, needs_of(shape.requests), found.quota, evict=tuple(lent))


def _with_borrowers(
    trial: Trial, shape: Shape, plan: PreemptionPlan, now: Instant
) -> PreemptionPlan | None:
    """Add to a plan the borrowers that must leave the place, or None."""
    cluster = trial.cluster
    own = tuple(
        job for job in plan.evict if cluster.gangs[job].entitlement is Entitlement.GUARANTEED
    )
    mark = trial.mark()
    trial.carry_out(own, plan.revoke, ())
    for job, tasks in plan.shrink:
        trial.shed(cluster.gangs[job], tasks)
    cells = cluster.cells
    assert cells is not None
    found = Found(plan.slots, plan.quota, _on(cells, plan))
    room = clear_cells(trial, shape, found, now)
    trial.rollback(mark)
    return room and msgspec.structs.replace(
        room,
        evict=(*own, *room.evict),
        revoke=(*plan.revoke, *room.revoke),
        shrink=(*plan.shrink, *room.shrink),
    )


def _on(cells: Cells, plan: PreemptionPlan) -> tuple[JobId, ...]:
    """Return the borrowers on the leaves of a place."""
    spots = [spot for spot, _ in cells.spots(plan.slots, plan.needs, plan.quota)]
    lent = {
        job
        for spot in spots
        for job, leaves in cells.borrowers[spot.chain][spot.node].items()
        if leaves & spot.mask
    }
    return tuple(sorted(lent))


def _demoted(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> tuple[JobId, ...]:
    """Return the victims that lose their own tenant's share."""
    gangs = (cluster.gangs[job] for job in plan.evict)
    return tuple(
        gang.id
        for gang in gangs
        if gang.entitlement is Entitlement.GUARANTEED
        and ((not gang.leaving and gang.tenant == shape.tenant) or gang.id in plan.demote)
    )


def losers(cluster: Cluster, waiting: Standing, plan: PreemptionPlan) -> list[JobId]:
    """Return the gangs of its own tenant that lose their share to a job."""
    tenant = waiting.shape.tenant
    return [job for job in plan.demote if cluster.gangs[job].tenant == tenant]


def _spares_others(cluster: Cluster, cells: Cells, shape: Shape, plan: PreemptionPlan) -> bool:
    """Whether nobody lacks more cells for it that a place is taken."""
    if not any(space.broken for space in cells.spaces):
        return True
    before = shortage(cells.spaces)
    place = (shape.tenant, shape.pin, plan.slots, plan.needs, plan.quota)
    with Trial(cluster) as trial:
        trial.carry_out(plan.evict, plan.revoke, plan.shrink)
        between = shortage(cells.spaces)
        cells.take(*place, JobId(0))
        after = shortage(cells.spaces)
        cells.give(*place, JobId(0))
    return not (shorter(before, after) and shorter(between, after))


def fits_by_demotion(
    cluster: Cluster, waiting: Standing, plan: PreemptionPlan, now: Instant
) -> bool:
    """Whether there is a place once gangs only lose their share, and stay as borrowers.

    Cells that they give up are nobody's then: where hardware is lost, others may be owed
    them first.
    """
    with Trial(cluster) as trial:
        for job in losers(cluster, waiting, plan):
            trial.demote(cluster.gangs[job])
        for job in plan.revoke:
            trial.unreserve(job)
        if cluster.cells is not None:
            return place_beside(cluster, waiting.shape) is not None
        return owners_place(trial, waiting.shape, now) is not None
