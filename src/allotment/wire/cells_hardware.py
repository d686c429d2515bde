"""Hardware in a line: `64 x dgx-a100 in racks of 4` makes nodes, cell types and roots."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from allotment.model.cells import CellType, RootCell
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import read_size
from allotment.wire.cells_machines import HOST_LEAF, KNOWN, MachineModel, machine_of
from allotment.wire.problems import Finding, nearest
from allotment.wire.text import shown
from allotment.wire.tree import Place

LINE = re.compile(
    r"([1-9][0-9]{0,5})\s*[x×]\s*(\S+)"
    r"(?:\s+with\s+([1-9][0-9]{0,3})\s+cpus?(?:\s+and\s+(\S+))?)?"
    r"((?:\s+in\s+[a-z]+\s+of\s+[1-9][0-9]{0,5})*)"
    r"(?:\s+named\s+([A-Za-z0-9][A-Za-z0-9._-]{0,99}))?",
    re.IGNORECASE,
)
GROUPS = re.compile(r"in\s+([a-z]+)\s+of\s+([0-9]+)", re.IGNORECASE)
HOW = "write it like 64 x dgx-a100 in racks of 4, 20 x cpu-32, or 16 x 8xV100"
TAKEN = ("node", "device")
MOST_NODES, MOST_DEVICES = 100_000, 100_000


class HardwareLine(msgspec.Struct, frozen=True):
    """One line as read. `groups` go from the nodes up: ("rack", 4), ("pod", 8)."""

    count: int
    model: str
    machine: MachineModel
    groups: tuple[tuple[str, int], ...]
    prefix: str


class Hardware(msgspec.Struct):
    """What the lines make."""

    nodes: list[Node] = []
    types: dict[str, CellType] = {}
    roots: list[RootCell] = []


def hardware_of(lines: Sequence[str], first: int) -> tuple[Hardware, list[Finding]]:
    """Read all lines; nodes get ids from `first` on, and are named n1, n2 … in order."""
    made, found = Hardware(), list[Finding]()
    maker = _Maker(made, first)
    for at, line in enumerate(lines):
        place: Place = ("hardware", at)
        try:
            maker.add(_entry(line))
        except Amiss as amiss:
            found.append((place, amiss.message, amiss.hint))
    return made, found


def _entry(line: str) -> HardwareLine:
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise Amiss(f"{shown(line)} describes no hardware", HOW)
    machine = machine_of(match[2])
    if machine is None:
        raise Amiss(
            f"there is no model of machine {shown(match[2])}",
            nearest(match[2], KNOWN, what="known models"),
        )
    if match[3]:
        machine = msgspec.structs.replace(machine, cpus=int(match[3]))
    if match[4]:
        machine = msgspec.structs.replace(machine, memory=read_size(match[4]))
    count, groups = int(match[1]), _groups(match[5], machine)
    _check_full(count, groups)
    model = match[2].replace("×", "x")
    return HardwareLine(count, model, machine, groups, match[6] or "n")


def _groups(text: str, machine: MachineModel) -> tuple[tuple[str, int], ...]:
    groups: list[tuple[str, int]] = []
    taken = {*TAKEN, *(name for name, _ in machine.levels)}
    for word, count in GROUPS.findall(text):
        level = str(word).lower().removesuffix("s")
        if level in taken:
            raise Amiss(f"{level} is a level already", "give each level a name of its own")
        taken.add(level)
        groups.append((level, int(count)))
    return tuple(groups)


def _check_full(count: int, groups: Sequence[tuple[str, int]]) -> None:
    each = 1
    for level, size in groups:
        each *= size
        if count % each:
            whole = count // each * each
            rest = f"{count - whole} on a line of its own"
            raise Amiss(
                f"{count} nodes do not fill {level}s of {each}",
                f"write {whole}, and {rest}" if whole else f"write at least {each}",
            )


class _Maker:
    """Numbers what it makes over all lines."""

    def __init__(self, made: Hardware, first: int) -> None:
        self._made = made
        self._first = first
        self._numbers: dict[tuple[str, ...], int] = {}

    def add(self, entry: HardwareLine) -> None:
        """Make what a line says. Raises Amiss when it is too much."""
        made = self._made
        devices = sum(len(node.devices) for node in made.nodes)
        devices += entry.count * entry.machine.leaves if entry.machine.device else 0
        if len(made.nodes) + entry.count > MOST_NODES or devices > MOST_DEVICES:
            limit = f"{MOST_NODES:,} nodes and {MOST_DEVICES:,} devices are accepted"
            raise Amiss(f"is too much: {limit}", "check the counts")
        top = self._types(entry)
        nodes = [self._node(entry) for _ in range(entry.count)]
        labels = self._labels(entry)
        made.nodes += [
            msgspec.structs.replace(node, labels=labels[at]) for at, node in enumerate(nodes)
        ]
        made.roots += self._roots(entry, top, nodes, labels)

    def _types(self, entry: HardwareLine) -> str:
        """Enter the types of a line; return the top one."""
        child = entry.machine.device or HOST_LEAF
        for level, count in (*entry.machine.levels, *entry.groups):
            name = f"{entry.model}-{level}"
            kind = CellType(name, child, count, is_node=level == "node")
            if self._made.types.get(name, kind) != kind:
                name = f"{entry.model}-{count}-{level}"
                kind = msgspec.structs.replace(kind, name=name)
            if self._made.types.setdefault(name, kind) != kind:
                raise Amiss(f"{name} is already another type", "list the cells by hand")
            child = name
        return child

    def _node(self, entry: HardwareLine) -> Node:
        machine = entry.machine
        count = machine.leaves if machine.device else 0
        device = machine.device, machine.device_memory
        number = self._next("node", entry.prefix)
        return Node(
            NodeId(self._first + self._next("id") - 1), f"{entry.prefix}{number}",
            machine.cpus * 1000, machine.memory, machine.disk,
            tuple(Device(DeviceIndex(i), *device) for i in range(count)), machine.arch,
        )  # fmt: skip

    def _labels(self, entry: HardwareLine) -> list[tuple[tuple[str, str], ...]]:
        """Return in which group of each level every node lies."""
        labels: list[list[tuple[str, str]]] = [[] for _ in range(entry.count)]
        each = 1
        for level, size in entry.groups:
            each *= size
            short = "r" if level == "rack" else level
            for start in range(0, entry.count, each):
                name = f"{short}{self._next('level', level)}"
                for label in labels[start : start + each]:
                    label.append((level, name))
        return [tuple(label) for label in labels]

    def _roots(
        self,
        entry: HardwareLine,
        top: str,
        nodes: Sequence[Node],
        labels: Sequence[tuple[tuple[str, str], ...]],
    ) -> Iterator[RootCell]:
        each = 1
        for _, size in entry.groups:
            each *= size
        for start in range(0, len(nodes), each):
            name = labels[start][-1][1] if entry.groups else nodes[start].name
            yield RootCell(top, name, tuple(node.id for node in nodes[start : start + each]))

    def _next(self, *what: str) -> int:
        self._numbers[what] = self._numbers.get(what, 0) + 1
        return self._numbers[what]
