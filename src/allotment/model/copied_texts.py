"""The texts of a job that are kept for each copy or task of it: within bounds, or absurd."""

from typing import Final

import msgspec

from allotment.model.later import characters_to_fill
from allotment.model.quantity import MIB, show_bytes
from allotment.model.spec import JobSpec

MOST_FILLED: Final = 16_000_000
"""Characters of texts that are made anew for each task of a job, and are in memory at once."""
MOST_WRITTEN: Final = 32 * MIB
"""What the copies of one array take in the event log: each is a job of its own there."""


def excess_of_texts(spec: JobSpec, copies: int = 1, added: int = 0) -> tuple[str, str] | None:
    """Return what is too much, with a hint; None when all is well.

    `added` are the bytes that parameters add to each copy.
    """
    one = len(msgspec.msgpack.encode(spec)) + added
    if copies > 1 and one * copies > MOST_WRITTEN:
        size = f"{copies:,} copies of {show_bytes(one)}"
        message = f"makes {size}, and {show_bytes(MOST_WRITTEN)} in all are accepted"
        return message, "keep what is large in a file the jobs read, or make several arrays"
    filled = characters_to_fill(spec)
    if filled > MOST_FILLED:
        return (
            f"names what only its tasks know in texts of {filled:,} characters, counted for "
            f"each task, and {MOST_FILLED:,} are accepted",
            "keep long scripts in a file, or have them read a variable",
        )
    return None
