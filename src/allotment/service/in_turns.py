"""Whose turn it is where many wait: one of each, then the next of each. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], whose: Callable[[T], str]) -> list[T]:
    """Return the items so that nobody's many come before another's first. O(n log n)."""
    before: Counter[str] = Counter()
    ranked: list[tuple[int, T]] = []
    for item in items:
        name = whose(item)
        ranked.append((before[name], item))
        before[name] += 1
    ranked.sort(key=lambda each: each[0])
    return [item for _, item in ranked]
