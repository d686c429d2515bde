"""What is asked for of a cluster: a tree of claims, and what each is granted."""

from collections.abc import Iterator
from fractions import Fraction

import msgspec

Quantities = tuple[int, ...]
"""Quantities of each resource, in the same order and units everywhere; at least 0."""

NONE: frozenset[int] = frozenset()
ZERO = Fraction(0)


class Claim(msgspec.Struct, frozen=True):
    """One claim: for tasks of its own, or on behalf of its parts. Names are unique.

    `guaranteed` is granted before others share, as far as it is asked for; `limit` is never
    exceeded. Both are empty where there is none.
    """

    name: str
    need: Quantities = ()
    """What one task takes; empty where there are parts."""
    most: int | None = None
    """Tasks it wants; None for any number."""
    parts: tuple["Claim", ...] = ()
    weight: int = 1
    guaranteed: Quantities = ()
    limit: Quantities = ()


class Grant(msgspec.Struct, frozen=True):
    """What one claim gets: exact, and a fraction of a task where tasks may be cut."""

    tasks: Fraction
    """Of its own; 0 where it has parts."""
    held: tuple[Fraction, ...]
    share: Fraction
    """Its dominant share: the largest part of any resource of the cluster that it holds."""


class Node:
    """One claim while it is being filled. Quantities are exact."""

    __slots__ = (
        "above", "claim", "counted", "counted_flow", "flow", "flow_then", "held", "is_open",
        "leaf", "level", "pace", "parts", "rise", "share", "speed", "tasks",
    )  # fmt: skip

    def __init__(self, claim: Claim, width: int, above: "Node | None" = None) -> None:
        self.claim = claim
        self.leaf = not claim.parts
        self.above = above
        self.parts = [Node(part, width, self) for part in claim.parts]
        self.tasks = ZERO
        self.held = [ZERO] * width
        self.counted = self.held
        """What of that counts: kept by `measure`, as are `share` and `level`."""
        self.share = ZERO
        """The dominant share of what counts."""
        self.level = ZERO
        """The same by weight: the claim with least comes next."""
        self.is_open = False
        """Whether it, or some part of it, wants more and can have it."""
        self.speed = ZERO
        """Tasks a unit of time, of its own."""
        self.flow = [ZERO] * width
        """How fast `held` grows."""
        self.counted_flow = self.flow
        """How fast `counted` does."""
        self.rise = ZERO
        """How fast `level` does."""
        self.pace = ZERO
        """Its speed when nothing above slows it down, once that is known."""
        self.flow_then: list[Fraction] = []

    def all(self) -> Iterator["Node"]:
        """Return this and all below it, parts first."""
        for part in self.parts:
            yield from part.all()
        yield self

    @property
    def wants(self) -> bool:
        """Whether it wants more tasks of its own."""
        return self.claim.most is None or self.tasks < self.claim.most

    def add_up(self, capacity: Quantities) -> None:
        """Hold what the parts hold."""
        if not self.leaf:
            columns = zip(*(part.held for part in self.parts), strict=True)
            self.held = [sum(column, ZERO) for column in columns]
            self.measure_all(capacity)

    def measure(self, capacity: Quantities) -> None:
        """Look what counts of `held`, and what share that is. Parts are measured first."""
        self.counted = self.held if self.leaf else self._rescaled()
        shares = (has / all_ for has, all_ in zip(self.counted, capacity, strict=True) if all_)
        self.share = max(shares, default=ZERO)
        self.level = self.share / self.claim.weight

    def measure_all(self, capacity: Quantities) -> None:
        """Measure this and all below it."""
        for node in self.all():
            node.measure(capacity)

    def least(self) -> Fraction | None:
        """Return the level of the least part that is open; None where none is."""
        return min((part.level for part in self.parts if part.is_open), default=None)

    def ahead(self) -> list["Node"]:
        """Return the parts above the least that is open: they count as if level with it."""
        least = self.least()
        return [] if least is None else [part for part in self.parts if part.level > least]

    def _rescaled(self) -> list[Fraction]:
        """Sum up what the parts hold, of each no more than makes it level with the least."""
        ahead = self.ahead()
        even = [part.counted for part in self.parts if part not in ahead]
        total = [sum(column, ZERO) for column in zip(*even, strict=True)] or [ZERO] * len(
            self.held
        )
        least = self.least() or ZERO
        for part in ahead:
            scale = least / part.level
            total = [one + more * scale for one, more in zip(total, part.counted, strict=True)]
        return total

    def close(
        self, capacity: Quantities, room: Quantities = (), shut: frozenset[int] = NONE
    ) -> None:
        """Find out what is open here and below, where `shut` resources are used up already."""
        for bound in (self.claim.limit, room):
            if full := [r for r, most in enumerate(bound) if self.held[r] >= most]:
                shut = shut.union(full)
        if self.leaf:
            self.is_open = self.wants and not any(
                need and (r in shut or not capacity[r])
                for r, need in enumerate(self.claim.need)
            )
            return
        for part in self.parts:
            part.close(capacity, (), shut)
        self.is_open = any(part.is_open for part in self.parts)


def grants(top: Node) -> dict[str, Grant]:
    """Return what was granted, by name."""
    return {
        node.claim.name: Grant(node.tasks, tuple(node.held), node.share) for node in top.all()
    }


def check(capacity: Quantities, top: Claim) -> None:
    """Raise ValueError where a tree of claims makes no sense."""
    names: set[str] = set()
    if any(amount < 0 for amount in capacity):
        raise ValueError("a capacity is negative")
    queue = [top]
    while queue:
        claim = queue.pop()
        if claim.name in names:
            raise ValueError(f"{claim.name}: two claims have this name")
        names.add(claim.name)
        _check_one(len(capacity), claim)
        queue.extend(claim.parts)


def _check_one(width: int, claim: Claim) -> None:
    name = claim.name
    if claim.weight <= 0:
        raise ValueError(f"{name}: weight {claim.weight} is not above 0")
    if bool(claim.parts) == any(claim.need):
        raise ValueError(f"{name}: a claim either needs something or has parts")
    if claim.most is not None and claim.most < 0:
        raise ValueError(f"{name}: wants {claim.most} tasks")
    for what in ("need", "guaranteed", "limit"):
        vector: Quantities = getattr(claim, what)
        if vector and (len(vector) != width or any(amount < 0 for amount in vector)):
            raise ValueError(f"{name}: {what} {vector} is not {width} amounts of at least 0")
