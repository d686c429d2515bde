"""Places in cells: what a tenant is owed now, what is idle, and who borrows there.

Where shares are counted (`cluster.cells` is None) none of this is asked.
"""

from collections.abc import Iterable

from allotment.core.beside import Beside, of_all, of_one
from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.search import Found, find
from allotment.core.cluster import MOST_MEMOS, Cluster
from allotment.core.gang import Gang
from allotment.core.ledger import Ledger
from allotment.core.preemption import Room, still_needed
from allotment.core.request import Request, Shape, needs_of, total_of
from allotment.core.shedding import size_off
from allotment.core.takeover import Holder, borrowed_promises, gangs_of, promises_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, NOTHING, Instant, Resources


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
        if found is not None:
            found = _uncrowded(cluster, cluster.cells, shape, found) or found
    if found is None:
        if len(cluster.unowed) >= MOST_MEMOS:
            cluster.unowed.clear()
        cluster.unowed[shape] = cluster.ledger.version
    return found


def place_beside(cluster: Cluster, shape: Shape) -> Found | None:
    """Find where a gang may be out of its tenant's cells, now or in a trial.

    None also where suspended gangs that stay keep what it needs: it could not start there.
    """
    assert cluster.cells is not None, "asked only where shares are cells"
    found = find(cluster.cells, shape.tenant, shape.pin, shape.requests)
    return found and _uncrowded(cluster, cluster.cells, shape, found)


def _uncrowded(cluster: Cluster, cells: Cells, shape: Shape, found: Found) -> Found | None:
    """Return a place where no suspended gang keeps what is needed, or can be off it."""
    requests = shape.requests
    if not cluster.frozen or cluster.slots_free(found.slots, requests):
        return found
    needs, frozen = needs_of(requests), [*cluster.frozen.values()]
    staying = [gang for gang in frozen if not _yields(gang, shape.tenant)]
    for keepers in (frozen, staying) if len(staying) < len(frozen) else (frozen,):
        beside = Beside(cluster, keepers)
        if beside.has(found.slots, needs):
            return found
        # Several tasks may need more of a machine in sum than is left there.
        for need in (of_one(requests), of_all(requests, beside.width)):
            avoid = beside.lacking(need)
            other = find(cells, shape.tenant, shape.pin, requests, avoid)
            if other is not None and beside.has(other.slots, needs):
                return other
    return None


def _too_large(cells: Cells, shape: Shape) -> bool:
    """Whether it is plain that too few leaves are left of all that the tenant is owed."""
    whole = sum(r.count * r.devices for r in shape.requests if r.need.gpu_milli >= DEVICE)
    return whole > cells.room_of(shape.tenant, shape.pin)


def owed_ever(cluster: Cluster, shape: Shape) -> bool:
    """Whether a gang would fit in its tenant's share if all of that were free.

    Where it is cells: if all were empty and healthy.
    """
    if shape.opportunistic:
        return False
    if cluster.cells is None:
        return _owed_by_count(cluster, shape)
    known = cluster.owed_if_empty.get(shape)
    if known is None:
        empty = cluster.empty_cells()
        known = find(empty, shape.tenant, shape.pin, shape.requests) is not None
        if len(cluster.owed_if_empty) >= MOST_MEMOS:
            cluster.owed_if_empty.clear()
        cluster.owed_if_empty[shape] = known
    return known


def _owed_by_count(cluster: Cluster, shape: Shape) -> bool:
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is None or shape.pin:
        return False
    need, sharing = total_of(shape.requests), cluster.policies.sharing
    due = sharing.entitle(need, NOTHING, tenant, preemptible=shape.preemptible)
    return due is Entitlement.GUARANTEED


def idle_place(cluster: Cluster, shape: Shape) -> tuple[Slot, ...] | None:
    """Find idle leaves for a gang of this shape."""
    return idle_slots(cluster, shape.requests)


