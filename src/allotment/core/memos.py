"""Answers that are kept while they hold. To drop one costs time, never truth."""

from typing import TypeVar

from allotment.core.rank import Key
from allotment.core.request import Request, Shape
from allotment.model.ledger import GUARANTEED, Entitlement

K = TypeVar("K")
V = TypeVar("V")

MOST = 10_000
"""Entries of a memo before it is begun anew."""


class Blocked:
    """Shapes, or classes, known not to fit as long as nothing is given back.

    With each is the place in job order of the job for which that was found out.
    """

    def __init__(self) -> None:
        self._version = -1
        self._guaranteed: dict[Shape, Key] = {}
        self._borrowing: dict[Shape, Key] = {}

    def at(self, version: int, entitlement: Entitlement) -> dict[Shape, Key]:
        """Return those by this entitlement, at the present version of the ledger."""
        if version != self._version:
            self.clear()
            self._version = version
        return self._guaranteed if entitlement is GUARANTEED else self._borrowing

    def clear(self) -> None:
        """Forget them all."""
        self._guaranteed.clear()
        self._borrowing.clear()


class Memos:
    """What was found out about shapes."""

    def __init__(self) -> None:
        self.blocked = Blocked()
        self.admitted: dict[Shape, tuple[str, ...]] = {}
        """Shapes that may be submitted, and what is warned of then."""
        self.unguaranteed: dict[Shape, int] = {}
        """Shapes for which their tenant's cells had no room, and the ledger's version then."""
        self.fits_if_empty: dict[Shape, bool] = {}
        """Shapes that would fit, or not, if their tenant's cells were all empty."""
        self.ever_fits: dict[tuple[Request, ...], bool] = {}
        """Gangs that fit, or not, on the configured machines when all are idle and open."""


def remember(memo: dict[K, V], key: K, value: V) -> V:
    """Enter an answer, beginning the memo anew when it is full; return the answer."""
    if len(memo) >= MOST:
        memo.clear()
    memo[key] = value
    return value
