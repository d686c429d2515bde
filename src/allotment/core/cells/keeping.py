"""By which small cells of its tenant's a borrower could keep what it has, host and all.

Cells smaller than a node cover what a task needs of its host beyond its devices' share by
leaves that are named. Who borrows has none; they are chosen here, on the nodes where it is:
out of cells that are bound, then of those its devices lie in, then of others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, bits
from allotment.core.cells.holding import Holding
from allotment.core.cells.rights import objection
from allotment.core.cells.space import Space
from allotment.model.ledger import Beside, Quota, Slot, having
from allotment.model.quantity import Resources


def by_host_shares(
    cells: Cells, tenant: str, pin: str, slots: Sequence[Slot], needs: Sequence[Resources]
) -> tuple[Quota, Beside]:
    """Find the cells, and the leaves beside each task, that cover a gang; or none.

    The smallest type that serves is taken, for all slots alike.
    """
    for at, holding in cells.holdings.get((tenant, pin), {}).items():
        chain = holding.chain
        levels = {*holding.mine, *(kind for kind, left in holding.unbound.items() if left > 0)}
        small = sorted(level for level in levels if level < chain.node_level)
        claims = sum(cells.claim(at, need) for need in needs) if small else 0
        if not 0 < claims <= holding.room_in_all():
            continue
        for level in small:
            quota = (chain.names[level],)
            beside = _beside(cells, at, level, slots, needs, holding)
            if beside and not objection(
                cells, tenant, pin, having(slots, beside), needs, quota
            ):
                return quota, beside
    return (), ()


def _beside(
    cells: Cells,
    at: int,
    level: int,
    slots: Sequence[Slot],
    needs: Sequence[Resources],
    holding: Holding,
) -> Beside:
    """Choose leaves of a chain for what each task needs beside its own; none if too few."""
    spots = [
        cells.spot(slot, need, holding.chain.names[level])
        for slot, need in zip(slots, needs, strict=True)
    ]
    own: dict[int, int] = {}
    for spot in spots:
        if spot is None or spot.chain != at:
            return ()
        own[spot.node] = own.get(spot.node, 0) | spot.mask
    left = {node: _leaves(holding, level, node, mask) for node, mask in own.items()}
    found: list[tuple[int, ...]] = []
    for spot in spots:
        assert spot is not None, "looked at above"
        leaves = sorted(islice(left[spot.node], spot.claim))
        if len(leaves) < spot.claim:
            return ()
        found.append(tuple(leaves))
    return tuple(found)


def _leaves(holding: Holding, level: int, node: int, own: int) -> Iterator[int]:
    """Return the leaves of a node that may be had in cells of a level, the best first."""
    chain, space = holding.chain, holding.space
    if level in holding.mine:
        yield from bits(holding.available(level, node) & ~own)
    around = holding.cells_of(level, node, own) if own else ()
    opened = [cell for cell in around if cell not in holding.bound]
    for cell in opened:
        yield from bits(chain.mask_of(cell) & ~own & ~space.shut[node])
    if holding.unbound.get(level, 0) > len(opened):
        for cell in _free_on(space, level, node, opened):
            yield from bits(chain.mask_of(cell))


def _free_on(space: Space, level: int, node: int, opened: Sequence[Cell]) -> list[Cell]:
    """Return the free cells of a level on a node, in the order in which they had best be bound.

    What is parted already goes first, as if those in `opened` were bound.
    """
    chain = space.chain
    inside = chain.width // chain.size[level]

    def key(cell: Cell) -> tuple[int, int, int, int]:
        up, number = _whole_around(space, cell, opened)
        return (up, space.cost_of((up, number)), number, cell[1])

    cells = ((level, number) for number in range(node * inside, (node + 1) * inside))
    free = [cell for cell in cells if space.is_free(cell) and cell not in opened]
    return sorted(free, key=key)


def _whole_around(space: Space, cell: Cell, opened: Sequence[Cell]) -> Cell:
    """Return the largest free cell around one, with none of those opened in it."""
    chain, around = space.chain, cell
    while around[0] < chain.top:
        parent = chain.above(cell, around[0] + 1)
        if not space.is_free(parent) or any(chain.overlap(parent, one) for one in opened):
            break
        around = parent
    return around
