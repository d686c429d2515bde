"""Where an opportunistic gang goes: on idle leaves of any tenant, far from guaranteed work."""

from collections.abc import Iterator
from itertools import islice

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, bits
from allotment.core.cells.choices import GangSearch, idle_cells, serves
from allotment.core.ports import Hosts
from allotment.core.request import Request, devices_of
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources, is_part_of_device


def find_idle(
    cells: Cells, requests: tuple[Request, ...], hosts: Hosts
) -> tuple[Slot, ...] | None:
    """Find idle leaves for a whole gang; None if there are too few. Changes nothing."""
    for chains in cells.chains_for(requests):
        found = {
            at: slots
            for at in chains
            if (slots := _in_chain(cells, at, requests, hosts)) is not None
        }
        if found:
            return found[min(found, key=lambda at: (*_rank(cells, at, found[at]), at))]
    return None


def _rank(cells: Cells, at: int, slots: tuple[Slot, ...]) -> tuple[int, int, int]:
    """Rank a place among those in other chains, as within one: close, far from owners, full."""
    chain, idle = cells.chains[at], cells.uses[at].idle
    nodes = {chain.number[slot.node] for slot in slots}
    leaves = sum(idle.leaves[node].bit_count() for node in nodes)
    return cells.extent(at, slots), sum(map(idle.near, nodes)), leaves


def _in_chain(
    cells: Cells, at: int, requests: tuple[Request, ...], hosts: Hosts
) -> tuple[Slot, ...] | None:
    chain = cells.chains[at]
    if not serves(chain, requests):
        return None
    for region in _regions(cells, at, requests):
        slots = _Attempt(cells, at, hosts, region).place_all(requests)
        if slots is not None:
            return slots
    return None


def _regions(cells: Cells, at: int, requests: tuple[Request, ...]) -> Iterator[Cell | None]:
    """Return the cells to look for room in, the liked ones first; None for anywhere."""
    chain, first = cells.chains[at], requests[0]
    required, liked = chain.level_of(first.within), chain.level_of(first.prefer)
    if first.within and required is None:
        return
    if liked is not None and (required is None or liked < required):
        yield from _roomy(cells, at, requests, liked)
    if required is None:
        yield from _close(cells, at, requests)
        yield None
    else:
        yield from _roomy(cells, at, requests, required)


MOST_NODES = 32
"""Nodes that are compared by how close together their idle leaves are."""
MOST_TRIED = 4
"""Cells that are tried: a host may be too full."""


def _close(cells: Cells, at: int, requests: tuple[Request, ...]) -> list[Cell]:
    """Return cells within one node that have room for a whole gang, the smallest first.

    Of alike ones first those on nodes far from guaranteed work, then on the fullest.
    """
    chain, idle = cells.chains[at], cells.uses[at].idle
    want = devices_of(requests)
    if not 1 < want <= chain.width or any(
        is_part_of_device(r.need) or not r.devices or r.group for r in requests
    ):
        return []
    least = next(level for level, size in enumerate(chain.size) if size >= want)
    found: list[tuple[int, int, Cell]] = []
    for place, node in enumerate(islice(idle.nodes_with(want), MOST_NODES)):
        picked = chain.pick(idle.leaves[node], want)
        level = chain.common_level(picked)
        if level <= least and not place and sum(r.count for r in requests) == 1:
            return []  # A single task goes there anyway.
        cell = chain.cell_at(level, node, picked.bit_length() - 1)
        found.append((level, place, cell))
        if level <= least and len(found) >= MOST_TRIED:
            break
    return [cell for _, _, cell in sorted(found)[:MOST_TRIED]]


def _roomy(cells: Cells, at: int, requests: tuple[Request, ...], level: int) -> Iterator[Cell]:
    """Return the cells of a level that have as many idle leaves as the gang needs."""
    chain, leaves = cells.chains[at], cells.uses[at].idle.leaves
    want = devices_of(requests)
    for number in range(chain.cells[level]):
        mask = chain.mask_of((level, number))
        idle = sum((leaves[n] & mask).bit_count() for n in chain.nodes_of((level, number)))
        if idle >= want:
            yield (level, number)


