"""Nodes whose labels change: when the cells that they are in may follow."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from allotment.backends.kubernetes.node_news import SETTLE_S, NodeNews
from allotment.backends.kubernetes.short_nodes import ShortNodes
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.quantity import GIB


def a_node(number: int, rack: str) -> Node:
    return Node(NodeId(number), f"n{number}", 8000, GIB, GIB, labels=(("rack", rack),))


class Seen:
    """What is seen of some nodes, at moments of the test's own."""

    def __init__(self) -> None:
        none = cast("Any", None)
        cluster = cast("Any", SimpleNamespace(short=ShortNodes()))
        self.news = NodeNews(cluster, none, tuple, none, none)

    def moving(
        self, found: Sequence[Node], now: float, in_force: Sequence[Node] = ()
    ) -> set[str]:
        return self.news._moving(in_force, found, now)  # pyright: ignore[reportPrivateUsage]


def test_a_node_moves_until_its_labels_have_stayed_for_a_while() -> None:
    seen = Seen()
    before, after = [a_node(1, "r1"), a_node(2, "r1")], [a_node(1, "r2"), a_node(2, "r1")]
    assert seen.moving(before, 5) == set()
    assert seen.moving(after, 7) == {"n1"}
    assert seen.moving(after, 6.9 + SETTLE_S) == {"n1"}
    assert not seen.news.is_due(6.9 + SETTLE_S)
    assert seen.news.is_due(7 + SETTLE_S)
    assert seen.moving(after, 7 + SETTLE_S) == set()
    assert not seen.news.is_due(100 + SETTLE_S)


def test_a_node_that_was_relabelled_while_the_service_was_away_moves_as_it_is_seen() -> None:
    seen, known = Seen(), [a_node(1, "r1"), a_node(2, "r1")]
    found = [a_node(1, "r2"), a_node(2, "r1")]
    assert seen.moving(found, 5, known) == {"n1"}
    assert seen.moving(found, 5 + SETTLE_S, known) == set()


def test_a_node_that_joins_does_not_move() -> None:
    seen = Seen()
    assert seen.moving([a_node(1, "r1")], 5) == set()
    assert seen.moving([a_node(1, "r1"), a_node(2, "r2")], 6) == set()
