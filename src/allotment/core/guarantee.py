"""In which form tenants have their guaranteed quota: counted, or in cells.

Counted, a quota is an amount of each resource, wherever it is. In cells it is hardware that
lies together: what is borrowed from it can always be got back in that form. What tenants may
have by either is asked here. How places are found differs too: see `places.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from allotment.core.books import Claim, FreePlace, Guarantee
from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.chain import in_one_cell
from allotment.core.cells.rights import by_host_shares, objection, quota_still
from allotment.core.cells.search import find
from allotment.core.cells.space import Space
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, held_vector
from allotment.core.ledger import Ledger
from allotment.core.memos import remember
from allotment.core.own_cells import guaranteed_place
from allotment.core.quota import has_room
from allotment.core.request import Request, Shape, devices_of, sum_of
from allotment.core.sharing import beyond_share, borrows, entitle, entitle_shape, may_borrow
from allotment.model.amounts import CPU, GPU, add, vector_of
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Beside, Entitlement, Quota, Slot
from allotment.model.quantity import DEVICE, Resources


def guarantee_of(cluster: Cluster) -> Guarantee:
    """Return the guaranteed quotas of a cluster, in the form they have there."""
    return Counted(cluster) if cluster.cells is None else InCells(cluster, cluster.cells)


# ── counted ─────────────────────────────────────────────────────────────────────────────


class Counted:
    """Amounts of each resource, as the sharing policy compares them."""

    clears_suspended = False
    in_one_chain = False
    spaces: Sequence[Space] = ()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def regrows(self, place: ReservedPlace) -> bool:  # noqa: ARG002 - it is free for all
        return True

    def entitlement(self, shape: Shape) -> Entitlement | None:
        if shape.opportunistic or shape.pin:
            return OPPORTUNISTIC if may_borrow(self._cluster, shape) else None
        return entitle_shape(self._cluster, shape)

    def could_fit(self, shape: Shape) -> bool:
        if shape.pin or shape.opportunistic:
            return False
        return entitle_shape(self._cluster, shape, alone=True) is GUARANTEED

    def ever_starts(self, shape: Shape) -> bool:
        return not shape.pin and self.fits_machines(shape)

    def fits_machines(self, shape: Shape) -> bool:
        cluster, requests = self._cluster, shape.requests
        known = cluster.memos.ever_fits.get(requests)
        if known is None:
            idle = Ledger(tuple(cluster.nodes.values()))
            slots = idle.find(cluster.asked_free(requests), cluster.policies.placing)
            known = remember(cluster.memos.ever_fits, requests, slots is not None)
        return known

    def coming_free(self, shape: Shape) -> int:  # noqa: ARG002 - all may have them
        ledger, placed = self._cluster.ledger, self._cluster.placed
        coming = (*placed.leaving.values(), *placed.parting.values())
        spare = ledger.whole_free - ledger.awaited
        return spare + sum(devices_of(gang.requests) for gang in coming)

    def has_pinned(self, tenant: str, pin: str) -> bool:  # noqa: ARG002 - there are none
        return False

    def idle_place(self, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
        return self._cluster.find(requests)

    def free_place(self, shape: Shape, entitlement: Entitlement) -> FreePlace | None:
        entitled = entitle_shape(self._cluster, shape)
        slots = self._cluster.find(shape.requests) if entitled is entitlement else None
        return None if slots is None else (slots, ())

    def stands(self, place: ReservedPlace) -> bool:
        """Whether it does; what its victims of the same tenant still hold is not counted."""
        cluster, name = self._cluster, self._cluster.tenant_of(place.job)
        left = cluster.queues.tenants[name].left.copy()
        add(left, cluster.queues.taken_by(place.job))
        for victim in _own_victims(cluster, place, name):
            add(left, held_vector(victim))
        need, gang = vector_of(sum_of(place.needs)), cluster.gangs.get(place.job)
        moves = place.job in place.victims
        if gang is not None and gang.entitlement is OPPORTUNISTIC and not moves:
            add(need, held_vector(gang))
        entitled = cluster.policies.sharing.entitle(
            cluster.tenants[name],
            fits=has_room(left, need),
            preemptible=place.entitlement is not GUARANTEED,
        )
        return entitled is place.entitlement or entitled is GUARANTEED

    def renewed(self, place: ReservedPlace) -> ReservedPlace | None:
        return place if self._cluster.has_devices(place.slots) else None

    def quota_kept(self, gang: Gang) -> Quota:  # noqa: ARG002 - there are no cells
        return ()

    def resumed(self, gang: Gang, leases: Resources) -> Entitlement | None:
        """Return that; what a gang kept counts already, if it is its tenant's own."""
        if gang.opportunistic:
            may = borrows(self._cluster, gang.tenant, preemptible=gang.preemptible)
            return OPPORTUNISTIC if may else None
        need = vector_of(leases)
        if gang.entitlement is OPPORTUNISTIC:
            add(need, held_vector(gang))
        return entitle(self._cluster, gang.tenant, need, preemptible=gang.preemptible)

    def may_promote(self, tenant: str) -> bool:
        """Whether a borrower of any size there is would be entitled. O(sizes)."""
        return any(
            entitle(self._cluster, tenant, vector_of(held), preemptible=True) is GUARANTEED
            for held in self._cluster.placed.borrowed_sizes.get(tenant, ())
        )

    def promotion(self, gang: Gang) -> tuple[Quota, Beside] | None:
        entitled = entitle(self._cluster, gang.tenant, held_vector(gang), preemptible=True)
        return ((), ()) if entitled is GUARANTEED else None

    def objection(self, claim: Claim, entitlement: Entitlement) -> str:
        right = entitle(self._cluster, claim.tenant, claim.total, preemptible=claim.preemptible)
        if right is entitlement or (right is GUARANTEED and claim.preemptible):
            return ""
        return f"tenant {claim.tenant} has no right to it"

    def borrowed_parts(self, gang: Gang) -> tuple[str, ...]:
        return beyond_share(self._cluster, gang.tenant, held_vector(gang))

    def may_hold_in_part(self, need: Resources) -> bool:  # noqa: ARG002 - all can be counted
        return True

    def together(self, level: str, slots: Sequence[Slot]) -> bool:
        nodes = {slot.node for slot in slots}
        return len(nodes) == 1 or self._cluster.ledger.regions.together(level, nodes)

    def keeping(self, tenant: str, pin: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()


def _own_victims(cluster: Cluster, place: ReservedPlace, tenant: str) -> Iterator[Gang]:
    """Return the victims that hold some of the quota of the reserved place's own tenant."""
    for victim in place.victims:
        gang = cluster.gangs.get(victim)
        if gang and gang.tenant == tenant and gang.entitlement is GUARANTEED:
            yield gang


# ── in cells ────────────────────────────────────────────────────────────────────────────


class InCells:
    """Hardware that lies together."""

    clears_suspended = True
    in_one_chain = True

    def __init__(self, cluster: Cluster, cells: Cells) -> None:
        self._cluster, self._cells = cluster, cells
        self.spaces: Sequence[Space] = cells.spaces

    def regrows(self, place: ReservedPlace) -> bool:
        """Whether it left for that place itself, in a queue that grows, and hardware is up.

        While some is lost, to give a place up for another could cost others their quota. A
        gang that borrows in its pinned cell has no business elsewhere.
        """
        shape = self._cluster.shape_of(place.job)
        queue = self._cluster.tenants[shape.tenant].queue(shape.queue)
        grows = queue is not None and queue.grow_ms > 0 and place.job in place.victims
        may = grows and (place.entitlement is GUARANTEED or not place.pin)
        return may and not any(space.broken for space in self.spaces)

    def entitlement(self, shape: Shape) -> Entitlement | None:
        if guaranteed_place(self._cluster, shape) is not None:
            return GUARANTEED
        return OPPORTUNISTIC if may_borrow(self._cluster, shape) else None

    def could_fit(self, shape: Shape) -> bool:
        if shape.opportunistic:
            return False
        memo = self._cluster.memos.fits_if_empty
        known = memo.get(shape)
        if known is None:
            empty = self._cluster.empty_cells()
            known = find(empty, shape.tenant, shape.pin, shape.requests) is not None
            remember(memo, shape, known)
        return known

    def ever_starts(self, shape: Shape) -> bool:
        if self.could_fit(shape):
            return True
        return may_borrow(self._cluster, shape) and self.fits_machines(shape)

    def fits_machines(self, shape: Shape) -> bool:
        cluster, requests = self._cluster, shape.requests
        known = cluster.memos.ever_fits.get(requests)
        if known is None:
            idle = Ledger(tuple(cluster.nodes.values()))
            slots = find_idle(cluster.empty_cells(), requests, idle)
            known = remember(cluster.memos.ever_fits, requests, slots is not None)
        return known

    def coming_free(self, shape: Shape) -> int:
        """Count them; what leaves is in no gang's way there, and what is reserved is taken."""
        return self._cells.room_of(shape.tenant, shape.pin)

    def has_pinned(self, tenant: str, pin: str) -> bool:
        return (tenant, pin) in self._cells.holdings

    def idle_place(self, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
        return find_idle(self._cells, requests, self._cluster.ledger)

    def free_place(self, shape: Shape, entitlement: Entitlement) -> FreePlace | None:
        if entitlement is not GUARANTEED:
            if not borrows(self._cluster, shape.tenant, preemptible=shape.preemptible):
                return None
            slots = self.idle_place(shape.requests)
            return None if slots is None else (slots, ())
        found = find(self._cells, shape.tenant, shape.pin, shape.requests)
        if found is None or found.borrowers:
            return None
        free = self._cluster.slots_free(found.slots, shape.requests)
        return (found.slots, found.quota) if free else None

    def stands(self, place: ReservedPlace) -> bool:
        """Whether it does: it holds its cells already, unless they were cut, or broke."""
        if place.entitlement is not GUARANTEED:
            return Counted(self._cluster).stands(place)
        name = self._cluster.tenant_of(place.job)
        return self._cells.stands(name, place.pin, place.slots, place.quota)

    def renewed(self, place: ReservedPlace) -> ReservedPlace | None:
        """Return it; what lies in no cell takes no new gang."""
        has_all = self._cluster.has_devices(place.slots)
        if not has_all or not self._cells.are_in_cells(place.slots):
            return None
        if place.entitlement is not GUARANTEED:
            return place
        tenant = self._cluster.tenant_of(place.job)
        where = (tenant, place.pin, place.slots, place.needs)
        quota = quota_still(self._cells, *where, place.quota)
        return msgspec.structs.replace(place, quota=quota) if quota else None

    def quota_kept(self, gang: Gang) -> Quota:
        place = (gang.tenant, gang.pin, gang.slots, gang.needs)
        return quota_still(self._cells, *place, gang.quota)

    def resumed(self, gang: Gang, leases: Resources) -> Entitlement | None:  # noqa: ARG002
        if not gang.opportunistic and self.quota_kept(gang):
            return GUARANTEED
        may = borrows(self._cluster, gang.tenant, preemptible=gang.preemptible)
        return OPPORTUNISTIC if may else None

    def may_promote(self, tenant: str) -> bool:  # noqa: ARG002 - it goes by where they are
        return True

    def promotion(self, gang: Gang) -> tuple[Quota, Beside] | None:
        if gang.suspended:
            return None
        quota, beside = self.quota_kept(gang), ()
        if not quota:
            place = (gang.tenant, gang.pin, gang.slots, gang.needs)
            quota, beside = by_host_shares(self._cells, *place)
        return (quota, beside) if quota else None

    def objection(self, claim: Claim, entitlement: Entitlement) -> str:
        if entitlement is GUARANTEED:
            place = (claim.tenant, claim.pin, claim.slots, claim.needs, claim.quota)
            return objection(self._cells, *place)
        may = borrows(self._cluster, claim.tenant, preemptible=claim.preemptible)
        return "" if may else f"tenant {claim.tenant} has no right to it"

    def borrowed_parts(self, gang: Gang) -> tuple[str, ...]:
        return (GPU if gang.held().gpu_milli else CPU,)

    def may_hold_in_part(self, need: Resources) -> bool:
        """Whether it can: a part of a device, or a share of a host, is no cell of its own."""
        return need.gpu_milli > 0 and need.gpu_milli % DEVICE == 0

    def together(self, level: str, slots: Sequence[Slot]) -> bool:
        return in_one_cell(self._cells.chains, level, slots)

    def keeping(self, tenant: str, pin: str) -> AbstractContextManager[None]:
        return self._cells.keeping(tenant, pin)
