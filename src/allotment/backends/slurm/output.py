"""The files that a task's output lies in, in a folder where its user may put anything. Pure."""

import re
from collections.abc import Iterable
from itertools import islice

MOST_PIECES = 4
"""A log has its beginning and two further pieces; one more is there while it turns over."""
MOST_NAMES = 10_000


def pieces_in(names: Iterable[str], stream: str) -> list[tuple[int, str]]:
    """Return the pieces of a log by their first byte; the newest where there are too many."""
    pattern = re.compile(rf"{stream}\.tail\.([0-9]{{1,15}})")
    found = (pattern.fullmatch(name) for name in islice(names, MOST_NAMES))
    tails = sorted((int(each[1]), each[0]) for each in found if each)
    return [(0, f"{stream}.log"), *tails[-MOST_PIECES:]]
