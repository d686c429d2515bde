"""The indices of an array that are not 0, 1, 2 …: `1-10`, `0-15:4`, `1,3,8-10`."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import PlainValidator

from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import MOST_TASKS

PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
LONGEST = 10_000
"""Characters of a list of indices."""


def read_indices(value: object) -> tuple[int, ...]:
    """Read indices, in ascending order."""
    hint = "write it like 1-10, 0-15:4 or 1,3,8-10"
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str) or not value:
        raise not_a("a list of indices", value, hint)
    if len(value) > LONGEST:
        raise Amiss(f"has {len(value):,} characters, and {LONGEST:,} are accepted", hint)
    found: set[int] = set()
    for part in value.split(","):
        parts = PART.fullmatch(part.strip())
        if parts is None:
            raise not_a("a list of indices", value, hint)
        first, last, step = int(parts[1]), int(parts[2] or parts[1]), int(parts[3] or 1)
        if last < first or not step:
            raise Amiss(f"`{part}` is a range without an index", hint)
        if (last - first) // step + len(found) >= MOST_TASKS:
            raise Amiss(f"has more than {MOST_TASKS:,} indices", "take fewer")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def write_indices(indices: Sequence[int]) -> str:
    """Write indices as ranges; reading them gives the same."""
    parts: list[str] = []
    at = 0
    while at < len(indices):
        end = _end_of_range(indices, at)
        first, last = indices[at], indices[end]
        step = indices[at + 1] - first if end > at else 1
        if end - at < 2 and step != 1:
            end, last = at, first
        span = f"{first}-{last}" if end > at else f"{first}"
        parts.append(f"{span}:{step}" if end > at and step != 1 else span)
        at = end + 1
    return ",".join(parts)


def _end_of_range(indices: Sequence[int], at: int) -> int:
    """Return where the longest range of one step ends that begins at a place."""
    end = at + 1
    if end >= len(indices):
        return at
    step = indices[end] - indices[at]
    while end + 1 < len(indices) and indices[end + 1] - indices[end] == step:
        end += 1
    return end


Indices = Annotated[
    tuple[int, ...], PlainValidator(read_indices, json_schema_input_type=str | int)
]
