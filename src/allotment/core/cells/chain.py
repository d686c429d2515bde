"""The geometry of a chain: cells of one shape, level by level, as plain arithmetic.

Cells of a level are numbered from 0 in the order of the configuration, so a cell's parent,
children, leaves and nodes follow from its number. A node's leaves are bits of an integer.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.model.cells import CellType, RootCell, Topology
from allotment.model.cluster import Node
from allotment.model.errors import InvariantViolated
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Resources, is_part_of_device
from allotment.model.spec import Arch

NODE = "node"
"""The word for the level of whole machines, whatever its type is called."""

Cell = tuple[int, int]
"""A cell of a chain: its level, leaves being 0, and its number among those of that level."""


class Chain:
    """What never changes while a configuration holds. Levels count from the leaf, 0."""

    def __init__(
        self, levels: Sequence[CellType], roots: Sequence[RootCell], nodes: dict[NodeId, Node]
    ) -> None:
        """`levels` from the lowest type that is no leaf up to the top."""
        self.names = (levels[0].child, *(level.name for level in levels))
        self.fanout = (1, *(level.count for level in levels))
        """How many cells of the level below each cell is made of."""
        size = [1]
        for level in levels:
            size.append(size[-1] * level.count)
        self.size = tuple(size)
        """Leaves in a cell, by level."""
        self.top = len(levels)
        self.node_level = 1 + next(at for at, level in enumerate(levels) if level.is_node)
        self.width = self.size[self.node_level]
        """Leaves on a node."""
        self.full = (1 << self.width) - 1
        self.per = tuple(max(1, leaves // self.width) for leaves in size)
        """Nodes in a cell, by level; 1 for those within a node."""
        self.nodes = tuple(node for root in roots for node in root.nodes)
        self.number = {node: at for at, node in enumerate(self.nodes)}
        self.devices = self._devices_of(roots, nodes)
        """The device index of each leaf, node by node; none where leaves are host shares."""
        self.has_devices = all(self.devices)
        self.leaf = tuple(
            {device: leaf for leaf, device in enumerate(devices)} for devices in self.devices
        )
        self.cells = tuple(len(self.nodes) * self.width // leaves for leaves in size)
        """How many cells there are, by level."""
        self.roots = tuple(root.name for root in roots)
        first = nodes[self.nodes[0]]
        self.arch: Arch = first.arch
        self.engine, self.lacks = first.engine, frozenset(first.lacks)
        self.memory = min(
            (nodes[n].devices[d].memory for n, ds in zip(self.nodes, self.devices, strict=True)
             for d in ds),
            default=0,
        )  # fmt: skip
        """The memory of a leaf's device in bytes, of the smallest."""
        self.share = self._share_of_a_leaf(nodes)
        self._masks = tuple(
            tuple(((1 << leaves) - 1) << at for at in range(0, self.width, leaves))
            for leaves in self.size[: self.node_level + 1]
        )
        self._picks: dict[tuple[int, int], int] = {}

    def _devices_of(
        self, roots: Sequence[RootCell], nodes: dict[NodeId, Node]
    ) -> tuple[tuple[int, ...], ...]:
        found: list[tuple[int, ...]] = []
        for root in roots:
            for at, node in enumerate(root.nodes):
                if root.devices:
                    devices = root.devices[at]
                else:
                    devices = tuple(range(self.width)) if nodes[node].devices else ()
                if devices and len(devices) != self.width:
                    raise InvariantViolated(f"node {node} has {len(devices)} leaves")
                found.append(devices)
        return tuple(found)

    def _share_of_a_leaf(self, nodes: dict[NodeId, Node]) -> Resources:
        """Return how much of its host goes with a leaf, by the poorest node of the chain."""
        hosts = [nodes[node] for node in self.nodes]
        leaves = [max(self.width, len(host.devices)) for host in hosts]
        return Resources(
            cpu_milli=min(h.cpu_milli // n for h, n in zip(hosts, leaves, strict=True)),
            memory=min(h.memory // n for h, n in zip(hosts, leaves, strict=True)),
            disk=min(h.disk // n for h, n in zip(hosts, leaves, strict=True)),
        )

    def part_of(self, need: Resources) -> int:
        """Return what a task uses of each of its devices, in thousandths.

        Of the device or of its memory, whichever is more; all of it if it asks for whole ones.
        """
        if not is_part_of_device(need):
            return DEVICE
        if not need.gpu_memory:
            return need.gpu_milli
        of_memory = -(-need.gpu_memory * DEVICE // self.memory) if self.memory else DEVICE
        return min(DEVICE, max(need.gpu_milli, of_memory))

    # ── words ───────────────────────────────────────────────────────────────────────────

    def level_of(self, word: str) -> int | None:
        """Find a level by its type, by `node`, or by the last part of a type (`rack`)."""
        if word == NODE:
            return self.node_level
        if word in self.names:
            return self.names.index(word)
        tails = [at for at, name in enumerate(self.names) if name.endswith(f"-{word}")]
        return tails[0] if tails else None

    def name_of(self, cell: Cell) -> str:
        """Name a cell by its way from the root: `r1/2/0`."""
        level, number = cell
        parts: list[str] = []
        while level < self.top:
            number, place = divmod(number, self.fanout[level + 1])
            parts.append(str(place))
            level += 1
        return "/".join([self.roots[number], *reversed(parts)])

    # ── arithmetic ──────────────────────────────────────────────────────────────────────

    def above(self, cell: Cell, level: int) -> Cell:
        """Return the cell of a higher level that holds this one."""
        return (level, cell[1] * self.size[cell[0]] // self.size[level])

    def overlap(self, one: Cell, other: Cell) -> bool:
        """Whether two cells have a leaf in common: one of them holds the other."""
        low, high = (one, other) if one[0] <= other[0] else (other, one)
        return self.above(low, high[0]) == high

    def children(self, cell: Cell) -> range:
        """Number the cells of the level below that a cell is made of."""
        fanout = self.fanout[cell[0]]
        return range(cell[1] * fanout, (cell[1] + 1) * fanout)

    def nodes_of(self, cell: Cell) -> range:
        """Number the nodes in a cell, or the one that a smaller cell lies in."""
        level, number = cell
        if level < self.node_level:
            node = number * self.size[level] // self.width
            return range(node, node + 1)
        per = self.per[level]
        return range(number * per, (number + 1) * per)

    def mask_of(self, cell: Cell) -> int:
        """Return the leaves of a cell on each of its nodes."""
        level, number = cell
        if level >= self.node_level:
            return self.full
        return self._masks[level][number % (self.width // self.size[level])]

    def cell_at(self, level: int, node: int, leaf: int) -> Cell:
        """Return the cell of a level that holds a leaf of a node."""
        return (level, (node * self.width + leaf) // self.size[level])

    def mask(self, node: int, devices: Sequence[int]) -> int:
        """Turn device indexes of a node into leaves."""
        leaf = self.leaf[node]
        found = 0
        for device in devices:
            found |= 1 << leaf[device]
        return found

    def leaves_at(self, places: Sequence[int]) -> int:
        """Return leaves of a node by their places; what no leaf is at counts for nothing."""
        found = 0
        for place in places:
            found |= 1 << place
        return found & self.full

    def devices_at(self, node: int, mask: int) -> tuple[int, ...]:
        """Turn leaves of a node into device indexes, in the order of the leaves."""
        devices = self.devices[node]
        if mask == self.full:
            return devices
        return tuple(devices[leaf] for leaf in bits(mask))

    # ── leaves of one node ──────────────────────────────────────────────────────────────

    def pick(self, free: int, count: int) -> int:
        """Choose so many of the free leaves of a node, in the smallest common cell.

        Of the smallest cells that could serve, the one with the fewest free leaves is
        taken, so that larger ones stay whole. 0 if there are too few.
        """
        key = (free, count)
        found = self._picks.get(key)
        if found is None:
            if len(self._picks) >= _MOST_PICKS:
                self._picks.clear()
            found = self._picks[key] = self._pick(self.node_level, 0, free, count)
        return found

    def _pick(self, level: int, within: int, free: int, count: int) -> int:
        """Choose leaves in one cell of a node; `within` is its number on the node."""
        free &= self._masks[level][within]
        have = free.bit_count()
        if have < count or count == 0:
            return 0
        if have == count:
            return free
        if level == 1:
            return _lowest(free, count)
        fanout = self.fanout[level]
        below = [
            ((free & self._masks[level - 1][child]).bit_count(), child)
            for child in range(within * fanout, (within + 1) * fanout)
        ]
        enough = [(here, child) for here, child in below if here >= count]
        if enough:
            return min(
                (self._pick(level - 1, child, free, count) for _, child in enough),
                key=lambda picked: (*self._cost(picked, free), picked),
            )
        chosen = 0
        for here, child in sorted(below, key=lambda each: (-each[0], each[1])):
            want = min(here, count - chosen.bit_count())
            if want < here:
                # The rest goes where it leaves least behind.
                rest = [each for each in below if each[0] >= want]
                rest = [e for e in rest if not chosen & self._masks[level - 1][e[1]]]
                child = min(rest)[1]  # noqa: PLW2901 - the better of those that suffice
            chosen |= self._pick(level - 1, child, free, want)
            if chosen.bit_count() == count:
                break
        return chosen

    def _cost(self, picked: int, free: int) -> tuple[int, int]:
        """Rank a choice: the level of its common cell, then the free leaves left there."""
        level = self.common_level(picked)
        mask = next(mask for mask in self._masks[level] if picked & mask)
        return (level, (free & mask).bit_count())

    def common_level(self, picked: int) -> int:
        """Return the level of the smallest cell that holds these leaves of a node."""
        for level in range(self.node_level + 1):
            if sum(1 for mask in self._masks[level] if picked & mask) == 1:
                return level
        return self.node_level


_MOST_PICKS = 1 << 16
"""Choices remembered for each chain."""


def _lowest(mask: int, count: int) -> int:
    """Return the lowest bits that are set."""
    found = 0
    for _ in range(count):
        low = mask & -mask
        found |= low
        mask ^= low
    return found


def bits(mask: int) -> Iterator[int]:
    """Number the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def chains_of(topology: Topology, nodes: Sequence[Node]) -> tuple[Chain, ...]:
    """Build every chain, in the order in which its first root is configured."""
    types = {kind.name: kind for kind in topology.types}
    by_id = {node.id: node for node in nodes}
    roots: dict[str, list[RootCell]] = {}
    for root in topology.roots:
        roots.setdefault(root.type, []).append(root)
    chains: list[Chain] = []
    for top, cells in roots.items():
        levels: list[CellType] = []
        name = top
        while name in types:
            levels.append(types[name])
            name = types[name].child
        levels.reverse()
        chains.append(Chain(levels, cells, by_id))
    return tuple(chains)


class Spot(msgspec.Struct, frozen=True, gc=False):
    """Where one slot lies: on which leaves of which node of which chain."""

    chain: int
    node: int
    mask: int
    milli: int
    """What it uses of each leaf, in thousandths: of the device or of its memory, whichever
    is more."""
    claim: int
    """Leaves whose share of the host it needs beside those it sits on."""
    beside: int = 0
    """Which these are, where its tenant's cells are smaller than a node."""
    is_part: bool = False
    """Whether it asks for a part of a device: then others may sit on the same leaf."""


def in_one_cell(chains: Sequence[Chain], word: str, slots: Sequence[Slot]) -> bool:
    """Whether all slots lie within one cell of a level, in any chain. O(devices)."""
    return any(
        level is not None and _in_one(chain, level, slots)
        for chain in chains
        for level in (chain.level_of(word),)
    )


def _in_one(chain: Chain, level: int, slots: Sequence[Slot]) -> bool:
    """Whether it is so in one chain. A task without devices lies wherever its node does."""
    cells: set[int] = set()
    nodes: set[int] = set()
    for slot in slots:
        node = chain.number.get(slot.node)
        if node is None or any(device not in chain.leaf[node] for device in slot.devices):
            return False
        nodes.add(node)
        cells |= {
            (node * chain.width + chain.leaf[node][device]) // chain.size[level]
            for device in slot.devices
        }
    if level < chain.node_level:
        return len(nodes) == 1 and len(cells) <= 1
    return len({node // chain.per[level] for node in nodes}) == 1


class Avoid(msgspec.Struct, frozen=True):
    """Where no task is to be put: on whole nodes, or on single devices of others."""

    nodes: frozenset[NodeId] = frozenset()
    devices: frozenset[tuple[NodeId, int]] = frozenset()
    borrowed: bool = False
    """Also where borrowers sit, or have a place reserved."""

    def leaves(self, chain: Chain) -> dict[int, int]:
        """Return the leaves of a chain that this is, by node."""
        numbers = chain.number
        masks = {numbers[node]: chain.full for node in self.nodes if node in numbers}
        for node, device in self.devices:
            if (at := numbers.get(node)) is not None and device in chain.leaf[at]:
                masks[at] = masks.get(at, 0) | chain.mask(at, (device,))
        return masks


NOWHERE = Avoid()
