"""Which gangs make room for a job, out of its tenant's own share.

An owner gets back what others borrow. Only what is beyond any share is preempted: gangs
that are leaving anyway, places that are reserved for borrowers, then borrowers in the order of
the victims policy. Where the surplus tasks of elastic borrowers are enough, no whole gang goes.
No tenant loses anything it is guaranteed, and no two evictions can chase each other: each moves
capacity from borrowed to guaranteed use, of which there is a finite sum. In cells the place is
chosen first, as if there were no borrowers; those on it have to go, but for those that need not
if another place is taken that is as good for the owner.

Inside a tenant its own gangs lose their share to a job that comes before them: a more urgent
one, one whose turn it is, or one of a queue that gets back what it lent to a sibling. The
candidates come one by one until the tenant's share has room for the job and there is a place,
if need be by evicting borrowers; then those that turned out not to be needed keep theirs. In
cells a place is sought in the cells that the candidates have, and only then in others in their
place: so fewer must go, and it is the same whichever nodes are free beside. Where hardware is
lost, no other tenant may have less for it: of cells that are given up and not taken at once,
lost ones would be made up for out of what others are guaranteed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from allotment.core.cells.book import Cells, Found
from allotment.core.cells.chain import Avoid
from allotment.core.cells.rights import objection
from allotment.core.cells.search import find
from allotment.core.cells.space import shortage, shorter
from allotment.core.cluster import Cluster
from allotment.core.entitle import entitlement_of
from allotment.core.gang import Gang, Standing
from allotment.core.ledger import Ledger
from allotment.core.lending import takes_kept
from allotment.core.own_cells import book_of, place_beside, yields
from allotment.core.plan import PreemptionPlan
from allotment.core.preemption.search import (
    Candidate,
    Fits,
    Preemptible,
    borrowed_places,
    borrowed_surplus,
    borrowers,
    lower_priority,
    search,
    size_off,
    surplus_of,
    whole,
)
from allotment.core.request import Request, Shape, needs_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Slot
from allotment.model.quantity import NOTHING, Instant, Resources
from allotment.model.tenancy import Preempt

QUIET = Avoid(borrowed=True)
"""Where no borrower has to leave."""


def owners_place(trial: Trial, shape: Shape, now: Instant) -> PreemptionPlan | None:
    """Find a place out of its tenant's share in a trial, and which borrowers must leave it."""
    cluster, requests = trial.cluster, shape.requests
    if cluster.cells is not None:
        found = place_beside(cluster, shape)
        if found is None or takes_kept(cluster, shape, found.slots, GUARANTEED):
            return None
        return clear_cells(trial, shape, found, now)
    if entitlement_of(cluster, shape) is not GUARANTEED:
        return None
    slots = cluster.find(requests)
    if slots is not None:
        plan = PreemptionPlan(slots, needs_of(requests))
    else:
        plan = clear_devices(trial, requests, now)
    if plan is None or takes_kept(cluster, shape, plan.slots, GUARANTEED):
        return None
    return plan


