"""What a file says, with the line of everything in it. Both readers give such a tree."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from allotment.wire.text import plain_word

Scalar: TypeAlias = "bool | int | float | str | None"
Plain: TypeAlias = "Scalar | list[Plain] | dict[str, Plain]"
"""A tree without its lines: what JSON can say."""

Place: TypeAlias = "tuple[str | int, ...]"
"""Keys and indexes from the top: ("roles", "worker", "ports", 0, "label")."""

MOST_DEPTH = 32
"""Deepest nesting that is read; a job needs five levels."""

MOST_NODES = 40_000
"""Most values in one file, aliases written out."""

LONGEST_NUMBER = 100
"""A longer row of digits is no number that anything here could use."""

AS_WRITTEN = frozenset({
    "env", "secrets", "jobEnvs", "command", "labels", "grid", "variables", "args", "parameters",
})  # fmt: skip
"""Under these keys a number is text: `LR: 1e-3` and `[sleep, 1.10]` are handed on unchanged."""

FREE_KEYS = frozenset({
    "env", "secrets", "jobEnvs", "labels", "grid", "roles", "ports", "tenants", "queues",
    "variables", "parameters", "data", "engines", "pools", "accounts",
})  # fmt: skip
"""Maps whose keys the user makes up; an empty value there is not a key left out."""


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """A value without parts. `text` is how it was written, for numbers and booleans."""

    line: int
    value: Scalar
    text: str = ""


class Listing(msgspec.Struct, frozen=True):
    """Values in order."""

    line: int
    items: "tuple[Tree, ...]"


class Entry(msgspec.Struct, frozen=True):
    """A key's value. `line` is the key's."""

    line: int
    value: "Tree"


class Table(msgspec.Struct, frozen=True):
    """Values by key, in the order of the file."""

    line: int
    entries: dict[str, Entry]


Tree = Leaf | Listing | Table


def plain_of(tree: Tree, under: str = "") -> Plain:
    """Return a tree without lines, and without the keys whose value is empty.

    `under` is the key that the tree stands under.
    """
    as_written, free = under in AS_WRITTEN, under in FREE_KEYS
    if isinstance(tree, Leaf):
        return tree.text if as_written and tree.text else tree.value
    if isinstance(tree, Listing):
        return [plain_of(item, under if as_written else "") for item in tree.items]
    return {
        # A role may be called `env`: keys that users make up mean nothing to us.
        key: plain_of(entry.value, under if as_written else "" if free else key)
        for key, entry in tree.entries.items()
        if free or not (isinstance(entry.value, Leaf) and entry.value.value is None)
    }


def line_of(tree: Tree | None, place: Sequence[str | int]) -> int:
    """Return the line of a place, or of the nearest place around it; 0 without a tree."""
    line = tree.line if tree else 0
    for step in place:
        if isinstance(tree, Table) and isinstance(step, str) and step in tree.entries:
            entry = tree.entries[step]
            line, tree = entry.line, entry.value
        elif isinstance(tree, Listing) and isinstance(step, int) and step < len(tree.items):
            tree = tree.items[step]
            line = tree.line
        else:
            break
    return line


def path_of(place: Sequence[str | int]) -> str:
    """Return a place as people write it: `roles.worker.ports[0].label`."""
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{plain_word(step)}" if path else plain_word(step)
    return path
