"""The one door between the recordings and the cells under test."""

from typing import Protocol

from allotment.model.ids import NodeId
from tests.golden.hived.cluster import Cluster
from tests.golden.hived.words import Answer, Ask, Book, Held


class UnderTest(Protocol):
    """Cells of one cluster, filled anew before each decision."""

    def open(self, cluster: Cluster) -> str:
        """Begin with an empty cluster. Says why the configuration is refused, or ''."""
        ...

    def load(self, book: Book) -> list[str]:
        """Forget everything and hold just this. Says what could not be held as it is."""
        ...

    def place(self, ask: Ask) -> Answer:
        """Decide where a gang goes. Changes nothing.

        If it has a reservation in the book, that is its own to use.
        """
        ...

    def settle(self, ask: Ask, answer: Answer) -> list[str]:
        """Carry the answer out, victims gone, and audit. Says which guarantees are broken."""
        ...

    def recover(self, reported: tuple[Held, ...], bad: frozenset[NodeId]) -> frozenset[str]:
        """Take up what was running. Says which gangs keep their guarantee."""
        ...
