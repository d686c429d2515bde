"""What is set aside now, beside nodes and shares: a reader who sees them free should know."""

from collections.abc import Iterable
from datetime import datetime

from allotment.model.quantity import DAY, SECOND
from allotment.service.reservation_view import ReservationView

MOST_NAMED = 8
"""Nodes that are named; of others it is said how many there are."""


def by_node(found: Iterable[ReservationView], now: int) -> dict[str, str]:
    """Return for each node what it is set aside for: `set aside: fans, until 14:35`.

    Or within a day: `set aside from 08:00: fans, until 14:35`.
    """
    told: dict[str, list[str]] = {}
    for one in found:
        if one.begun or one.begin - now < DAY:
            ahead = "" if one.begun else f" from {_at(one.begin, now)}"
            for node in one.nodes:
                told.setdefault(node, []).append(
                    f"set aside{ahead}: {_named(one)}, until {_at(one.end, now)}"
                )
    return {node: "; ".join(words) for node, words in told.items()}


def notes(found: Iterable[ReservationView], now: int) -> list[str]:
    """Return the nodes that each reservation in force takes, for a line of its own."""
    return [
        f"set aside: {_nodes(one)} ({_named(one)}, until {_at(one.end, now)})"
        for one in found
        if one.begun
    ]


def _named(one: ReservationView) -> str:
    who = ", ".join((*one.users, *one.tenants, *one.queues))
    return f"{one.name} for {who}" if who else one.name


def _nodes(one: ReservationView) -> str:
    more = len(one.nodes) - MOST_NAMED
    return ", ".join(one.nodes[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _at(instant: int, now: int) -> str:
    at = datetime.fromtimestamp(instant / SECOND).astimezone()
    return f"{at:{'%H:%M' if instant - now < DAY else '%Y-%m-%d %H:%M'}}"
