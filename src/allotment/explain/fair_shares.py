"""Dominant resource fairness: the claim with the smallest dominant share comes next.

A claim's dominant share is the largest part of any one resource that it holds. All claims
rise together, weighted, until a resource runs out or one has all it wants or may have; the
others go on (progressive filling; Ghodsi et al., NSDI '11). In a tree the same holds among
the parts of each claim: of what these hold that counts which core/fair_order.py says, for
the pass too (hierarchical DRF; Bhattacharya et al., SoCC '13). Guarantees are filled first,
by the same rule, and are floors: a claim above the others by its guarantee waits until they
have caught up.

Bad at: more than some hundred claims. `fluid` is exact, in rational numbers: O(claims) steps
of O(claims · resources) each.
"""

from collections.abc import Iterator
from fractions import Fraction

import msgspec

from allotment.explain.claims import ZERO, Claim, Grant, Node, Quantities, check, grants


def fluid(capacity: Quantities, top: Claim) -> dict[str, Grant]:
    """Divide a cluster among claims whose tasks may be cut; return the part of each, by name.

    Guarantees are granted even where they exceed the capacity, or the limit of a claim above,
    together: the caller checks that. Raises ValueError where the claims make no sense.
    """
    check(capacity, top)
    node = Node(top, len(capacity))
    for each in node.all():
        each.add_up(capacity)
        if each.claim.guaranteed:
            _fill(each, capacity, each.claim.guaranteed)
    _fill(node, capacity, capacity)
    return grants(node)


# ── fluid ───────────────────────────────────────────────────────────────────────────────


class _Rise(msgspec.Struct):
    """How a claim goes up: which tasks, how fast, and what that adds to what it counts for."""

    leaves: list[tuple[Node, Fraction]]
    flow: list[Fraction]
    is_free: bool = False
    """Its dominant share stays as it is: it takes only of what it has less of."""


def _fill(top: Node, capacity: Quantities, room: Quantities) -> None:
    """Raise all below `top` as far as `room` allows."""
    top.close(capacity, room)
    while top.is_open:
        top.measure_all(capacity)
        leaves = _rise(top, capacity).leaves
        moving = _set_flows(top, leaves)
        _set_rises(top, capacity)
        bounds = [time for node in moving for time in _until(node, node.claim.limit)]
        bounds += _until(top, room)
        others = [time for node in moving for time in _turns(node, capacity)]
        full, turn = min(bounds, default=None), min(others, default=None)
        assert full is not None or turn is not None, "nothing bounds a claim"
        time = min(each for each in (full, turn) if each is not None)
        _advance(moving, time)
        if time == full:
            top.close(capacity, room)
        else:
            _close_sated(top, leaves)
    top.measure_all(capacity)


def _rise(node: Node, capacity: Quantities) -> _Rise:
    """Return how an open claim goes up by its weight in dominant share a unit of time."""
    weight = node.claim.weight
    if node.leaf:
        if not node.pace:
            need = node.claim.need
            node.pace = weight / max(Fraction(n, capacity[r]) for r, n in enumerate(need) if n)
            node.flow_then = [n * node.pace for n in need]
        return _Rise([(node, node.pace)], node.flow_then)
    least = node.least()
    rises = [
        _rise(part, capacity) for part in node.parts if part.is_open and part.level == least
    ]
    flows = [rise.flow for rise in rises]
    if any(rise.is_free for rise in rises):
        rises = [rise for rise in rises if rise.is_free]
        flows = [rise.flow for rise in rises]
    else:
        flows += [[has / part.level for has in part.counted] for part in node.ahead()]
    leaves = [leaf for rise in rises for leaf in rise.leaves]
    flow = [sum(amounts, ZERO) for amounts in zip(*flows, strict=True)]
    growth = _growth(node, flow, capacity)
    if not growth:
        return _Rise(leaves, flow, is_free=True)
    factor = weight / growth
    if factor == 1:
        return _Rise(leaves, flow)
    leaves = [(leaf, speed * factor) for leaf, speed in leaves]
    return _Rise(leaves, [amount * factor for amount in flow])


def _growth(node: Node, flow: list[Fraction], capacity: Quantities) -> Fraction:
    """Return how fast the dominant share grows: that of the resources that are dominant now."""
    share = node.share
    return max(
        flow[r] / all_
        for r, all_ in enumerate(capacity)
        if all_ and node.counted[r] == share * all_
    )


def _set_flows(top: Node, leaves: list[tuple[Node, Fraction]]) -> list[Node]:
    """Note how fast each claim takes what; return those that take anything."""
    moving: dict[Node, None] = {}
    for leaf, speed in leaves:
        leaf.speed = speed
        flow = [need * speed for need in leaf.claim.need]
        node: Node | None = leaf
        while node is not None:
            moving[node] = None
            node.flow = [one + more for one, more in zip(node.flow, flow, strict=True)]
            node = node.above if node is not top else None
    return list(moving)


def _set_rises(node: Node, capacity: Quantities) -> None:
    """Note how fast what counts, and the level, grow of a claim and of all that move in it."""
    flow = node.flow
    if not node.leaf:
        moving = [part for part in node.parts if any(part.flow)]
        for part in moving:
            _set_rises(part, capacity)
        flows = [part.counted_flow for part in moving]
        if rise := moving[0].rise:
            flows += [[has / p.level * rise for has in p.counted] for p in node.ahead()]
        flow = [sum(amounts, ZERO) for amounts in zip(*flows, strict=True)]
    node.counted_flow = flow
    node.rise = _growth(node, flow, capacity) / node.claim.weight


def _advance(moving: list[Node], time: Fraction) -> None:
    for node in moving:
        if node.leaf:
            node.tasks += node.speed * time
        node.held = [h + flow * time for h, flow in zip(node.held, node.flow, strict=True)]
        node.flow = [ZERO] * len(node.flow)


def _close_sated(top: Node, leaves: list[tuple[Node, Fraction]]) -> None:
    """Close the claims that have all they want, where no bound was reached."""
    for leaf, _ in leaves:
        if leaf.wants:
            continue
        leaf.is_open = False
        node = leaf
        while node is not top and node.above is not None:
            node = node.above
            node.is_open = any(part.is_open for part in node.parts)


def _until(node: Node, bound: Quantities) -> Iterator[Fraction]:
    """Return when a node reaches a bound, by resource."""
    for most, held, flow in zip(bound, node.held, node.flow, strict=False):
        if flow:
            yield (most - held) / flow


def _turns(node: Node, capacity: Quantities) -> Iterator[Fraction]:
    """Return the times at which the way in which a claim goes up may change."""
    if not node.leaf:
        yield from _switches(node, capacity)
        yield from _meetings(node)
    elif node.claim.most is not None:
        yield (node.claim.most - node.tasks) / node.speed


def _switches(node: Node, capacity: Quantities) -> Iterator[Fraction]:
    """Return when another resource becomes dominant."""
    share, growth = node.share, node.rise * node.claim.weight
    for r, all_ in enumerate(capacity):
        has, flow = node.counted[r], node.counted_flow[r]
        if all_ and flow > growth * all_ and has < share * all_:
            yield (share * all_ - has) / (flow - growth * all_)


def _meetings(node: Node) -> Iterator[Fraction]:
    """Return when the parts that go up are level with the next one."""
    rise = next(part.rise for part in node.parts if any(part.flow))
    ahead = node.ahead()
    if rise and ahead:
        yield (min(part.level for part in ahead) - (node.least() or ZERO)) / rise
