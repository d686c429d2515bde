"""Which nodes make which cells, where cell types say by which of their labels. Pure.

A cell type with a `label` has one cell for each value of that label, within the cell above: so
a rack is known by its name and that of its zone. A group of nodes is a cell only if it is
whole, with as many parts as its type says. What makes no whole cell lies in none, and nobody is
guaranteed it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from allotment.model.cells import CellType
from allotment.model.cluster import Node

EACH = "node"
"""In place of a label, for a type of nodes: each node is one."""
LEAVES = ("core", "cpu", "slot")
"""What machines without devices are made of."""
MOST_NAMED = 4

Types = Mapping[str, CellType]
Path = tuple[str, ...]
"""The values of labels, the outermost first."""
Groups = Mapping[Path, Sequence[Node]]


class Cell(msgspec.Struct, frozen=True):
    """A root that labels make: its type and name, and its nodes in order."""

    type: str
    name: str
    nodes: tuple[str, ...]


class Odd(msgspec.Struct, frozen=True):
    """Nodes that make no whole cell of a type, and why."""

    type: str
    why: str


class Made(msgspec.Struct, frozen=True):
    """What labels make of nodes."""

    cells: tuple[Cell, ...]
    odd: tuple[Odd, ...]


class Levels(msgspec.Struct, frozen=True):
    """A chain whose roots labels make."""

    top: str
    keys: tuple[str, ...]
    """The labels of its types, the outermost first; none where each node is a root."""
    counts: tuple[int, ...]
    """How many parts a cell of each has."""
    leaf: str
    width: int
    """Leaves on each node."""

    def has(self, node: Node) -> bool:
        """Whether a node is made of the leaves of this chain, and of as many."""
        if self.leaf in LEAVES and not node.devices:
            return node.cpu_milli // 1000 == self.width
        return sum(device.type == self.leaf for device in node.devices) == self.width

    def is_like(self, other: "Levels") -> bool:
        """Whether another chain is made of the same nodes by the same labels."""
        return (self.keys, self.leaf, self.width) == (other.keys, other.leaf, other.width)


def word_of(key: str) -> str:
    """Return what a label is called here: the last part of its key, as in `DOMAIN/rack`."""
    return key.rpartition("/")[2]


def levels_in(types: Types) -> tuple[Levels, ...]:
    """Return the chains whose roots labels make. The types must not go round in circles."""
    inner = {kind.child for kind in types.values() if kind.label}
    tops = [kind for kind in types.values() if kind.label and kind.name not in inner]
    return tuple(found for top in tops if (found := _levels(top, types)) is not None)


def _levels(top: CellType, types: Types) -> Levels | None:
    """Return a chain; None where a type above the nodes has no label."""
    kind, keys, counts = top, list[str](), list[int]()
    while not kind.is_node:
        if not kind.label or kind.child not in types:
            return None
        keys.append(word_of(kind.label))
        counts.append(kind.count)
        kind = types[kind.child]
    width = kind.count
    while kind.child in types:
        kind = types[kind.child]
        width *= kind.count
    return Levels(top.name, tuple(keys), tuple(counts), kind.child, width)


def made_of(types: Types, nodes: Sequence[Node]) -> Made:
    """Return the roots that the labels of nodes make, and what makes none.

    Types of which each node is one take the nodes that no other cell has.
    """
    chains = sorted(levels_in(types), key=lambda each: not each.keys)
    names = {node.name for node in nodes}
    inside, whole = set[tuple[str, str]](), set[tuple[str, str]]()
    cells, odd = list[Cell](), dict[tuple[str, str], Odd]()
    for levels in chains:
        first = next(each.top for each in chains if each.is_like(levels))
        mine = [each for each in nodes if levels.has(each)]
        if not levels.keys:
            mine = [each for each in mine if (levels.leaf, each.name) not in inside]
        elif first == levels.top and (without := _without(levels, mine)):
            odd[first, ""] = Odd(first, without)
        for value, found in _roots(levels, mine):
            if isinstance(found, str):
                odd.setdefault((first, value), Odd(first, found))
                continue
            own = tuple(node.name for node in found)
            name = value if value not in names or own == (value,) else f"{value}.{levels.top}"
            names.add(name)
            whole.add((first, value))
            inside |= {(levels.leaf, each) for each in own}
            cells.append(Cell(levels.top, name, own))
    return Made(tuple(cells), tuple(each for at, each in odd.items() if at not in whole))


def _without(levels: Levels, nodes: Sequence[Node]) -> str:
    """Return which nodes are without a label; '' where none is."""
    keys = [key for key in levels.keys if any(key not in dict(each.labels) for each in nodes)]
    if not keys:
        return ""
    names = [each.name for each in nodes if not all(_path(levels, each))]
    has = "has" if len(names) == 1 else "have"
    return f"{listed(names)} {has} no label {' and '.join(f'`{key}`' for key in keys)}"


def _roots(levels: Levels, nodes: Sequence[Node]) -> Iterator[tuple[str, Sequence[Node] | str]]:
    """Return for each value of the outermost label the nodes of its cell in order, or why it
    is none."""
    if not levels.keys:
        yield from ((node.name, [node]) for node in sorted(nodes, key=_order))
        return
    groups: dict[Path, list[Node]] = {}
    for node in sorted(nodes, key=_order):
        if all(path := _path(levels, node)):
            groups.setdefault(path, []).append(node)
    for value in sorted({path[0] for path in groups}, key=_parts):
        yield value, _cell(levels, groups, (value,))


def _cell(levels: Levels, groups: Groups, path: Path) -> Sequence[Node] | str:
    """Return the nodes of one cell, part by part; or why it is not whole."""
    depth, wanted = len(path), levels.counts[len(path) - 1]
    if depth == len(levels.keys):
        found = groups[path]
        if len(found) != wanted:
            named = listed([node.name for node in found])
            nodes = "1 node" if len(found) == 1 else f"{len(found)} nodes"
            twin = _twin(levels, groups, path)
            return f"{_place(levels, path)} has {nodes} ({named}), not {wanted}{twin}"
        kinds = {(node.engine, node.arch) for node in found}
        unlike = f"the nodes of {_place(levels, path)} are of several engines or architectures"
        return found if len(kinds) == 1 else unlike
    inner = sorted({each[depth] for each in groups if each[:depth] == path}, key=_parts)
    parts = [_cell(levels, groups, (*path, value)) for value in inner]
    if why := next((part for part in parts if isinstance(part, str)), ""):
        return why
    if len(parts) != wanted:
        what = f"{len(parts)} of `{levels.keys[depth]}` ({listed(inner)})"
        return f"{_place(levels, path)} has {what}, not {wanted}"
    return [node for part in parts for node in part if not isinstance(node, str)]


def _place(levels: Levels, path: Sequence[str]) -> str:
    """Return what people call a group of nodes: `rack r1 of zone a`."""
    pairs = zip(levels.keys[: len(path)], path, strict=True)
    return " of ".join(f"{key} {value}" for key, value in reversed(list(pairs)))


def _twin(levels: Levels, groups: Groups, path: Path) -> str:
    """Return where else a group of the same name is, as one label of a node may be wrong."""
    for other, nodes in groups.items():
        if other != path and other[-1] == path[-1]:
            named = listed([node.name for node in nodes])
            return f"; there is {_place(levels, other)}, too ({named})"
    return ""


def listed(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _order(node: Node) -> tuple[tuple[int, str], ...]:
    return _parts(node.name)


def _parts(text: str) -> tuple[tuple[int, str], ...]:
    """Return what sorts `r2` before `r10`."""
    return tuple(
        (int(each), "") if each.isdecimal() else (-1, each)
        for each in re.split(r"([0-9]{1,18})", text)
    )


# ── nodes whose labels change ───────────────────────────────────────────────────────────


class Settled(msgspec.Struct, frozen=True):
    """Nodes as they come into force, and those that are not as the cells have them."""

    nodes: tuple[Node, ...]
    contradict: Mapping[str, str]
    """How, by name: their labels say another cell, or they are gone."""


def settled(
    kinds: Sequence[CellType],
    before: Sequence[Node],
    found: Sequence[Node],
    moving: Set[str] = frozenset(),
) -> Settled:
    """Return nodes that were found, such that no cell in force falls apart by labels alone.

    The nodes of a cell stay in it, with the labels that they had, until labels make whole cells
    of all of them, and none of them is `moving`: labels that are changed one by one make other
    cells for a moment. One that joins a full cell comes into force without these labels.
    """
    types = {kind.name: kind for kind in kinds}
    chains = {each.top: each for each in levels_in(types) if each.keys}
    if not chains:
        return Settled(tuple(found), {})
    there, old = {node.name: node for node in found}, {node.name: node for node in before}
    cells = [cell for cell in made_of(types, before).cells if cell.type in chains]
    held = [cell for cell in cells if not moving.isdisjoint(cell.nodes)]
    now, torn = _with(held, chains, old, there) if held else there, True
    while torn:
        made = made_of(types, tuple(now.values())).cells
        covered = {
            (chains[cell.type].leaf, name)
            for cell in made
            if cell.type in chains
            for name in cell.nodes
        }
        torn = [
            cell
            for cell in cells
            if cell not in held
            and any(
                (chains[cell.type].leaf, name) not in covered
                for name in cell.nodes
                if name in there
            )
        ]
        held += torn
        now = _with(held, chains, old, there) if held else there
    nodes = tuple(now[name] for name in sorted(now))
    return Settled(nodes, _contradictions(held, chains, old, there))


def _with(
    held: Sequence[Cell],
    chains: Mapping[str, Levels],
    old: Mapping[str, Node],
    there: Mapping[str, Node],
) -> dict[str, Node]:
    """Return the nodes there are, with cells that are held: their nodes as they were placed."""
    now, inside = dict(there), {name for cell in held for name in cell.nodes}
    for cell in held:
        levels = chains[cell.type]
        for name in _intruders(cell, levels, old, there, inside):
            now[name] = _placed(now[name], levels.keys, ())
        for name in cell.nodes:
            now[name] = _placed(now.get(name, old[name]), levels.keys, old[name].labels)
    return now


def _placed(node: Node, keys: Path, by: Sequence[tuple[str, str]]) -> Node:
    """Return a node with other values of labels, or without them."""
    kept = [each for each in node.labels if each[0] not in keys]
    both = sorted([*kept, *(each for each in by if each[0] in keys)])
    return msgspec.structs.replace(node, labels=tuple(both))


def _intruders(
    cell: Cell,
    levels: Levels,
    old: Mapping[str, Node],
    there: Mapping[str, Node],
    inside: set[str],
) -> list[str]:
    """Return the nodes of no cell that is held whose labels say they are in this one."""
    value = _path(levels, old[cell.nodes[0]])[0]
    return [
        name
        for name, node in there.items()
        if name not in inside
        and levels.has(node)
        and all(path := _path(levels, node))
        and path[0] == value
    ]


def _contradictions(
    held: Sequence[Cell],
    chains: Mapping[str, Levels],
    old: Mapping[str, Node],
    there: Mapping[str, Node],
) -> dict[str, str]:
    """Return of each node whose labels contradict a cell that is held what they say."""
    inside = {name for cell in held for name in cell.nodes}
    found: dict[str, str] = {}
    for cell in held:
        levels = chains[cell.type]
        at = {name: _path(levels, old[name]) for name in cell.nodes}
        for name, mine in at.items():
            if name not in there:
                found[name] = f"{_place(levels, mine)} keeps its place: {REPLACE}"
                continue
            says = _path(levels, there[name])
            if any(one and one != other for one, other in zip(says, mine, strict=True)):
                others = listed([each for each in at if at[each] == mine and each != name])
                beside = f" with {others}" if others else ""
                words = _place(
                    levels, [new or was for new, was in zip(says, mine, strict=True)]
                )
                where = f"the cells have it in {_place(levels, mine)}{beside}"
                found[name] = f"its labels say {words}, and {where}: {MEND}"
        for name in _intruders(cell, levels, old, there, inside):
            says = _path(levels, there[name])
            full = [each for each in at if at[each] == says] or list(at)
            words = f"its labels say {_place(levels, says)}, and {cell.name} is whole"
            found[name] = f"{words} with {listed(full)}: {MEND}"
    return found


def _path(levels: Levels, node: Node) -> Path:
    labels = dict(node.labels)
    return tuple(labels.get(key, "") for key in levels.keys)


MEND = "correct its labels, or `cells.types`"
REPLACE = "add a node with its labels, or change `cells.types`"
