"""Dominant resource fairness in whole tasks, one by one: the twin of the core's fair order."""

from collections.abc import Iterator

from allotment.explain.claims import Claim, Grant, Node, Quantities, check, grants


def whole(capacity: Quantities, top: Claim) -> dict[str, Grant]:
    """Divide a cluster among claims in whole tasks; return the part of each, by name.

    Whose next task does not fit is passed over. Guarantees come first: as many tasks as fit
    in them. Raises ValueError where the claims make no sense.
    """
    check(capacity, top)
    node = Node(top, len(capacity))
    for each in node.all():
        each.add_up(capacity)
        if each.claim.guaranteed:
            _hand_out(each, capacity, each.claim.guaranteed)
    _hand_out(node, capacity, capacity)
    return grants(node)


def _hand_out(top: Node, capacity: Quantities, room: Quantities) -> None:
    """Hand tasks out one by one as long as some claim's next one fits in `room`."""
    while _open(top, capacity, room, []):
        top.measure_all(capacity)
        path = [top]
        while not path[-1].leaf:
            path.append(min(_openings(path[-1]), key=lambda part: part.level))
        leaf = path[-1]
        leaf.tasks += 1
        for node in path:
            node.held = [h + n for h, n in zip(node.held, leaf.claim.need, strict=True)]
    top.measure_all(capacity)


def _openings(node: Node) -> Iterator[Node]:
    return (part for part in node.parts if part.is_open)


def _open(
    node: Node, capacity: Quantities, room: Quantities, above: list[tuple[Node, Quantities]]
) -> bool:
    """Find out below whose next task fits in all that bounds it."""
    bounds = [*above, (node, node.claim.limit), (node, room)]
    if node.leaf:
        node.is_open = node.wants and all(
            need == 0 or (capacity[r] > 0 and holder.held[r] + need <= bound[r])
            for holder, bound in bounds
            if bound
            for r, need in enumerate(node.claim.need)
        )
    else:
        opened = [_open(part, capacity, (), bounds) for part in node.parts]
        node.is_open = any(opened)
    return node.is_open
