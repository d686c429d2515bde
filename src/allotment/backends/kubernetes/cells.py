"""The labels of nodes → cell types that fit them. Pure."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from allotment.backends.groups import CORE, Group, topology_of
from allotment.model.cells import CellType
from allotment.model.cells_by_label import EACH, made_of
from allotment.model.cluster import Node
from allotment.model.pools import POOL, PRICE

UNLIKE = "its groups of nodes are not alike"


class Proposed(msgspec.Struct, frozen=True):
    """Cell types, and what has to be known of them."""

    types: tuple[CellType, ...]
    notes: tuple[str, ...]


def labels_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the labels that may be levels, the outermost first: those of which a value is that
    of several nodes, and not of all."""
    values: dict[str, set[str]] = {}
    for node in nodes:
        for key, value in node.labels:
            if key not in (POOL, PRICE):
                values.setdefault(key, set()).add(value)
    telling = [key for key, found in values.items() if 1 < len(found) < len(nodes)]
    return tuple(sorted(telling, key=lambda key: (len(values[key]), key)))


def proposed(nodes: Sequence[Node], given: Sequence[str] = ()) -> Proposed:
    """Return types for the cells that nodes make by their labels, the outermost first.

    Where no labels are given it takes those that nodes have, and leaves out the outermost of
    them as long as its cells would not be alike.
    """
    types: list[CellType] = []
    notes: list[str] = []
    for model in sorted({device.type for node in nodes for device in node.devices} | {CORE}):
        mine = [each for node in nodes if (each := _with_only(model, node)) is not None]
        keys = list(given or labels_of(mine))
        found = _types(mine, keys)
        while not given and len(keys) > 1 and not _are_alike(found, mine):
            notes.append(f"label `{keys.pop(0)}` is left out for {model}: {UNLIKE}")
            found = _types(mine, keys)
        types += found
    return Proposed(tuple(types), tuple(notes))


def _with_only(model: str, node: Node) -> Node | None:
    """Return a node with its devices of one model; None where it has none of it."""
    own = tuple(device for device in node.devices if device.type == model)
    if own or (model == CORE and not node.devices):
        return replace(node, devices=own)
    return None


def _types(nodes: Sequence[Node], keys: Sequence[str]) -> list[CellType]:
    """Return the types of cells that labels make, each with its label."""
    kinds = {kind.name: kind for kind in topology_of(nodes, list(_groups(nodes, keys))).types}
    inner = {kind.child for kind in kinds.values()}

    def label_of(kind: CellType) -> str:
        height = 0
        while not kind.is_node:
            kind, height = kinds[kind.child], height + 1
        return keys[-height] if height else ""

    return [
        replace(kind, label=label_of(kind) or ("" if kind.name in inner else EACH))
        for kind in kinds.values()
    ]


def _groups(nodes: Sequence[Node], keys: Sequence[str]) -> Iterator[Group]:
    """Return the groups that labels make of nodes that have all of them."""
    paths = {
        node.name: tuple(labels[key] for key in keys)
        for node in nodes
        if all((labels := dict(node.labels)).get(key) for key in keys)
    }
    for depth in range(len(keys), 0, -1):
        for path in sorted({each[:depth] for each in paths.values()}):
            inside = tuple(name for name, each in paths.items() if each[:depth] == path)
            inner = {each[: depth + 1] for each in paths.values() if each[:depth] == path}
            names = tuple(map(_name, sorted(inner))) if depth < len(keys) else ()
            yield Group(_name(path), keys[depth - 1], len(keys) - depth, inside, names)


def _name(path: Sequence[str]) -> str:
    return "/".join(("", *path))  # so no node is called


def _are_alike(types: Sequence[CellType], nodes: Sequence[Node]) -> bool:
    """Whether labels make cells of one type of all nodes."""
    made = made_of({kind.name: kind for kind in types}, nodes)
    return not made.odd and len({cell.type for cell in made.cells}) < 2
