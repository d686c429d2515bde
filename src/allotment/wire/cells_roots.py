"""Roots as written: which machines and devices lie in which cell, and what cannot be."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allotment.model.cells import CellType, RootCell
from allotment.model.cluster import Node
from allotment.wire.cells_machines import HOST_LEAF
from allotment.wire.cells_shape import RootShape
from allotment.wire.cells_types import TYPES, Chain, chain_from, near, no_such_type
from allotment.wire.problems import Finding
from allotment.wire.tree import Place, path_of

HOST_LEAVES = (HOST_LEAF, "cpu", "slot")
"""Leaves of machines without devices that cannot be a device somebody forgot to list."""


MOST_NAMED = 6
"""Nodes that a message lists."""


class Laid(msgspec.Struct):
    """The nodes and devices of all roots, as far as they could be read."""

    roots: list[RootCell] = []
    errors: list[Finding] = []
    warnings: list[Finding] = []


class RootReader:
    """Reads roots one after another, and remembers what is taken."""

    def __init__(self, types: Mapping[str, CellType], nodes: Sequence[Node]) -> None:
        self.laid = Laid()
        self._types = types
        self._nodes = {node.name: node for node in nodes}
        self._devices = {device.type for node in nodes for device in node.devices}
        self._names: dict[str, Place] = {}
        self._taken: dict[tuple[str, str], Place] = {}
        """Where each node was named first, by its name and the type of the leaves."""
        self._first: dict[str, Node] = {}
        """The first node of every chain."""
        self._told: set[str] = set()

    def read(self, shape: RootShape, place: Place) -> None:
        """Read one root, or note what is wrong with it."""
        errors = list(self._faults(shape, place))
        self.laid.errors += errors
        if not errors:
            self._enter(shape, place)

    def _faults(self, shape: RootShape, place: Place) -> Iterator[Finding]:
        """Find what is wrong before anybody looks at devices."""
        if shape.type not in self._types:
            yield (*place, "type"), *no_such_type(shape.type, self._types)
            return
        chain = chain_from(shape.type, self._types)
        if not isinstance(chain, Chain):
            yield (*place, "type"), f"{shape.type} {chain[0]}", chain[1]
            return
        if len(shape.nodes) != chain.nodes:
            message = f"has {len(shape.nodes)}, and a {shape.type} is {chain.nodes} nodes"
            yield (*place, "nodes"), message, "list them all, in the order in which they lie"
        for at, name in enumerate(shape.nodes):
            if name not in self._nodes:
                hint = near(name, list(self._nodes), "nodes")
                yield (*place, "nodes", at), f"there is no node {name}", hint
            elif name in shape.nodes[:at]:
                yield (*place, "nodes", at), f"{name} is listed twice", "name each node once"
        if shape.name in self._nodes and shape.nodes != [shape.name]:
            message = f"{shape.name} is the name of a node too, of which it is not made alone"
            yield (*place, "name"), message, "choose another name"
        if shape.devices and len(shape.devices) != len(shape.nodes):
            message = f"has {len(shape.devices)} lists for {len(shape.nodes)} nodes"
            yield (*place, "devices"), message, "give one list for each node, or none"

    def _enter(self, shape: RootShape, place: Place) -> None:
        chain = chain_from(shape.type, self._types)
        if not isinstance(chain, Chain):
            return
        before = len(self.laid.errors)
        rows: list[tuple[int, ...] | None] = []
        for at, name in enumerate(shape.nodes):
            self._take(chain, self._nodes[name], (*place, "nodes", at))
            if shape.devices:
                where: Place = (*place, "devices", at)
                rows.append(self._listed(chain, self._nodes[name], shape.devices[at], where))
            else:
                rows.append(self._found(chain, self._nodes[name], (*place, "nodes", at)))
        name = self._name(shape, place)
        devices = tuple(row for row in rows if row is not None)
        if len(devices) < len(rows) or len(self.laid.errors) > before:
            return
        usual = all(row in ((), tuple(range(chain.width))) for row in devices)
        nodes = tuple(self._nodes[node].id for node in shape.nodes)
        self.laid.roots.append(RootCell(shape.type, name, nodes, () if usual else devices))

    def _take(self, chain: Chain, node: Node, place: Place) -> None:
        """See that a node lies in one cell only by these leaves, and among its like."""
        top = chain.types[0]
        other = self._taken.setdefault((node.name, chain.leaf), place)
        if other is not place:
            message = f"{node.name} lies in another cell by its {chain.leaf}: {path_of(other)}"
            self._wrong(place, message, "name it in one of the two")
        first = self._first.setdefault(top, node)
        if first.arch is not node.arch:
            message = f"{node.name} is {node.arch.value}, and {first.name} {first.arch.value}"
            self._wrong(place, message, "cells of one type are alike: make two types")
        if first.engine != node.engine:
            message = f"{node.name} is on {node.engine}, and {first.name} on {first.engine}"
            self._wrong(place, message, "cells of one type are alike: make two types")

    def _listed(
        self, chain: Chain, node: Node, row: Sequence[int], place: Place
    ) -> tuple[int, ...] | None:
        """Check the devices that a root names on one node."""
        types = {int(device.index): device.type for device in node.devices}
        before = len(self.laid.errors)
        for at, index in enumerate(row):
            if index not in types:
                message = f"{node.name} has no device {index}: it has {len(types)}"
                self._wrong((*place, at), message, "they count from 0")
            elif types[index] != chain.leaf:
                message = f"device {index} of {node.name} is a {types[index]}"
                self._wrong((*place, at), message, f"name those that are {chain.leaf}")
            elif index in row[:at]:
                self._wrong((*place, at), f"device {index} is listed twice", "name each once")
        if len(row) != chain.width:
            message = f"has {len(row)} devices, and a {self._machine(chain)} has {chain.width}"
            self._wrong(place, message, "list all of them")
        return tuple(row) if len(self.laid.errors) == before else None

    def _found(self, chain: Chain, node: Node, place: Place) -> tuple[int, ...] | None:
        """Choose the devices of a node that a root does not name: the first of their type."""
        if not node.devices and chain.leaf not in self._devices:
            self._shares(chain)
            return ()
        own = [int(device.index) for device in node.devices if device.type == chain.leaf]
        if len(own) >= chain.width:
            return tuple(own[: chain.width])
        if node.devices and chain.leaf in HOST_LEAVES:
            message = f"{node.name} has devices: {chain.leaf} cells are for hosts without"
            self._wrong(place, message, "make cells of its devices")
        elif chain.leaf not in self._devices:
            known = [*self._devices, *self._types]
            message = f"there is neither a cell type nor a device {chain.leaf}"
            self._once(self.laid.errors, chain, message, near(chain.leaf, known, "known"))
        else:
            message = (
                f"{node.name} has {len(own)} {chain.leaf}, "
                f"and a {self._machine(chain)} has {chain.width}"
            )
            self._wrong(place, message, "list its devices under `nodes`, or make another type")
        return None

    def _shares(self, chain: Chain) -> None:
        if chain.leaf not in HOST_LEAVES:
            message = (
                f"no machine has a device {chain.leaf}: "
                "these cells are equal shares of CPU and memory"
            )
            self._once(
                self.laid.warnings, chain, message, f"write {HOST_LEAF} if you mean that"
            )

    def _once(self, where: list[Finding], chain: Chain, message: str, hint: str) -> None:
        """Report something about the leaves of a chain, and not of every node again."""
        if chain.leaf not in self._told:
            self._told.add(chain.leaf)
            where.append(((*TYPES, chain.types[-2], "of"), message, hint))

    def _machine(self, chain: Chain) -> str:
        return next(name for name in chain.types if self._types[name].is_node)

    def _name(self, shape: RootShape, place: Place) -> str:
        """Name a root: as it says, else after its only node, else by type and number."""
        alike = sum(root.type == shape.type for root in self.laid.roots) + 1
        name = shape.name or (
            shape.nodes[0] if len(shape.nodes) == 1 else f"{shape.type}-{alike}"
        )
        if not shape.name and name in self._names:
            name = f"{name}.{shape.type}"
        other = self._names.setdefault(name, place)
        if other is not place:
            message = f"{name} is the name of {path_of(other)} too"
            self._wrong((*place, "name"), message, "rename one")
        return name

    def _wrong(self, place: Place, message: str, hint: str) -> None:
        self.laid.errors.append((place, message, hint))


def left_out(
    roots: Sequence[RootCell], chains: Mapping[str, Chain], nodes: Sequence[Node]
) -> Iterator[str]:
    """Return messages on what lies in no cell, so that no tenant can be guaranteed it."""
    claimed: dict[int, int] = {}
    for root in roots:
        for node in root.nodes:
            claimed[node] = claimed.get(node, 0) + chains[root.type].width
    outside = [node.name for node in nodes if node.id not in claimed]
    partly = [node.name for node in nodes if 0 < claimed.get(node.id, 0) < len(node.devices)]
    if outside:
        yield f"{_names(outside)} in no cell: no tenant can be guaranteed them"
    if partly:
        yield f"some devices of {', '.join(partly[:MOST_NAMED])} lie in no cell"


def _names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} lies"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more} lie"