def is_guaranteed(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> bool:
    """Whether a gang may have a place, once it is empty, out of its tenant's share."""
    if takes_kept(cluster, shape, plan.slots, GUARANTEED):
        return False
    if cluster.cells is None:
        return entitlement_of(cluster, shape) is GUARANTEED
    return not objection(
        cluster.cells, shape.tenant, shape.pin, plan.slots, plan.needs, plan.quota
    )


# ── where shares are counted ────────────────────────────────────────────────────────────


def clear_devices(
    trial: Trial, requests: tuple[Request, ...], now: Instant
) -> PreemptionPlan | None:
    """Find a place for an owner that is there once some borrowers are gone, or None.

    O(borrowers · search), but no search is made before the sums suffice.
    """
    needs = needs_of(requests)

    def fits() -> PreemptionPlan | None:
        slots = trial.cluster.find(requests)
        return None if slots is None else PreemptionPlan(slots, needs)

    return _clear(trial, fits, now)


def clear_leases(trial: Trial, gang: Gang, now: Instant) -> PreemptionPlan | None:
    """Find the gangs that must leave so that a suspended one gets its own devices back."""
    plan = PreemptionPlan(gang.slots, gang.leases())

    def fits() -> PreemptionPlan | None:
        return plan if trial.fits(plan.slots, plan.needs) else None

    return _clear(trial, fits, now, gang.id)


def _clear(
    trial: Trial, fits: Fits, now: Instant, besides: JobId | None = None
) -> PreemptionPlan | None:
    """Preempt surplus tasks of borrowers, or else whole gangs, but one gang."""
    cluster, start = trial.cluster, trial.mark()
    parting = trial.let_all_part()
    plan = None
    if (cluster.placed.elastic or parting) and not borrowed_places(cluster):
        plan = fits() if parting else None
        plan = plan or search(trial, borrowed_surplus(cluster, now), fits)
    if plan is None:
        others = (
            (each, tasks)
            for each, tasks in borrowers(cluster, now)
            if (each.id if isinstance(each, Gang) else each.job) != besides
        )
        plan = search(trial, others, fits)
    trial.rollback(start)
    return plan


# ── where shares are cells ──────────────────────────────────────────────────────────────


def clear_cells(
    trial: Trial, shape: Shape, found: Found, now: Instant
) -> PreemptionPlan | None:
    """Find which borrowers must leave a place, or one as good; None if it is too small even so.

    Those on its leaves, and what is reserved for borrowers there. Where the host is too full,
    or devices lack memory, also what else holds what is short there: gangs that leave in any
    case, then suspended ones, then those that run, cheapest first.
    """
    cluster, start = trial.cluster, trial.mark()
    cells = book_of(cluster)
    needs = needs_of(shape.requests)
    place = PreemptionPlan(found.slots, needs, found.quota)
    most = place_cost(cells, shape, place)
    around = _borrowers_around(cells, found.slots)
    for job in sorted({*around, *found.borrowers} & cluster.placed.parting.keys()):
        trial.let_part(job)

    def is_free(plan: PreemptionPlan) -> bool:
        return not cells.is_lent(plan.slots, needs) and trial.fits(plan.slots, needs)

    def fits() -> PreemptionPlan | None:
        if is_free(place):
            return place
        quiet = find(cells, shape.tenant, shape.pin, shape.requests, QUIET)
        if quiet is None:
            return None
        other = PreemptionPlan(quiet.slots, needs, quiet.quota)
        costs = zip(place_cost(cells, shape, other), most, strict=True)
        return other if all(cost <= first for cost, first in costs) and is_free(other) else None

    candidates = chain(
        _on_leaves(trial, found, now), _keepers(trial, place, around, shape.tenant, now)
    )
    plan = fits() or search(
        trial, candidates, fits, lambda plan: not cells.is_lent(plan.slots, needs)
    )
    trial.rollback(start)
    return plan


def place_cost(cells: Cells, shape: Shape, place: PreemptionPlan) -> tuple[int, ...]:
    """Return what a place costs its owner: of two that cost the same either will do.

    How little its devices are liked, how many leaves are bound for it, how far apart it lies,
    and how many leaves its tenant has left around it.
    """
    spots = list(cells.spots(place.slots, place.needs, place.quota))
    at = spots[0][0].chain
    holding = cells.holdings[shape.tenant, shape.pin][at]
    liked = (n for n, some in enumerate(cells.chains_for(shape.requests)) if at in some)
    fresh = {
        cell
        for spot, level in spots
        for cell in holding.cells_of(level, spot.node, spot.mask | spot.beside)
        if cell not in holding.bound
    }
    nodes = {spot.node for spot, _ in spots}
    room = sum(holding.room(level, node) for level in holding.mine for node in nodes)
    bound = sum(holding.chain.size[level] for level, _ in fresh)
    return next(liked, 0), bound, cells.extent(at, place.slots), room


def _on_leaves(trial: Trial, found: Found, now: Instant) -> list[Candidate]:
    """Return the borrowers on a place, cheapest first, with the tasks that are off it."""
    cluster, key = trial.cluster, trial.cluster.policies.victims.key
    gangs = [
        gang
        for job in found.borrowers
        if (gang := cluster.gangs.get(job)) is not None
        and gang.entitlement is OPPORTUNISTIC
        and _meet(gang, found.slots)  # Or only its surplus was there, which is on its way.
    ]
    gangs.sort(key=lambda gang: (not gang.leaving, key(gang, now), -gang.id))
    return [(gang, size_off(cluster, gang, found.slots)) for gang in gangs]


def _meet(gang: Gang, slots: tuple[Slot, ...]) -> bool:
    """Whether a gang sits on a device of a place."""
    wanted = {(slot.node, index) for slot in slots for index in slot.devices}
    return any((slot.node, index) in wanted for slot in gang.slots for index in slot.devices)


def _borrowers_around(cells: Cells, slots: Iterable[Slot]) -> set[JobId]:
    """Return the borrowers on the nodes of a place."""
    return {
        job
        for slot in slots
        for at, number in cells.at(slot.node)
        for job in cells.uses[at].borrowers[number]
    }


def _keepers(
    trial: Trial, place: PreemptionPlan, around: set[JobId], owner: str, now: Instant
) -> Iterator[Candidate]:
    """Return what is reserved for borrowers around a place, then what holds what is short.

    A suspended gang goes before one that runs: it gave up its cells, and does no work.
    """
    cluster = trial.cluster
    yield from whole(borrowed_places(cluster, place.slots))
    key, nodes = cluster.policies.victims.key, {slot.node for slot in place.slots}
    frozen = (
        gang
        for gang in cluster.placed.frozen.values()
        if yields(gang, owner) and any(slot.node in nodes for slot in gang.slots)
    )
    running = (
        gang
        for job in around
        if (gang := cluster.gangs.get(job)) is not None
        and gang.entitlement is OPPORTUNISTIC
        and not gang.suspended
    )
    wanted = _Wanted(place)
    for gang in sorted(
        (*frozen, *running),
        key=lambda gang: (not gang.leaving, not gang.suspended, key(gang, now), -gang.id),
    ):
        if wanted.short_for(trial, gang):
            yield gang, 0


class _Wanted:
    """What a place needs, by node and device."""

    def __init__(self, place: PreemptionPlan) -> None:
        self._place = place
        self._hosts: dict[NodeId, Resources] = {}
        self._devices: dict[tuple[NodeId, int], Resources] = {}
        for slot, need in zip(place.slots, place.needs, strict=True):
            self._hosts[slot.node] = self._hosts.get(slot.node, NOTHING) + need
            for index in slot.devices:
                at = (slot.node, index)
                self._devices[at] = self._devices.get(at, NOTHING) + need

    def short_for(self, trial: Trial, gang: Gang) -> bool:
        """Whether a gang holds any of what is short of the place, once that is taken."""
        mark = trial.mark()
        trial.hold(self._place.slots, self._place.needs)
        short = self._short(trial.cluster.ledger, gang)
        trial.rollback(mark)
        return short

    def _short(self, ledger: Ledger, gang: Gang) -> bool:
        for slot, held in zip(gang.slots, gang.kept(), strict=True):
            wanted = self._hosts.get(slot.node)
            if wanted is None:
                continue
            book = ledger.books[slot.node]
            if book.host_short(wanted, held) or any(
                book.device_short(index, want, held)
                for index in slot.devices
                if (want := self._devices.get((slot.node, index))) is not None
            ):
                return True
        return False


# ── inside a tenant ───────────────────────────────────────────────────────────────────────


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
    holders: Sequence[Preemptible],
    now: Instant,
    surplus: Sequence[Candidate] = (),
) -> PreemptionPlan | None:
    """Find which of these, first ones first, must give up their share for a job.

    Where it is enough that some of the `surplus` goes, no gang goes whole.
    """
    for candidates in (surplus, whole(holders)):
        if candidates:
            plan = _preempt(cluster, waiting.shape, candidates, now)
            if plan is not None:
                return plan
    return None


