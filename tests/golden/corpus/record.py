"""Digests of the corpus: print all, or one history in full.

    python -m tests.golden.corpus.record > tests/golden/corpus/recorded.txt
    python -m tests.golden.corpus.record 17        # every decision and reason of one

To find what a change decides differently, print one history with the code before and after
and compare the two texts.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.golden.corpus.history import History

HISTORIES = 800
RECORDED = Path(__file__).with_name("recorded.txt")


class Digest(msgspec.Struct, frozen=True):
    """What a history comes to: how many events, and what was decided and answered."""

    history: int
    events: int
    decisions: str
    reasons: str
    refusals: int = 0
    """Decisions that the committer refused: a mistake, so none is recorded."""

    def __str__(self) -> str:
        return f"{self.history} {self.events} {self.decisions} {self.reasons}"


def digest(number: int) -> Digest:
    """Play one history and return its digest."""
    history = History(number)
    history.play()
    lines = list(history.decisions())
    return Digest(number, len(lines), _hash(lines), _hash(history.reasons), history.refusals)


def recorded() -> dict[int, Digest]:
    """Return what is recorded, by the number of the history."""
    found: dict[int, Digest] = {}
    for line in RECORDED.read_text().splitlines():
        number, events, decisions, reasons = line.split()
        found[int(number)] = Digest(int(number), int(events), decisions, reasons)
    return found


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def main() -> None:
    if len(sys.argv) > 1:
        history = History(int(sys.argv[1]))
        history.play()
        print(history.point, *history.decisions(), *history.reasons, sep="\n")
        return
    for number in range(HISTORIES):
        print(digest(number))


if __name__ == "__main__":
    main()
