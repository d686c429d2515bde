"""A HiveD configuration as ours: nodes, cells, tenants; and where each of its leaves lies.

Addresses follow its defaults: the index of the parent's default, times the children of the
type, plus the place among them; below a node they count from 0 again, whatever address the
node was given. A node is named by the last part of its cell's address, a device by that of
its leaf. One node may have leaves in several chains.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import Resources
from allotment.model.tenancy import Tenant
from tests.golden.hived.recording import CellSpec, Configuration, Word

CPU_MILLI, MEMORY, DISK = 4_000, 8 << 30, 0
"""What each leaf has of its host. HiveD takes no heed of it."""


class Spot(NamedTuple):
    """One leaf: its chain, its place among all leaves of the chain, its node and device."""

    chain: str
    at: int
    node: NodeId
    device: int


class Owed(msgspec.Struct, frozen=True):
    """One cell that a tenant is owed: a preassigned virtual cell. `pin` if it is that one."""

    tenant: str
    chain: str
    type: str
    pin: str = ""


class Chain(msgspec.Struct, frozen=True):
    """Types from the leaf up, with their sizes in leaves; leaves in the order of the tree."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    spots: tuple[Spot, ...]
    node_level: int

    def level(self, name: str) -> int:
        return self.names.index(name)


class Cluster(msgspec.Struct, frozen=True):
    """What is given to our cells, and what the comparison must find again."""

    nodes: tuple[Node, ...]
    topology: Topology
    tenants: tuple[Tenant, ...]
    chains: dict[str, Chain]
    owed: dict[str, tuple[Owed, ...]]
    """By tenant, in HiveD's order: its virtual cells are named `tenant/place here/…`."""
    addresses: dict[str, Spot]
    spots: dict[tuple[NodeId, int], Spot]
    pinned: dict[str, tuple[str, int, int]]
    """Where pinned cells lie: chain, level, number among the cells of that level."""

    def node(self, name: str) -> NodeId | None:
        return next((node.id for node in self.nodes if node.name == name), None)


def word(value: Word) -> str:
    """Return what was meant. One recorded file went through a YAML in which `y` is true."""
    if value is True:
        return "y"
    if value is False or value == "false":
        return "N"
    return str(value)


def cluster_of(config: Configuration) -> Cluster:
    """Translate. Raises ValueError where a cell is not made as its type says."""
    return _Translation(config).cluster()


