"""Whether a placement of ours may stand, whatever HiveD did.

Every task has its devices, of a type that was asked for, on one node that is healthy and may
be used. Nobody else sits there but the victims. Victims are opportunistic, or guaranteed in
the same tenant at a lower priority, and only guaranteed gangs have any. A reservation yields
to a higher priority of its tenant alone. A guaranteed gang lies in its tenant's cells, or in
the pinned cell it named; an opportunistic one in none. And afterwards every tenant can still
be given all it is owed, were all hardware healthy, by sending opportunistic work away.
"""

from tests.golden.hived import geometry
from tests.golden.hived.cluster import Cluster
from tests.golden.hived.words import Ask, Book, Held, Placed, Reserved


def exceeds(cluster: Cluster, ask: Ask) -> bool:
    """Whether a gang could not be placed if all its tenant is owed were free."""
    if ask.priority < 0:
        devices = [len(node.devices) for node in cluster.nodes]
        return max(ask.sizes) > max(devices) or sum(ask.sizes) > sum(devices)
    pieces = geometry.room_owed(cluster, ask.tenant, ask.pin, ask.types)
    return sum(ask.sizes) > sum(pieces) or max(ask.sizes) > max(pieces, default=0)


def invalid(cluster: Cluster, book: Book, ask: Ask, ours: Placed) -> list[str]:
    """Return what is wrong with a placement, whatever HiveD did."""
    found = _misplaced(cluster, book, ask, ours)
    if found:
        return found
    found += _wronged(book, ask, ours)
    found += _charged(cluster, ask, ours)
    return found or broken_after(cluster, book, ask, ours)


def _misplaced(cluster: Cluster, book: Book, ask: Ask, ours: Placed) -> list[str]:
    sizes = tuple(sorted(len(task.devices) for task in ours.tasks))
    if sizes != tuple(sorted(ask.sizes)):
        return [f"tasks of {sizes} devices, not {ask.sizes}"]
    leaves = [(task.node, device) for task in ours.tasks for device in task.devices]
    if len(set(leaves)) != len(leaves):
        return ["two tasks on one leaf"]
    found: list[str] = []
    for leaf in leaves:
        spot = cluster.spots.get(leaf)
        if spot is None:
            found.append(f"no leaf {leaf}")
        elif ask.types and not ask.pin and cluster.chains[spot.chain].names[0] not in ask.types:
            found.append(f"leaf {leaf} is not of {ask.types}")
    for node in sorted(geometry.nodes_of(ours.tasks)):
        if node in book.bad:
            found.append(f"node {node} is bad")
        if ask.nodes is not None and node not in ask.nodes:
            found.append(f"node {node} may not be used")
    return found


def _wronged(book: Book, ask: Ask, ours: Placed) -> list[str]:
    there = geometry.clash(book, ours.tasks)
    found = [f"{g} sits there and is no victim" for g in sorted(there - set(ours.victims))]
    found += [wrong for name in ours.victims if (wrong := _no_victim(book, ask, ours, name))]
    for name in ours.demoted:
        other = book.gang(name)
        if other is None or not other.lazy:
            found.append(f"{name} does not agree to lose its guarantee")
        elif not _yields(other, ask):
            found.append(f"{name} has a guarantee that holds against {ask.gang}")
    leaves = geometry.leaves_of(ours.tasks)
    found += [
        f"reserved for {kept.gang}"
        for kept in book.reserved
        if kept.gang != ask.gang
        and leaves & geometry.leaves_of(kept.tasks)
        and not _yields(kept, ask)
    ]
    return found


def _no_victim(book: Book, ask: Ask, ours: Placed, name: str) -> str:
    victim = book.gang(name)
    if victim is None:
        return f"victim {name} holds nothing"
    if ask.priority < 0:
        return f"an opportunistic gang sends {name} away"
    if victim.guaranteed and name not in ours.demoted and not _yields(victim, ask):
        return f"{name} has a guarantee that holds against {ask.gang}"
    return ""


def _yields(other: Held | Reserved, ask: Ask) -> bool:
    return other.tenant == ask.tenant and other.priority < ask.priority


def _charged(cluster: Cluster, ask: Ask, ours: Placed) -> list[str]:
    if ask.priority < 0:
        return [f"{t} is charged to a cell" for t in ours.tasks if t.cell]
    found = [f"{t} is charged to no cell" for t in ours.tasks if not t.cell]
    if ask.pin and not found:
        pinned = geometry.Cell(*cluster.pinned[ask.pin])
        found += [
            f"{task} lies outside {ask.pin}"
            for task in ours.tasks
            if geometry.cells_of(cluster, task) != {pinned}
        ]
    return found


def broken_after(cluster: Cluster, book: Book, ask: Ask, ours: Placed) -> list[str]:
    """Return which shares could no longer be had once this is carried out."""
    leaves = geometry.leaves_of(ours.tasks)
    gone = {*ours.victims, *ours.demoted}
    held = tuple(h for h in book.held if h.gang not in gone)
    reserved = tuple(
        r
        for r in book.reserved
        if r.gang != ask.gang and not leaves & geometry.leaves_of(r.tasks)
    )
    bound = geometry.bound_in(cluster, Book(held, reserved))
    bound |= geometry.bound_by(cluster, ask.tenant, ask.pin, ours.tasks)
    return geometry.broken_shares(cluster, bound)
