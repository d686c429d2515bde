"""Answers that are kept while they hold. To drop one costs time, never truth."""

from typing import TypeVar

from allotment.core.rank import Key
from allotment.core.request import Request, Shape
from allotment.model.ledger import Entitlement

K = TypeVar("K")
V = TypeVar("V")

MOST = 10_000
"""Entries of a memo before it is begun anew."""


class Memos:
    """What was found out about shapes."""

    def __init__(self) -> None:
        self.blocked: dict[tuple[Shape, Entitlement], tuple[int, Key]] = {}
        """Shapes known not to fit, with the version of the ledger that says so and the place
        in line of the job for which it was found out."""
        self.unowed: dict[Shape, int] = {}
        """Shapes for which their tenant's cells had no room, and the ledger's version then."""
        self.owed_if_empty: dict[Shape, bool] = {}
        """Shapes that would fit, or not, if their tenant's cells were all empty."""
        self.ever_fits: dict[tuple[Request, ...], bool] = {}
        """Gangs that fit, or not, on the configured machines when all are idle and open."""


def remember(memo: dict[K, V], key: K, value: V) -> V:
    """Enter an answer, beginning the memo anew when it is full; return the answer."""
    if len(memo) >= MOST:
        memo.clear()
    memo[key] = value
    return value
