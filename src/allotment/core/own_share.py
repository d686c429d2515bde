"""What a tenant may still hold as its own, as backfilling counts it.

A gang that would fit in its tenant's whole share waits for this alone when others of the
tenant hold it. Where shares are counted, every part of the guarantee is; where they are
cells, the leaves of these by type: how they lie together is left to the placement.
"""

from collections.abc import Iterator, Set

from allotment.core.cells.book import Cells
from allotment.core.cluster import Cluster
from allotment.core.lending import share_left
from allotment.core.measures import (
    NOT_OF_NODES,
    DevicesByType,
    Holding,
    Measure,
    amounts_of,
    in_one_chain,
)
from allotment.core.profile import Amounts, Want
from allotment.core.request import Request, Shape, is_part_of_device, sum_of, total_of
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE

GUARANTEED = Entitlement.GUARANTEED


def own_share(cluster: Cluster, shape: Shape) -> Measure | None:
    """Return the measure of the share a gang would start in; None where that bounds nothing."""
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is None:
        return None
    if cluster.cells is not None:
        return InCells(cluster.cells, shape)
    if cluster.ledger.total.fits_in(share_left(cluster, tenant.name)):
        return None
    return Counted(cluster, tenant.name)


def counts_types(measure: Measure) -> bool:
    """Whether a measure counts devices, or leaves, by their type."""
    return isinstance(measure, DevicesByType | InCells)


class Counted:
    """All parts of a guarantee that are left."""

    def __init__(self, cluster: Cluster, tenant: str) -> None:
        self._cluster, self.tenant = cluster, tenant

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        need = amounts_of(total_of(shape.requests))
        return tuple((amount, (part,)) for part, amount in need.items() if amount)

    def free(self, without: Set[NodeId]) -> Amounts:  # noqa: ARG002 - it lies on no node
        return amounts_of(share_left(self._cluster, self.tenant))

    def free_on(self, node: NodeId) -> Amounts:  # noqa: ARG002 - it lies on no node
        return Amounts()

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        if held.tenant != self.tenant or held.entitlement is not GUARANTEED:
            return
        yield NOT_OF_NODES, amounts_of(sum_of(held.needs))


class InCells:
    """The leaves of a tenant's cells that are left, or of one pinned cell, by their type."""

    def __init__(self, cells: Cells, shape: Shape) -> None:
        self._cells = cells
        self.tenant = shape.tenant
        self._whose = shape.tenant, shape.pin
        self._holdings = cells.holdings.get(self._whose, {})

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        if (shape.tenant, shape.pin) != self._whose:
            return ()
        found = [(self._leaves(request), request.types) for request in shape.requests]
        here = {self._cells.chains[at].names[0]: None for at in self._holdings}
        return in_one_chain([want for want in found if want[0]], tuple(here))

    def _leaves(self, request: Request) -> int:
        """Count them for the devices of its tasks and for what these need of the hosts."""
        need, found = request.need, list[int]()
        for at in self._holdings:
            chain = self._cells.chains[at]
            if not request.types or chain.names[0] in request.types:
                part = chain.part_of(need) if is_part_of_device(need) else need.gpu_milli
                found.append(part + self._cells.claim(at, need) * DEVICE)
        return min(found, default=need.gpu_milli) * request.count

    def free(self, without: Set[NodeId]) -> Amounts:  # noqa: ARG002 - any node may serve it
        free = Amounts()
        for at, holding in self._holdings.items():
            kind = self._cells.chains[at].names[0]
            free[kind] = free.get(kind, 0) + holding.left_when_sound()
        return free

    def free_on(self, node: NodeId) -> Amounts:  # noqa: ARG002 - any node may serve it
        return Amounts()

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        if (held.tenant, held.pin) != self._whose or held.entitlement is not GUARANTEED:
            return
        amounts = Amounts()
        for spot, level in self._cells.spots(held.slots, held.needs, held.quota):
            if (holding := self._holdings.get(spot.chain)) is None:
                continue  # Its tenant owns nothing there any longer.
            number, beside = holding.claimed(level, spot)
            each = spot.milli if spot.is_part else DEVICE
            milli = spot.mask.bit_count() * each + (number + beside.bit_count()) * DEVICE
            kind = self._cells.chains[spot.chain].names[0]
            amounts[kind] = amounts.get(kind, 0) + milli
        yield NOT_OF_NODES, amounts
