"""What backfilling counts: what is free, who wants how much of it, and who gives back what.

Each measure counts by itself, in amounts by kind: devices as one kind or by type, what
machines have beside them, a tenant's own share. A job can start where it fits by every
measure; where devices are free, in which portions, is left to the placement.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Protocol

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.free_of import types_wanted
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.ledger import ANY_TYPE, Ledger, NodeBook
from allotment.core.profile import Amounts, Want
from allotment.core.request import Shape, held_by, total_of
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Quota, Slot
from allotment.model.quantity import Resources

NOT_OF_NODES = NodeId(-1)
"""Where a share is given back: on no machine in particular."""


class Holding(msgspec.Struct, frozen=True):
    """What somebody has or is promised, and gives back at its end."""

    tenant: str
    pin: str
    entitlement: Entitlement
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    quota: Quota


def holding_of(gang: Gang) -> Holding:
    """Return what a gang gives back that is not suspended."""
    return Holding(gang.tenant, gang.pin, gang.entitlement, gang.slots, gang.needs, gang.quota)


def promised_to(tenant: str, promise: ReservedPlace) -> Holding:
    """Return what one gives back that is promised a place."""
    return Holding(
        tenant, promise.pin, promise.entitlement, promise.slots, promise.needs, promise.quota
    )


def given_by(measure: "Measure", held: Holding) -> Amounts:
    """Sum up what somebody gives back, wherever."""
    total = Amounts()
    for _, amounts in measure.gives(held):
        add(total, amounts)
    return total


def place_of(cluster: Cluster, job: JobId) -> Holding | None:
    """Return what a job has, or is promised; None where it has no place."""
    if (gang := cluster.gangs.get(job)) is not None:
        return holding_of(gang)
    promise = cluster.reserved.get(job)
    return None if promise is None else promised_to(cluster.tenant_of(job), promise)


class Measure(Protocol):
    """One way to count."""

    @property
    def tenant(self) -> str:
        """Whose ends alone give back what is counted; '' where everybody's may."""
        ...

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        """Return what a gang needs; empty if nothing that is counted so."""
        ...

    def free(self, without: Set[NodeId]) -> Amounts:
        """Return what is free now on all nodes but some, less what is promised twice."""
        ...

    def free_on(self, node: NodeId) -> Amounts:
        """Return what is free now on one node, whether it takes new work or not."""
        ...

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        """Return what somebody gives back, and on which nodes."""
        ...


class _OnMachines(ABC):
    """What machines have: each measure says what is free on one, and in sum on those open."""

    tenant = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def free(self, without: Set[NodeId]) -> Amounts:
        ledger = self._cluster.ledger
        free = self._free_on_open_nodes(ledger)
        for node in without - ledger.closed:
            subtract(free, self._free_of(ledger.books[node]))
        for node in ledger.closed - without:
            add(free, self._free_of(ledger.books[node]))
        add(free, self.owed(without))
        return free

    def owed(self, without: Set[NodeId]) -> Amounts:
        """Return what is promised on other nodes before its holders are gone: below 0."""
        owed = Amounts()
        promised = self._cluster.placed.reserved.values()
        for node in {slot.node for each in promised for slot in each.slots} - without:
            add(owed, self._owed_on(self._cluster.ledger.books[node]))
        return owed

    def free_on(self, node: NodeId) -> Amounts:
        book = self._cluster.ledger.books[node]
        free = self._free_of(book)
        add(free, self._owed_on(book))
        return free

    @abstractmethod
    def _free_on_open_nodes(self, ledger: Ledger) -> Amounts: ...

    @abstractmethod
    def _free_of(self, book: NodeBook) -> Amounts: ...

    @abstractmethod
    def _owed_on(self, book: NodeBook) -> Amounts: ...


class Devices(_OnMachines):
    """Devices of all types as one kind; of shared ones what is free of them."""

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        return _of_any_type(shape)

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        for slot in held.slots:
            yield slot.node, {ANY_TYPE: slot.gpu_milli}

    def _free_on_open_nodes(self, ledger: Ledger) -> Amounts:
        return {ANY_TYPE: ledger.free().gpu_milli}

    def _free_of(self, book: NodeBook) -> Amounts:
        return {ANY_TYPE: book.free().gpu_milli}

    def _owed_on(self, book: NodeBook) -> Amounts:
        return {ANY_TYPE: sum(min(0, milli) for milli in book.device_milli)}