def idle_slots(cluster: Cluster, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
    """Find what is idle for a gang, in whatever form shares are."""
    if cluster.cells is None:
        return cluster.find(requests)
    return find_idle(cluster.cells, requests, cluster.ledger)


def in_the_way(cluster: Cluster, shape: Shape, found: Found, now: Instant) -> Room | None:
    """Name the borrowers who must leave a place; None if it is too small even so.

    Those on its leaves, and what is promised to borrowers there. Where the host is too full,
    or devices lack memory, also who else holds what is short there: who leaves in any case,
    then those who are suspended, then those who run, cheapest first. Whoever turned out not
    to be needed is let off, who runs before who does not.
    """
    cells = cluster.cells
    assert cells is not None, "asked only where shares are cells"
    needs, ledger = needs_of(shape.requests), cluster.ledger
    gone: list[JobId] = []
    shed: list[tuple[JobId, int]] = []
    with Trial(cluster) as trial:
        for job in found.borrowers:
            _get_off(trial, job, found.slots, gone, shed)
        trial.hold(found.slots, needs)
        if ledger.settled(found.slots):
            return Room(found.slots, tuple(gone), shed=tuple(shed))
        promises = borrowed_promises(cluster, found.slots)
        for promise in promises:
            trial.unreserve(promise.job)
        beside = _borrowers_beside(cells, found.slots)
        for job in sorted(beside & cluster.parting.keys()):
            trial.let_part(job)
        wanted, dropped = _Wanted(found.slots, needs), list[Holder](promises)
        for gang in _others(cluster, beside, found.slots, shape.tenant, now):
            if ledger.settled(found.slots):
                break
            if wanted.short_for(ledger, gang):
                dropped.append(trial.drop(gang.id))
        if not ledger.settled(found.slots):
            return None
        needed = still_needed(trial, dropped, found.slots)
        gone += gangs_of(needed)
        kept = tuple(each for each in shed if each[0] not in gone)
        return Room(found.slots, tuple(gone), promises_of(needed), kept)


def _borrowers_beside(cells: Cells, slots: Iterable[Slot]) -> set[JobId]:
    """Name the borrowers on the nodes of a place."""
    return {
        job
        for slot in slots
        for at, number in cells.at(slot.node)
        for job in cells.borrowers[at][number]
    }


def _others(
    cluster: Cluster, beside: set[JobId], slots: Iterable[Slot], owner: str, now: Instant
) -> list[Gang]:
    """Return who may have to go besides those on the leaves of an owner's place, in order.

    A suspended gang goes before one that runs: it gave up its cells, and does no work.
    """
    key, nodes = cluster.policies.victims.key, {slot.node for slot in slots}
    frozen = (
        gang
        for gang in cluster.frozen.values()
        if _yields(gang, owner) and any(slot.node in nodes for slot in gang.slots)
    )
    running = (
        gang
        for job in beside
        if (gang := cluster.gangs.get(job)) is not None
        and gang.entitlement is Entitlement.OPPORTUNISTIC
        and not gang.suspended
    )
    return sorted(
        (*frozen, *running),
        key=lambda gang: (not gang.leaving, not gang.suspended, key(gang, now), -gang.id),
    )


class _Wanted:
    """What a place needs, by node and device."""

    def __init__(self, slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> None:
        self.hosts: dict[NodeId, Resources] = {}
        self.devices: dict[tuple[NodeId, int], Resources] = {}
        for slot, need in zip(slots, needs, strict=True):
            self.hosts[slot.node] = self.hosts.get(slot.node, NOTHING) + need
            for index in slot.devices:
                at = (slot.node, index)
                self.devices[at] = self.devices.get(at, NOTHING) + need

    def short_for(self, ledger: Ledger, gang: Gang) -> bool:
        """Whether a gang holds any of what is short of it, the place being taken."""
        for slot, held in zip(gang.slots, gang.kept(), strict=True):
            wanted = self.hosts.get(slot.node)
            if wanted is None:
                continue
            book = ledger.books[slot.node]
            if book.host_short(wanted, held) or any(
                book.device_short(index, want, held)
                for index in slot.devices
                if (want := self.devices.get((slot.node, index))) is not None
            ):
                return True
        return False


def _yields(gang: Gang, owner: str) -> bool:
    """Whether a suspended gang goes where what it keeps is in an owner's way.

    It gave up its cells, so what it keeps of a machine it keeps on sufferance. As its
    tenant's own it stays if that is the owner, or if it may not be preempted.
    """
    if gang.entitlement is Entitlement.OPPORTUNISTIC:
        return True
    return gang.tenant != owner and gang.preemptible


def _get_off(
    trial: Trial,
    job: JobId,
    slots: tuple[Slot, ...],
    gone: list[JobId],
    shed: list[tuple[JobId, int]],
) -> None:
    """Let a borrower be off a place: in part if that will do, else altogether."""
    cluster = trial.cluster
    if job in cluster.parting:
        trial.let_part(job)
        gang = cluster.gangs.get(job)
        if (
            gang is None
            or gang.entitlement is not Entitlement.OPPORTUNISTIC
            or not _meet(gang, slots)
        ):
            return  # Only its surplus was there, which is on its way.
    tasks = size_off(cluster, cluster.gangs[job], slots)
    if tasks:
        trial.shed(cluster.gangs[job], tasks)
        shed.append((job, tasks))
    else:
        trial.drop(job)
        gone.append(job)


def _meet(gang: Gang, slots: tuple[Slot, ...]) -> bool:
    """Whether a gang sits on a device of a place."""
    wanted = {(slot.node, index) for slot in slots for index in slot.devices}
    return any((slot.node, index) in wanted for slot in gang.slots for index in slot.devices)