class _Attempt(GangSearch[Slot]):
    """One gang's places so far."""

    state = ("used", "held", "parts", "memory")

    def __init__(self, cells: Cells, at: int, hosts: Hosts, region: Cell | None) -> None:
        self.cells, self.at, self.hosts, self.region = cells, at, hosts, region
        self.chain, self.use = cells.chains[at], cells.uses[at]
        self.used: dict[int, int] = {}
        self.held: dict[NodeId, Resources] = {}
        self.parts: dict[tuple[int, int], int] = {}
        self.memory: dict[tuple[int, int], int] = {}
        """Device memory that this gang has of a leaf."""

    def place_all(self, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
        """Place every task, the ones with most devices first; slots in rank order."""
        places = self.place_roles(requests)
        return None if places is None else tuple(places)

    def cells_for_groups(self, level: int, want: int) -> Iterator[Cell]:
        return idle_cells(self.chain, self.use.idle, self.region, level, want)

    def place(self, request: Request) -> list[Slot]:
        found: list[Slot] = []
        if is_part_of_device(request.need):
            self._share(request, found)
        if len(found) < request.count:
            self._place(request, found)
        return found

    def _place(self, request: Request, found: list[Slot]) -> None:
        need, leaves = request.need, request.devices
        is_part, milli = is_part_of_device(need), self.chain.part_of(need)
        for node in self._nodes(leaves):
            free = self.use.idle.leaves[node] & ~self.used.get(node, 0)
            if self.region is not None:
                free &= self.chain.mask_of(self.region)
            free = self._with_memory(node, free, need)
            while len(found) < request.count and self._hosts(node, need):
                mask = self.chain.pick(free, leaves) if leaves else 0
                if leaves and not mask:
                    break
                free &= ~mask
                self.used[node] = self.used.get(node, 0) | mask
                self._sit(node, mask, need, found)
                if is_part:
                    leaf = mask.bit_length() - 1
                    self.parts[node, leaf] = milli
                    self._share(request, found)
            if len(found) == request.count:
                return

    def _nodes(self, leaves: int) -> Iterator[int]:
        idle = self.use.idle
        if self.region is None:
            return idle.nodes_with(leaves)
        return idle.nodes_in(self.chain.nodes_of(self.region), leaves)

    def _share(self, request: Request, found: list[Slot]) -> None:
        """Put parts of devices on leaves that borrowers share already."""
        milli = self.chain.part_of(request.need)
        shared = dict(self.use.parts)
        for key, used in self.parts.items():
            shared[key] = shared.get(key, 0) + used
        for (node, leaf), used in sorted(shared.items(), key=lambda part: (-part[1], part[0])):
            left = DEVICE - used
            while left >= milli and len(found) < request.count:
                serves = self._may_share(node, leaf) and self._hosts(node, request.need)
                if not serves or not self._with_memory(node, 1 << leaf, request.need):
                    break
                self.parts[node, leaf] = self.parts.get((node, leaf), 0) + milli
                self._sit(node, 1 << leaf, request.need, found)
                left -= milli

    def _may_share(self, node: int, leaf: int) -> bool:
        mask = 1 << leaf
        taken = self.use.taken[node] | self.cells.spaces[self.at].shut[node]
        if taken & mask or leaf in self.use.aside.get(node, ()):
            return False
        return self.region is None or (
            node in self.chain.nodes_of(self.region)
            and bool(mask & self.chain.mask_of(self.region))
        )

    def _with_memory(self, node: int, free: int, need: Resources) -> int:
        """Leave out leaves whose device has too little memory: suspended jobs may keep some."""
        if not need.gpu_memory:
            return free
        name, devices = self.chain.nodes[node], self.chain.devices[node]
        for leaf in bits(free):
            left = self.hosts.free_memory(name, devices[leaf])
            if left - self.memory.get((node, leaf), 0) < need.gpu_memory:
                free &= ~(1 << leaf)
        return free

    def _hosts(self, node: int, need: Resources) -> bool:
        """Whether CPU, memory and disk of the node suffice for one more task."""
        name = self.chain.nodes[node]
        return self.hosts.host_fits(name, self.held.get(name, NOTHING) + need)

    def _sit(self, node: int, mask: int, need: Resources, found: list[Slot]) -> None:
        name = self.chain.nodes[node]
        self.held[name] = self.held.get(name, NOTHING) + need
        for leaf in bits(mask) if need.gpu_memory else ():
            taken = self.memory.get((node, leaf), 0)
            self.memory[node, leaf] = taken + need.gpu_memory
        devices = self.chain.devices_at(node, mask) if self.chain.devices[node] else ()
        found.append(Slot(name, devices, need.gpu_milli))