class DevicesByType(_OnMachines):
    """Devices, each type by itself."""

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        wants = devices_of(shape)
        if self._cluster.cells is None:
            return wants
        return in_one_chain(wants, self._cluster.device_types)

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        books = self._cluster.ledger.books
        for slot in held.slots:
            if slot.devices:
                yield slot.node, types_of(books[slot.node], slot)

    def _free_on_open_nodes(self, ledger: Ledger) -> Amounts:
        return ledger.free_by_type()

    def _free_of(self, book: NodeBook) -> Amounts:
        return book.free_by_type()

    def _owed_on(self, book: NodeBook) -> Amounts:
        owed = Amounts()
        for kind, milli in zip(book.types, book.device_milli, strict=True):
            if milli < 0:
                owed[kind] = owed.get(kind, 0) + milli
        return owed


class Hosts(_OnMachines):
    """CPU, memory, disk and device memory, in sum over all machines."""

    def wants(self, shape: Shape) -> tuple[Want, ...]:
        return _of_hosts(shape)

    def gives(self, held: Holding) -> Iterator[tuple[NodeId, Amounts]]:
        for slot, need in zip(held.slots, held.needs, strict=True):
            yield slot.node, amounts_of(held_by(need))

    def _free_on_open_nodes(self, ledger: Ledger) -> Amounts:
        return amounts_of(ledger.free())

    def _free_of(self, book: NodeBook) -> Amounts:
        return amounts_of(book.free())

    def _owed_on(self, book: NodeBook) -> Amounts:
        return {
            "cpu_milli": min(0, book.cpu),
            "memory": min(0, book.memory),
            "disk": min(0, book.disk),
            "gpu_memory": sum(min(0, size) for size in book.device_memory),
        }


def devices_measured(cluster: Cluster, shape: Shape) -> Devices | DevicesByType:
    """Count devices by type for a gang that may not have every type at once, else as one."""
    several = len(cluster.device_types) > 1
    in_cells = several and cluster.cells is not None and bool(devices_of(shape))
    by_type = in_cells or bool(types_wanted(cluster, shape.requests))
    return DevicesByType(cluster) if by_type else Devices(cluster)


@lru_cache(maxsize=4_096)
def _of_any_type(shape: Shape) -> tuple[Want, ...]:
    return tuple((milli, ()) for milli, _ in devices_of(shape))


@lru_cache(maxsize=4_096)
def _of_hosts(shape: Shape) -> tuple[Want, ...]:
    parts = amounts_of(total_of(shape.requests))
    return tuple((n, (kind,)) for kind, n in parts.items() if n and kind != "gpu_milli")


@lru_cache(maxsize=4_096)
def devices_of(shape: Shape) -> tuple[Want, ...]:
    """Return how many thousandths of which types of devices a gang needs."""
    return tuple(
        (request.need.gpu_milli * request.count, request.types)
        for request in shape.requests
        if request.need.gpu_milli
    )


def in_one_chain(wants: Sequence[Want], here: tuple[str, ...]) -> tuple[Want, ...]:
    """Let what a gang wants in cells, which lies in one chain of them, be of one type."""
    total: dict[tuple[str, ...], int] = {}
    for milli, types in wants:
        total[types or here] = total.get(types or here, 0) + milli
    return tuple((milli, types) for types, milli in total.items())


def types_of(book: NodeBook, slot: Slot) -> Amounts:
    """Return what a slot holds of which types of devices."""
    amounts, each = Amounts(), slot.gpu_milli // len(slot.devices)
    for index in slot.devices:
        kind = book.types[index]
        amounts[kind] = amounts.get(kind, 0) + each
    return amounts


def on_slots(cluster: Cluster, slots: Sequence[Slot]) -> tuple[Want, ...]:
    """Return which devices, type by type, a place takes."""
    books, total = cluster.ledger.books, Amounts()
    for slot in slots:
        if slot.devices:
            add(total, types_of(books[slot.node], slot))
    return tuple((milli, (kind,)) for kind, milli in total.items())


def amounts_of(parts: Resources) -> Amounts:
    """Return each part as a kind of its own."""
    return {
        "gpu_milli": parts.gpu_milli,
        "cpu_milli": parts.cpu_milli,
        "memory": parts.memory,
        "disk": parts.disk,
        "gpu_memory": parts.gpu_memory,
    }


def add(total: Amounts, more: Amounts) -> None:
    """Add amounts to others."""
    for kind, amount in more.items():
        total[kind] = total.get(kind, 0) + amount


def subtract(total: Amounts, less: Mapping[str, int]) -> None:
    """Take amounts off others."""
    for kind, amount in less.items():
        total[kind] = total.get(kind, 0) - amount
