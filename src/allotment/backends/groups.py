"""Groups of nodes, such as racks or those at a switch → cells. Pure.

Nodes whose devices are alike form one chain: devices, node, and a level for each level of
groups above them. In a chain cells of one type are alike; a group of unlike cells is no cell,
and what is in it are roots of their own.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allotment.model.cells import CellType, RootCell, Topology
from allotment.model.cluster import Node

CORE = "core"


class Group(msgspec.Struct, frozen=True):
    """Nodes that lie together, and the groups in it: nodes alone at level 0."""

    name: str
    word: str
    """What such groups are called: `rack`."""
    level: int
    nodes: tuple[str, ...] = ()
    """All nodes in it."""
    inner: tuple[str, ...] = ()


def topology_of(nodes: Sequence[Node], groups: Sequence[Group]) -> Topology:
    """Return how nodes lie together, chain by chain."""
    made = _Chains()
    for model, members in _by_model(nodes).items():
        made.add(model, members, groups)
    return Topology(tuple(made.types.values()), tuple(made.roots))


class _Chains:
    """The types and roots that were found so far."""

    def __init__(self) -> None:
        self.types: dict[str, CellType] = {}
        self.roots: list[RootCell] = []

    def add(self, model: str, members: Mapping[str, Node], groups: Sequence[Group]) -> None:
        """Enter the nodes with devices of one model, and the groups they are in."""
        cells: dict[str, RootCell] = {}
        for node in members.values():
            row = tuple(device.index for device in node.devices if device.type == model)
            count = len(row) if row else node.cpu_milli // 1000
            kind = self._type(model, "node", model, count, is_node=True)
            cells[node.name] = RootCell(kind, node.name, (node.id,), (row,))
        for group in sorted(groups, key=lambda group: group.level):
            names = group.inner or group.nodes
            below = [cells[name] for name in names if name in cells]
            whole = sum(len(cell.nodes) for cell in below)
            is_all = whole == sum(name in members for name in group.nodes)
            if below and is_all and len({cell.type for cell in below}) == 1:
                self._join(model, group, below, cells)
        found = sorted(cells.values(), key=lambda cell: cell.nodes)
        self.roots += [cell if _is_odd(cell) else replace(cell, devices=()) for cell in found]

    def _join(
        self, model: str, group: Group, below: list[RootCell], cells: dict[str, RootCell]
    ) -> None:
        """Make one cell of those of a group."""
        kind = self._type(model, group.word, below[0].type, len(below))
        for cell in below:
            del cells[cell.name]
        cells[group.name] = RootCell(
            kind,
            group.name,
            tuple(node for cell in below for node in cell.nodes),
            tuple(row for cell in below for row in cell.devices),
        )

    def _type(
        self, model: str, level: str, child: str, count: int, *, is_node: bool = False
    ) -> str:
        """Enter a type; its name has a number in it where another is called so already."""
        for name in (
            f"{model}-{level}",
            f"{model}-{count}-{level}",
            f"{child}-{count}-{level}",
        ):
            kind = CellType(name, child, count, is_node=is_node)
            if self.types.setdefault(name, kind) == kind:
                return name
        raise AssertionError("a name of child, count and level is of one type")


def _is_odd(cell: RootCell) -> bool:
    """Whether its devices are not the first ones of its nodes, in order."""
    return any(row != tuple(range(len(row))) for row in cell.devices)


def _by_model(nodes: Sequence[Node]) -> dict[str, dict[str, Node]]:
    """Sort nodes by the models of their devices, by cores where they have none."""
    found: dict[str, dict[str, Node]] = {}
    for node in nodes:
        for model in sorted({device.type for device in node.devices}) or [CORE]:
            found.setdefault(model, {})[node.name] = node
    return found
