"""Resource dimensions: what backfilling counts, each in a way of its own.

A dimension says what is free now, what a gang demands of it, and what one releases that ends,
in amounts by kind: devices as one kind or by type, what machines have beside them, the share
of a tenant. A job can start where its demand is met in every dimension; where devices are
free, in which portions, is left to the placement.

A gang that would fit in its tenant's whole share waits for that alone when others of the
tenant hold it. Where shares are counted, every part of the guarantee is; where they are cells,
the leaves of these by type: how they lie together is left to the placement.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from typing import Protocol

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.ledger import Ledger, NodeBook
from allotment.core.request import Request, Shape, held_by, sum_of, total_of
from allotment.core.timeline import Want
from allotment.model.amounts import (
    CPU,
    DISK,
    GPU,
    GPU_MEMORY,
    MEMORY,
    Vector,
    add,
    of_type,
    vector_of,
    whole_vector,
)
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, Entitlement, Quota, Slot
from allotment.model.quantity import DEVICE, Resources, is_part_of_device

NOT_OF_NODES = NodeId(-1)
"""Where a share is released: on no machine in particular."""


class Occupancy(msgspec.Struct, frozen=True):
    """What a gang holds, or will hold in its reserved place, and releases at its end."""

    tenant: str
    pin: str
    entitlement: Entitlement
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    quota: Quota


def occupied_by(gang: Gang) -> Occupancy:
    """Return what a gang releases that is not suspended."""
    return Occupancy(
        gang.tenant, gang.pin, gang.entitlement, gang.slots, gang.needs, gang.quota
    )


def occupied_in(tenant: str, place: ReservedPlace) -> Occupancy:
    """Return what a job of a tenant will release that has a place reserved."""
    return Occupancy(
        tenant, place.pin, place.entitlement, place.slots, place.needs, place.quota
    )


def occupancy_of(cluster: Cluster, job: JobId) -> Occupancy | None:
    """Return what a job holds, or will hold; None where it has no place."""
    if (gang := cluster.gangs.get(job)) is not None:
        return occupied_by(gang)
    place = cluster.placed.reserved.get(job)
    return None if place is None else occupied_in(cluster.tenant_of(job), place)


class Dimension(Protocol):
    """One way to count."""

    @property
    def name(self) -> str:
        """Under which releases are kept (`Ends`); '' where each is to be asked for anew."""
        ...

    @property
    def tenant(self) -> str:
        """Return the tenant whose gangs alone release any of it; '' where all may."""
        ...

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        """Return what a gang needs; empty if nothing that is counted so."""
        ...

    def free(self, without: Set[NodeId]) -> Vector:
        """Return what is free now on all nodes but some."""
        ...

    def free_on(self, node: NodeId) -> Vector:
        """Return what is free now on one node, whether it is open or not."""
        ...

    def awaited_on(self, node: NodeId) -> Vector:
        """Return, below 0, what is reserved on one node before its holders are gone."""
        ...

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        """Return what is released, and on which nodes."""
        ...


def released(dimension: Dimension, held: Occupancy) -> Vector:
    """Sum up what is released, wherever."""
    total = Vector()
    for _, amounts in dimension.release(held):
        add(total, amounts)
    return total


def counts_types(dimension: Dimension) -> bool:
    """Whether a dimension counts devices, or leaves, by their type."""
    return isinstance(dimension, DevicesByType | ShareInCells)


def devices_counted(cluster: Cluster, shape: Shape) -> "AllDevices | DevicesByType":
    """Count devices by type for a gang that may not have every type at once, else as one."""
    several = len(cluster.device_types) > 1
    in_cells = several and cluster.guarantee.in_one_chain and bool(devices_of(shape))
    by_type = in_cells or bool(types_wanted(cluster, shape.requests))
    return DevicesByType(cluster) if by_type else AllDevices(cluster)


def types_wanted(cluster: Cluster, requests: tuple[Request, ...]) -> tuple[str, ...]:
    """Return the types of devices that a gang may have; none where it may have every one."""
    asking = [request for request in requests if request.need.gpu_milli]
    if not asking or len(cluster.device_types) <= 1:
        return ()
    if not all(request.types for request in asking):
        return ()
    return tuple(sorted({kind for request in asking for kind in request.types}))


def own_share(cluster: Cluster, shape: Shape) -> Dimension | None:
    """Return the share that a gang would start in; None where that bounds nothing."""
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is None:
        return None
    if cluster.cells is not None:
        return ShareInCells(cluster.cells, shape)
    left = cluster.queues.tenants[tenant.name].left
    if all(amount <= left[part] for part, amount in whole_vector(cluster.ledger.total).items()):
        return None
    return ShareCounted(cluster, tenant.name)


# ── what machines have ──────────────────────────────────────────────────────────────────


class _OnMachines(ABC):
    """Each of these says what is free on one machine, and in sum on those that are open."""

    tenant = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def free(self, without: Set[NodeId]) -> Vector:
        ledger = self._cluster.ledger
        free = self._free_on_open_nodes(ledger)
        for node in without - ledger.closed:
            add(free, self._free_of(ledger.books[node]), -1)
        for node in ledger.closed - without:
            add(free, self._free_of(ledger.books[node]))
        return free

    def free_on(self, node: NodeId) -> Vector:
        return self._free_of(self._cluster.ledger.books[node])

    def awaited_on(self, node: NodeId) -> Vector:
        return self._awaited_on(self._cluster.ledger.books[node])

    @abstractmethod
    def _free_on_open_nodes(self, ledger: Ledger) -> Vector: ...

    @abstractmethod
    def _free_of(self, book: NodeBook) -> Vector: ...

    @abstractmethod
    def _awaited_on(self, book: NodeBook) -> Vector: ...


class AllDevices(_OnMachines):
    """Devices of all types as one kind; of shared ones what is free of them."""

    name = "devices"

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        return _of_any_type(shape)

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        for slot in held.slots:
            yield slot.node, {GPU: slot.gpu_milli}

    def _free_on_open_nodes(self, ledger: Ledger) -> Vector:
        return {GPU: ledger.free().gpu_milli}

    def _free_of(self, book: NodeBook) -> Vector:
        return {GPU: book.free().gpu_milli}

    def _awaited_on(self, book: NodeBook) -> Vector:
        return {GPU: sum(min(0, milli) for milli in book.device_milli)}


class DevicesByType(_OnMachines):
    """Devices, each type by itself."""

    name = "types"

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        wants = devices_of(shape)
        if not self._cluster.guarantee.in_one_chain:
            return wants
        return _in_one_chain(wants, tuple(map(of_type, self._cluster.device_types)))

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        books = self._cluster.ledger.books
        for slot in held.slots:
            if slot.devices:
                yield slot.node, books[slot.node].by_type(slot.devices, slot.gpu_milli)

    def _free_on_open_nodes(self, ledger: Ledger) -> Vector:
        return ledger.free_by_type()

    def _free_of(self, book: NodeBook) -> Vector:
        return book.free_by_type()

    def _awaited_on(self, book: NodeBook) -> Vector:
        awaited = Vector()
        for part, milli in zip(book.parts, book.device_milli, strict=True):
            if milli < 0:
                add(awaited, {part: milli})
        return awaited


class HostSums(_OnMachines):
    """CPU, memory, disk and device memory, in sum over all machines."""

    name = "hosts"

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        return _of_hosts(shape)

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        for slot, need in zip(held.slots, held.needs, strict=True):
            yield slot.node, _of_a_host(held_by(need))

    def _free_on_open_nodes(self, ledger: Ledger) -> Vector:
        return _of_a_host(ledger.free())

    def _free_of(self, book: NodeBook) -> Vector:
        return _of_a_host(book.free())

    def _awaited_on(self, book: NodeBook) -> Vector:
        return {
            CPU: min(0, book.cpu),
            MEMORY: min(0, book.memory),
            DISK: min(0, book.disk),
            GPU_MEMORY: sum(min(0, size) for size in book.device_memory),
        }


# ── what a tenant has ───────────────────────────────────────────────────────────────────


class _OfATenant:
    """A share lies on no node: any may serve it."""

    tenant: str

    def free_on(self, node: NodeId) -> Vector:  # noqa: ARG002
        return Vector()

    def awaited_on(self, node: NodeId) -> Vector:  # noqa: ARG002
        return Vector()


class ShareCounted(_OfATenant):
    """All parts of a guarantee that are left."""

    name = "share"

    def __init__(self, cluster: Cluster, tenant: str) -> None:
        self._cluster, self.tenant = cluster, tenant

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        need = vector_of(total_of(shape.requests))
        return tuple((amount, (part,)) for part, amount in need.items())

    def free(self, without: Set[NodeId]) -> Vector:  # noqa: ARG002 - it lies on no node
        return self._cluster.queues.tenants[self.tenant].left.copy()

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        if held.tenant == self.tenant and held.entitlement is GUARANTEED:
            yield NOT_OF_NODES, whole_vector(sum_of(held.needs))


class ShareInCells(_OfATenant):
    """The leaves of a tenant's cells that are left, or of one pinned cell, by their type."""

    name = ""

    def __init__(self, cells: Cells, shape: Shape) -> None:
        self._cells = cells
        self.tenant = shape.tenant
        self._whose = shape.tenant, shape.pin
        self._holdings = cells.holdings.get(self._whose, {})

    def demand(self, shape: Shape) -> tuple[Want, ...]:
        if (shape.tenant, shape.pin) != self._whose:
            return ()
        found = [
            (self._leaves(request), tuple(map(of_type, request.types)))
            for request in shape.requests
        ]
        here = dict.fromkeys(self._part(at) for at in self._holdings)
        return _in_one_chain([want for want in found if want[0]], tuple(here))

    def _part(self, at: int) -> str:
        """Return the part that counts the leaves of a chain."""
        return of_type(self._cells.chains[at].names[0])

    def _leaves(self, request: Request) -> int:
        """Count them for the devices of its tasks and for what these need of the hosts."""
        need, found = request.need, list[int]()
        for at in self._holdings:
            chain = self._cells.chains[at]
            if not request.types or chain.names[0] in request.types:
                part = chain.part_of(need) if is_part_of_device(need) else need.gpu_milli
                found.append(part + self._cells.claim(at, need) * DEVICE)
        return min(found, default=need.gpu_milli) * request.count

    def free(self, without: Set[NodeId]) -> Vector:  # noqa: ARG002 - any node may serve it
        free = Vector()
        for at, holding in self._holdings.items():
            add(free, {self._part(at): holding.left_when_sound()})
        return free

    def release(self, held: Occupancy) -> Iterator[tuple[NodeId, Vector]]:
        if (held.tenant, held.pin) != self._whose or held.entitlement is not GUARANTEED:
            return
        amounts = Vector()
        for spot, level in self._cells.spots(held.slots, held.needs, held.quota):
            if (holding := self._holdings.get(spot.chain)) is None:
                continue  # Its tenant owns nothing there any longer.
            number, beside = holding.claimed(level, spot)
            each = spot.milli if spot.is_part else DEVICE
            milli = spot.mask.bit_count() * each + (number + beside.bit_count()) * DEVICE
            add(amounts, {self._part(spot.chain): milli})
        yield NOT_OF_NODES, amounts


