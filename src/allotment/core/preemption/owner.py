"""What an owner gets back from borrowers: a place out of its tenant's own share.

Only what is beyond anybody's share is preempted: gangs that are leaving anyway, places that are
reserved for borrowers, then borrowers in the order of the victims policy. Where the surplus
tasks of elastic borrowers are enough, no whole gang goes. No tenant loses anything it is owed,
and no two evictions can chase each other: each moves capacity from borrowed to guaranteed
use, of which there is a finite sum.

In cells the place is chosen first, as if there were no borrowers; who sits on it has to go.
"""

from collections.abc import Iterable, Iterator

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.rights import objection
from allotment.core.cells.search import Found
from allotment.core.cluster import Cluster
from allotment.core.elastic import size_off
from allotment.core.entitle import due_of
from allotment.core.gang import Gang
from allotment.core.ledger import Ledger
from allotment.core.owed import place_beside, yields
from allotment.core.preemption.candidates import (
    borrowed_places,
    borrowed_surplus,
    borrowers,
    whole,
)
from allotment.core.preemption.search import Candidate, Fits, PreemptionPlan, search
from allotment.core.request import Request, Shape, lease_part, needs_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import NOTHING, Instant, Resources

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def owners_place(trial: Trial, shape: Shape, now: Instant) -> PreemptionPlan | None:
    """Find a place out of its tenant's share in a trial, and which borrowers must leave it."""
    cluster, requests = trial.cluster, shape.requests
    if cluster.cells is not None:
        found = place_beside(cluster, shape)
        return None if found is None else clear_cells(trial, shape, found, now)
    if due_of(cluster, shape) is not GUARANTEED:
        return None
    slots = cluster.find(requests)
    if slots is not None:
        return PreemptionPlan(slots, needs_of(requests))
    return clear_devices(trial, requests, now)


def is_owed(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> bool:
    """Whether a gang may have a place, once it is empty, out of its tenant's share."""
    if cluster.cells is None:
        return due_of(cluster, shape) is GUARANTEED
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
    """Find who must leave so that a suspended gang gets its own devices back."""
    leases = tuple(lease_part(need) for need in gang.needs)
    plan = PreemptionPlan(gang.slots, leases)

    def fits() -> PreemptionPlan | None:
        return plan if trial.fits(gang.slots, leases) else None

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
    """Find which borrowers must leave a place; None if it is too small even so.

    Those on its leaves, and what is reserved for borrowers there. Where the host is too full,
    or devices lack memory, also what else holds what is short there: gangs that leave in any
    case, then suspended ones, then those that run, cheapest first.
    """
    cluster, start = trial.cluster, trial.mark()
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    place = PreemptionPlan(found.slots, needs_of(shape.requests), found.quota)
    gone, shrunk = _off_leaves(trial, found)
    around = _borrowers_around(cells, found.slots)
    for job in sorted(around & cluster.placed.parting.keys()):
        trial.let_part(job)

    def fits() -> PreemptionPlan | None:
        return place if trial.fits(place.slots, place.needs) else None

    keepers = _keepers(trial, place, around, shape.tenant, now)
    plan = fits() or search(trial, keepers, fits)
    trial.rollback(start)
    if plan is None:
        return None
    evict = (*gone, *plan.evict)
    own = (cluster.gangs[job] for job in evict)
    return msgspec.structs.replace(
        plan,
        evict=evict,
        demote=tuple(gang.id for gang in own if gang.entitlement is GUARANTEED),
        shrink=tuple(each for each in shrunk if each[0] not in evict),
    )


def _off_leaves(trial: Trial, found: Found) -> tuple[list[JobId], list[tuple[JobId, int]]]:
    """Let borrowers be off a place: in part if that will do, else altogether."""
    cluster = trial.cluster
    gone, shrunk = list[JobId](), list[tuple[JobId, int]]()
    for job in found.borrowers:
        if job in cluster.placed.parting:
            trial.let_part(job)
            gang = cluster.gangs.get(job)
            if (
                gang is None
                or gang.entitlement is not OPPORTUNISTIC
                or not _meet(gang, found.slots)
            ):
                continue  # Only its surplus was there, which is on its way.
        tasks = size_off(cluster, cluster.gangs[job], found.slots)
        if tasks:
            trial.shed(cluster.gangs[job], tasks)
            shrunk.append((job, tasks))
        else:
            trial.drop(job)
            gone.append(job)
    return gone, shrunk


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
        for job in cells.borrowers[at][number]
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
