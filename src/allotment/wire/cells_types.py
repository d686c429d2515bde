"""Cell types as written: what each chain is made of, and what cannot be a chain."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import msgspec

from allotment.model.cells import CellType
from allotment.wire.cells_shape import MOST_INDEX
from allotment.wire.problems import Finding, nearest
from allotment.wire.tree import Place

MOST_LEAVES = MOST_INDEX + 1
"""Leaves of one node."""
MOST_LISTED = 8
"""Known words that a message lists."""
TYPES: Place = ("cells", "types")


class Chain(msgspec.Struct, frozen=True):
    """The types from one that may be a root down to the leaf."""

    types: tuple[str, ...]
    leaf: str
    nodes: int
    """Nodes in a cell of the first type."""
    width: int
    """Leaves on each node."""


def circles(types: Mapping[str, CellType]) -> Iterator[Finding]:
    """Return the types that are made of themselves."""
    told: set[str] = set()
    for name in types:
        path = [name]
        while (child := types[path[-1]].child) in types and child not in path:
            path.append(child)
        if child in path and not told.intersection(path):
            told.update(path)
            ring = " of ".join([*path[path.index(child) :], child])
            place = (*TYPES, path[-1], "of")
            yield place, f"is made of itself: {ring}", "end it with a device type"


def chain_from(top: str, types: Mapping[str, CellType]) -> Chain | tuple[str, str]:
    """Return the chain of a type, or what is wrong with it, and a hint, if it can be no root.

    There must be no circles.
    """
    names, counts, machines = [top], list[int](), list[int]()
    while names[-1] in types:
        kind = types[names[-1]]
        if kind.is_node:
            machines.append(len(counts))
        counts.append(kind.count)
        names.append(kind.child)
    if not machines:
        way = " of ".join(names)
        return f"has no type of a whole machine in it: {way}", "set node: true for that type"
    if len(machines) > 1:
        both = " and ".join(names[at] for at in machines[:2])
        return f"has machines within a machine: {both}", "set node: true for one type only"
    nodes, width = prod(counts[: machines[0]]), prod(counts[machines[0] :])
    if width > MOST_LEAVES:
        message = f"has {width:,} leaves on each node, and {MOST_LEAVES:,} are accepted"
        return message, "check the counts"
    return Chain(tuple(names), names[-1], nodes, width)


def no_such_type(name: str, types: Mapping[str, CellType]) -> tuple[str, str]:
    """Return a message that there is no type of that name, with the likely one."""
    for kind in types.values():
        if kind.child == name:
            message = f"{name} is what {kind.name} is made of, and no type of its own"
            return message, f"such as {kind.name}"
    return f"there is no cell type {name}", near(name, list(types), "cell types")


def near(word: str, known: Sequence[str], what: str) -> str:
    """Return the known word that is most like this one, or some of them."""
    hint = nearest(word, known, what=what)
    if hint.startswith(what) and len(known) > MOST_LISTED:
        return f"{what}: {', '.join(known[:MOST_LISTED])}, and {len(known) - MOST_LISTED} more"
    return hint
