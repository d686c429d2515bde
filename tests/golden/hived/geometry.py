"""Shapes, worked out the slow way: common cells, and whether every share can still be had.

Independent of the cells under test: it sees leaves in the order of the tree and nothing else.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from allotment.model.ids import NodeId
from tests.golden.hived.cluster import Chain, Cluster, Spot
from tests.golden.hived.words import Book, Task


class Cell(NamedTuple):
    chain: str
    level: int
    number: int


class Bound(NamedTuple):
    """A physical cell that serves a tenant: for one of its shares, or as its pinned cell."""

    tenant: str
    cell: Cell
    pin: str = ""


def spots_of(cluster: Cluster, task: Task) -> list[Spot]:
    return [cluster.spots[task.node, device] for device in task.devices]


def common_leaves(cluster: Cluster, tasks: Iterable[Task]) -> int:
    """Count the leaves of the smallest cell in which all of these lie; 0 if none holds them."""
    spots = [spot for task in tasks for spot in spots_of(cluster, task)]
    if len({spot.chain for spot in spots}) != 1:
        return 0
    chain = cluster.chains[spots[0].chain]
    for size in chain.sizes:
        if len({spot.at // size for spot in spots}) == 1:
            return size
    return 0


def cells_of(cluster: Cluster, task: Task) -> set[Cell]:
    """Name the cells a task is charged to."""
    found: set[Cell] = set()
    for spot in spots_of(cluster, task):
        chain = cluster.chains[spot.chain]
        level = chain.level(task.cell)
        found.add(Cell(spot.chain, level, spot.at // chain.sizes[level]))
    return found


def bound_by(cluster: Cluster, tenant: str, pin: str, tasks: Iterable[Task]) -> set[Bound]:
    """Return which cells a gang's guaranteed tasks bind to its tenant."""
    cells = {cell for task in tasks if task.cell for cell in cells_of(cluster, task)}
    return {Bound(tenant, cell, pin) for cell in cells}


def bound_in(cluster: Cluster, book: Book) -> set[Bound]:
    """Return which cells serve whom: all that guaranteed gangs and reservations lie in."""
    found: set[Bound] = set()
    for each in (*book.held, *book.reserved):
        found |= bound_by(cluster, each.tenant, each.pin, each.tasks)
    for tenant, owed in cluster.owed.items():
        for cell in owed:
            if cell.pin:
                found.add(Bound(tenant, Cell(*cluster.pinned[cell.pin]), cell.pin))
    return found


def broken_shares(cluster: Cluster, bound: set[Bound]) -> list[str]:
    """Return why some tenant could not get all it is owed, even from an empty, healthy cluster.

    No two cells that serve overlap; nobody has more than its share; and what each is still
    owed can be cut, one to one, from what is left, from the largest cells down.
    """
    found = _overlaps(cluster, bound)
    used = Counter((b.tenant, b.cell.chain, b.cell.level) for b in bound if not b.pin)
    owed: Counter[tuple[str, str, int]] = Counter()
    for tenant, cells in cluster.owed.items():
        for cell in cells:
            if not cell.pin:
                owed[tenant, cell.chain, cluster.chains[cell.chain].level(cell.type)] += 1
    for key, count in used.items():
        if count > owed[key]:
            found.append(f"{key} uses {count} cells of {owed[key]}")
    demand: Counter[tuple[str, int]] = Counter()
    for (tenant, chain, level), count in owed.items():
        demand[chain, level] += max(0, count - used[tenant, chain, level])
    for name, chain in cluster.chains.items():
        taken = [b.cell for b in bound if b.cell.chain == name]
        free = free_cells(chain, taken)
        spare = 0
        for level in range(len(chain.sizes) - 1, -1, -1):
            spare += free[level] - demand[name, level]
            if spare < 0:
                found.append(f"{name}: {-spare} cells of {chain.names[level]} are missing")
                break
            spare *= chain.sizes[level] // chain.sizes[level - 1] if level else 1
    return found


def _overlaps(cluster: Cluster, bound: set[Bound]) -> list[str]:
    owner: dict[tuple[str, int], Bound] = {}
    found: list[str] = []
    for each in sorted(bound):
        size = cluster.chains[each.cell.chain].sizes[each.cell.level]
        for at in range(each.cell.number * size, (each.cell.number + 1) * size):
            other = owner.setdefault((each.cell.chain, at), each)
            if other != each:
                found.append(f"{each} overlaps {other}")
                break
    return found


def free_cells(chain: Chain, taken: Iterable[Cell]) -> list[int]:
    """Count, by level, the largest cells of which nothing is taken."""
    used = [False] * len(chain.spots)
    for cell in taken:
        size = chain.sizes[cell.level]
        for at in range(cell.number * size, (cell.number + 1) * size):
            used[at] = True
    free = [0] * len(chain.sizes)
    covered = [False] * len(chain.spots)
    for level in range(len(chain.sizes) - 1, -1, -1):
        size = chain.sizes[level]
        for first in range(0, len(chain.spots), size):
            if not covered[first] and not any(used[first : first + size]):
                free[level] += 1
                covered[first : first + size] = [True] * size
    return free


def room_owed(cluster: Cluster, tenant: str, pin: str, types: tuple[str, ...]) -> list[int]:
    """Return the pieces of a node a tenant's whole share comes in, in leaves, largest first.

    Pieces of one chain at most: those of the chain with the most leaves.
    """
    best: list[int] = []
    for name, chain in cluster.chains.items():
        if types and chain.names[0] not in types and not pin:
            continue
        pieces: list[int] = []
        for cell in cluster.owed.get(tenant, ()):
            if cell.chain == name and cell.pin == pin:
                size = chain.sizes[chain.level(cell.type)]
                node = chain.sizes[chain.node_level]
                pieces += [min(size, node)] * max(1, size // node)
        best = max(best, sorted(pieces, reverse=True), key=sum)
    return best


def clash(book: Book, tasks: Iterable[Task]) -> set[str]:
    """Name the gangs that sit on these leaves."""
    wanted = leaves_of(tasks)
    return {held.gang for held in book.held if wanted & leaves_of(held.tasks)}


def leaves_of(tasks: Iterable[Task]) -> set[tuple[NodeId, int]]:
    return {(task.node, device) for task in tasks for device in task.devices}


def nodes_of(tasks: Iterable[Task]) -> set[NodeId]:
    return {task.node for task in tasks}