class _Translation:
    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.types = {
            word(name): CellType(
                word(name), spec.child_cell_type, spec.child_cell_number, spec.is_node_level
            )
            for name, spec in config.physical_cluster.cell_types.items()
        }
        self.ids: dict[str, NodeId] = {}
        self.devices: dict[NodeId, list[Device]] = {}
        self.addresses: dict[str, Spot] = {}
        self.pins: list[PinnedCell] = []
        self.pinned: dict[str, tuple[str, int, int]] = {}
        self.count: dict[str, int] = {}
        """Leaves of each chain so far."""
        self.chain = ""

    def cluster(self) -> Cluster:
        roots = tuple(self._roots())
        chains = {root.type: self._chain(root.type) for root in roots}
        owed = {vc: self._owed(vc) for vc in sorted(self.config.virtual_clusters)}
        return Cluster(
            nodes=tuple(self._nodes()),
            topology=Topology(tuple(self.types.values()), roots, tuple(self.pins)),
            tenants=tuple(self._tenant(vc, chains, owed[vc]) for vc in owed),
            chains=chains,
            owed=owed,
            addresses=self.addresses,
            spots={(spot.node, spot.device): spot for spot in self.addresses.values()},
            pinned=self.pinned,
        )

    # ── hardware ────────────────────────────────────────────────────────────────────────

    def _levels(self, top: str) -> list[CellType]:
        """Return the types of a chain, from the top down."""
        found: list[CellType] = []
        while top in self.types:
            found.append(self.types[top])
            top = self.types[top].child
        return found

    def _sizes(self, top: str) -> dict[str, int]:
        levels = self._levels(top)[::-1]
        sizes = {levels[0].child: 1}
        for level in levels:
            sizes[level.name] = sizes[level.child] * level.count
        return sizes

    def _chain(self, top: str) -> Chain:
        sizes = self._sizes(top)
        spots = (spot for spot in self.addresses.values() if spot.chain == top)
        node = next(level.name for level in self._levels(top) if level.is_node)
        return Chain(
            tuple(sizes),
            tuple(sizes.values()),
            tuple(sorted(spots, key=lambda spot: spot.at)),
            tuple(sizes).index(node),
        )

    def _roots(self) -> Iterator[RootCell]:
        for index, spec in enumerate(self.config.physical_cluster.physical_cells):
            self.chain = word(spec.cell_type)
            name = str(index) if spec.cell_address is None else word(spec.cell_address)
            first = self.count.setdefault(self.chain, 0)
            self._cell(spec, self.chain, name, index, None)
            found = [s for s in self.addresses.values() if s.chain == self.chain][first:]
            nodes = tuple(dict.fromkeys(spot.node for spot in found))
            devices = tuple(
                tuple(spot.device for spot in found if spot.node == node) for node in nodes
            )
            yield RootCell(self.chain, name, nodes, devices)

    def _cell(
        self, spec: CellSpec, kind: str, address: str, index: int, node: NodeId | None
    ) -> None:
        """Walk through a cell, leaf by leaf. `index` is its default address."""
        made_of = self.types.get(kind)
        first = self.count[self.chain]
        if made_of is None:
            assert node is not None, f"{address} is part of no node"
            device = int(address.rpartition("/")[2])
            self.devices[node].append(Device(DeviceIndex(device), kind))
            self.addresses[address] = Spot(self.chain, first, node, device)
            self.count[self.chain] = first + 1
        else:
            if made_of.is_node:
                name = address.rpartition("/")[2]
                node = self.ids.setdefault(name, NodeId(len(self.ids)))
                self.devices.setdefault(node, [])
                index = 0
            given = spec.cell_children or [CellSpec()] * made_of.count
            if len(given) != made_of.count:
                raise ValueError(f"{address}: {len(given)} children, not {made_of.count}")
            for place, child in enumerate(given):
                default = index * made_of.count + place
                own = default if child.cell_address is None else word(child.cell_address)
                self._cell(child, made_of.child, f"{address}/{own}", default, node)
        if spec.pinned_cell_id:
            self._pin(spec.pinned_cell_id, kind, first)

    def _pin(self, name: str, kind: str, first: int) -> None:
        spots = [spot for spot in self.addresses.values() if spot.chain == self.chain]
        spot = spots[first]
        place = sum(1 for other in spots[:first] if other.node == spot.node)
        self.pins.append(PinnedCell(name, kind, spot.node, place))
        sizes = self._sizes(self.chain)
        level = list(sizes).index(kind)
        self.pinned[name] = (self.chain, level, first // sizes[kind])

    def _nodes(self) -> Iterator[Node]:
        for name, node in self.ids.items():
            devices = tuple(sorted(self.devices[node], key=lambda device: device.index))
            leaves = len(devices)
            yield Node(node, name, CPU_MILLI * leaves, MEMORY * leaves, DISK, devices)

    # ── tenants ─────────────────────────────────────────────────────────────────────────

    def _owed(self, name: str) -> tuple[Owed, ...]:
        virtual = self.config.virtual_clusters[name]
        found: list[Owed] = []
        for share in self._shares(name):
            found += [Owed(name, share.chain, share.type)] * share.count
        for pin in virtual.pinned_cells:
            chain, level, _ = self.pinned[pin.pinned_cell_id]
            kind = list(self._sizes(chain))[level]
            found.append(Owed(name, chain, kind, pin.pinned_cell_id))
        return tuple(found)

    def _shares(self, name: str) -> tuple[CellShare, ...]:
        found: list[CellShare] = []
        for cell in self.config.virtual_clusters[name].virtual_cells:
            parts = word(cell.cell_type).split(".")
            found.append(CellShare(parts[-1], cell.cell_number, parts[0]))
        return tuple(found)

    def _tenant(self, name: str, chains: dict[str, Chain], owed: tuple[Owed, ...]) -> Tenant:
        leaves = 0
        for cell in owed:
            chain = chains[cell.chain]
            leaves += chain.sizes[chain.level(cell.type)]
        return Tenant(
            name,
            guaranteed=Resources(
                gpu_milli=1000 * leaves,
                cpu_milli=CPU_MILLI * leaves,
                memory=MEMORY * leaves,
                disk=DISK * leaves,
            ),
            cells=self._shares(name),
            pins=tuple(cell.pin for cell in owed if cell.pin),
        )
