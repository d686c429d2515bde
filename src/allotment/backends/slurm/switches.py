"""What Slurm says of its switches → labels of nodes, and cells. Pure.

Nodes whose devices are alike form one chain: devices, node, and a level for each level of
switches above them. In a chain cells of one type are alike; a switch above unlike cells is no
cell, and what lies below it are roots of their own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allotment.model.cells import CellType, RootCell, Topology
from allotment.model.cluster import Node

LINE = re.compile(r"SwitchName=(\S+) Level=(\d+)(?: LinkSpeed=\d+)?(?: Nodes=(\S+))?(.*)")
BELOW = re.compile(r"Switches=(\S+)")
PART = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")
MOST_NAMES = 100_000
CORE = "core"


class Switch(msgspec.Struct, frozen=True):
    """A switch, and what hangs on it: nodes at level 0, switches above."""

    name: str
    level: int
    nodes: tuple[str, ...] = ()
    """All nodes below it."""
    switches: tuple[str, ...] = ()


def switches_of(text: str) -> tuple[Switch, ...]:
    """Read what `scontrol show topology` prints; nothing where Slurm knows no switches."""
    found: list[Switch] = []
    for line in text.splitlines():
        match = LINE.match(line.strip())
        if match is None:
            continue
        name, level, nodes, rest = match.groups()
        below = BELOW.search(rest or "")
        under = tuple(names_of(below[1])) if below and int(level) else ()
        found.append(Switch(name, int(level), tuple(names_of(nodes or "")), under))
    return tuple(found)


def names_of(text: str) -> Iterator[str]:
    """Return the names of a host list such as `n[1-3,7],gpu[01-02]`; at most MOST_NAMES."""
    count = 0
    for before, inner, after in PART.findall(text):
        for middle in _numbers(inner) if inner else ("",):
            count += 1
            if count > MOST_NAMES:
                return
            if before or middle or after:
                yield f"{before}{middle}{after}"


def _numbers(text: str) -> Iterator[str]:
    """Write `1-3,007` out, with as many digits as the first number of a range has."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            yield part
            continue
        for number in range(int(first), min(int(last), int(first) + MOST_NAMES) + 1):
            yield str(number).zfill(len(first))


def labelled(nodes: Sequence[Node], switches: Sequence[Switch]) -> tuple[Node, ...]:
    """Return the nodes with the switches above them as labels, the nearest first."""
    above: dict[str, list[tuple[str, str]]] = {}
    for switch in sorted(switches, key=lambda switch: (switch.level, switch.name)):
        for name in switch.nodes:
            above.setdefault(name, []).append((_level(switch), switch.name))
    return tuple(
        replace(node, labels=(*above.get(node.name, ()), *node.labels)) for node in nodes
    )


def topology_of(nodes: Sequence[Node], switches: Sequence[Switch]) -> Topology:
    """Return how the nodes of a partition lie together, chain by chain."""
    made = _Chains()
    for model, members in _by_model(nodes).items():
        made.add(model, members, switches)
    return Topology(tuple(made.types.values()), tuple(made.roots))


class _Chains:
    """The types and roots that were found so far."""

    def __init__(self) -> None:
        self.types: dict[str, CellType] = {}
        self.roots: list[RootCell] = []

    def add(self, model: str, members: Mapping[str, Node], switches: Sequence[Switch]) -> None:
        """Enter the nodes with devices of one model, and the switches above them."""
        cells: dict[str, RootCell] = {}
        for node in members.values():
            row = tuple(device.index for device in node.devices if device.type == model)
            count = len(row) if row else node.cpu_milli // 1000
            kind = self._type(model, "node", model, count, is_node=True)
            cells[node.name] = RootCell(kind, node.name, (node.id,), (row,))
        for switch in sorted(switches, key=lambda switch: switch.level):
            names = switch.switches or switch.nodes
            below = [cells[name] for name in names if name in cells]
            whole = sum(len(cell.nodes) for cell in below)
            is_all = whole == sum(name in members for name in switch.nodes)
            if below and is_all and len({cell.type for cell in below}) == 1:
                self._join(model, switch, below, cells)
        found = sorted(cells.values(), key=lambda cell: cell.nodes)
        self.roots += [cell if _is_odd(cell) else replace(cell, devices=()) for cell in found]

    def _join(
        self, model: str, switch: Switch, below: list[RootCell], cells: dict[str, RootCell]
    ) -> None:
        """Make one cell of those below a switch."""
        kind = self._type(model, _level(switch), below[0].type, len(below))
        for cell in below:
            del cells[cell.name]
        cells[switch.name] = RootCell(
            kind,
            switch.name,
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


def _level(switch: Switch) -> str:
    return f"switch-{switch.level + 1}" if switch.level else "switch"


def _by_model(nodes: Sequence[Node]) -> dict[str, dict[str, Node]]:
    """Sort nodes by the models of their devices, by cores where they have none."""
    found: dict[str, dict[str, Node]] = {}
    for node in nodes:
        for model in sorted({device.type for device in node.devices}) or [CORE]:
            found.setdefault(model, {})[node.name] = node
    return found