def _preempt(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    guarantee = cluster.guarantee
    with guarantee.keeping(shape.tenant, shape.pin):
        plan = _search(cluster, shape, candidates, now)
    if not guarantee.spaces:
        return plan
    if plan is not None and _spares_others(cluster, shape, plan):
        return plan
    return _search(cluster, shape, candidates, now)


def _search(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    with Trial(cluster) as trial:
        plan = search(
            trial,
            candidates,
            lambda: owners_place(trial, shape, now),
            lambda plan: is_guaranteed(cluster, shape, plan),
        )
    return plan and msgspec.structs.replace(plan, demote=_demoted(cluster, shape, plan))


def _demoted(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> tuple[JobId, ...]:
    """Return the victims that lose their own tenant's share."""
    gangs = (cluster.gangs[job] for job in plan.evict)
    return tuple(
        gang.id
        for gang in gangs
        if gang.entitlement is GUARANTEED and gang.tenant == shape.tenant and not gang.leaving
    )


def losers(cluster: Cluster, waiting: Standing, plan: PreemptionPlan) -> list[JobId]:
    """Return the gangs of its own tenant that lose their share to a job."""
    tenant = waiting.shape.tenant
    return [job for job in plan.demote if cluster.gangs[job].tenant == tenant]


def _spares_others(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> bool:
    """Whether no tenant lacks more cells for it that a place is taken."""
    cells = book_of(cluster)
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

    Cells that they give up are free then: where hardware is lost, others may be guaranteed
    them first.
    """
    with Trial(cluster) as trial:
        for job in losers(cluster, waiting, plan):
            trial.demote(cluster.gangs[job])
        for job in plan.revoke:
            trial.unreserve(job)
        return owners_place(trial, waiting.shape, now) is not None