# ── what a gang needs ───────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4_096)
def _of_any_type(shape: Shape) -> tuple[Want, ...]:
    return tuple((milli, ()) for milli, _ in devices_of(shape))


@lru_cache(maxsize=4_096)
def _of_hosts(shape: Shape) -> tuple[Want, ...]:
    need = _of_a_host(total_of(shape.requests))
    return tuple((amount, (part,)) for part, amount in need.items() if amount)


@lru_cache(maxsize=4_096)
def devices_of(shape: Shape) -> tuple[Want, ...]:
    """Return how many thousandths of which types of devices a gang needs."""
    return tuple(
        (request.need.gpu_milli * request.count, tuple(map(of_type, request.types)))
        for request in shape.requests
        if request.need.gpu_milli
    )


def _in_one_chain(wants: Sequence[Want], here: tuple[str, ...]) -> tuple[Want, ...]:
    """Let what a gang wants in cells, which lies in one chain of them, be of one type."""
    total: dict[tuple[str, ...], int] = {}
    for milli, types in wants:
        total[types or here] = total.get(types or here, 0) + milli
    return tuple((milli, types) for types, milli in total.items())


def on_slots(cluster: Cluster, slots: Sequence[Slot]) -> tuple[Want, ...]:
    """Return which devices, type by type, a place takes."""
    books, total = cluster.ledger.books, Vector()
    for slot in slots:
        if slot.devices:
            add(total, books[slot.node].by_type(slot.devices, slot.gpu_milli))
    return tuple((milli, (part,)) for part, milli in total.items())


def _of_a_host(there: Resources) -> Vector:
    """Return what a machine has beside devices, every part named."""
    beside = whole_vector(there)
    del beside[GPU]
    return beside
