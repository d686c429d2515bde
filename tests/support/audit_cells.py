"""The book of cells checked against itself and the world, the slow and obvious way.

What is promised, exactly: were everything mended that is broken or closed, every tenant
could have at once all that it is guaranteed, by sending borrowers away only. That is checked
here whatever the state of the hardware. What a decision may do while some of it is broken
cannot be seen in one state: `worse` compares two.

No decision reads it.
"""

from collections.abc import Iterator, Sequence

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import COSTLY, Space


def flaws(cells: Cells) -> Iterator[str]:
    """Return everything that is wrong with a book: nothing, unless we have a bug."""
    for at, space in enumerate(cells.spaces):
        holdings = [held[at] for held in cells.holdings.values() if at in held]
        yield from _of_free_cells(space)
        yield from _of_holdings(cells, at, holdings)
        yield from _of_idle(cells, at)
        yield from _of_promises(space, holdings)


def _of_free_cells(space: Space) -> Iterator[str]:
    """Free cells are just the largest whose leaves are all healthy and in no tenant's cell."""
    chain = space.chain
    free: list[set[int]] = [
        {n for bucket in buckets.values() for n in bucket} for buckets in space.buckets()
    ]
    for level in range(chain.top + 1):
        expect = {
            number
            for number in range(chain.cells[level])
            if _wholly_free(space, (level, number))
            and (
                level == chain.top
                or not _wholly_free(space, chain.above((level, number), level + 1))
            )
        }
        if free[level] != expect:
            yield f"free cells of {chain.names[level]}: {free[level]} should be {expect}"
        if space.count[level] != len(expect):
            yield f"{space.count[level]} free {chain.names[level]} counted, {len(expect)} there"
        for cost, bucket in space.buckets()[level].items():
            if bucket != sorted(set(bucket)):
                yield f"bucket {cost} of {chain.names[level]} is out of order"
            for number in bucket:
                true = _cost_of(space, (level, number))
                if true != cost:
                    name = chain.name_of((level, number))
                    yield f"{name} costs {true}, not {cost}"


def _wholly_free(space: Space, cell: Cell) -> bool:
    mask = space.chain.mask_of(cell)
    return all(
        not (space.held[node] | space.shut[node]) & mask for node in space.chain.nodes_of(cell)
    )


def _cost_of(space: Space, cell: Cell) -> int:
    mask, nodes = space.chain.mask_of(cell), space.chain.nodes_of(cell)
    lent = sum((space.lent[n] & mask).bit_count() for n in nodes)
    return lent + COSTLY * sum((space.costly[n] & mask).bit_count() for n in nodes)


def _of_holdings(cells: Cells, at: int, holdings: list[Holding]) -> Iterator[str]:
    """Bound cells are disjoint, are what is held, and cover what is taken."""
    chain, space = cells.chains[at], cells.spaces[at]
    held = [0] * len(chain.nodes)
    taken = [0] * len(chain.nodes)
    for holding in holdings:
        for cell, uses in holding.bound.items():
            if uses < 0 or (uses == 0 and cell != holding.pinned):
                yield f"{chain.name_of(cell)} is bound for {uses} uses"
            for node in chain.nodes_of(cell):
                if held[node] & chain.mask_of(cell):
                    yield f"{chain.name_of(cell)} overlaps another bound cell"
                held[node] |= chain.mask_of(cell)
        for node, used in holding.used.items():
            beside = holding.beside.get(node, 0)
            taken[node] += used - beside  # Each leaf once, or the sum shows it.
        yield from _of_rooms(holding)
        yield from _of_beside(holding)
    if held != space.held:
        yield "held leaves are not those of bound cells"
    if taken != cells.uses[at].taken:
        yield "taken leaves are not those that holdings use"
    if any(mask & ~mine for mask, mine in zip(taken, held, strict=True)):
        yield "leaves are taken outside of bound cells"


def _of_rooms(holding: Holding) -> Iterator[str]:
    """Every node with bound leaves stands in the bucket of the room left on it."""
    for level, mine in holding.mine.items():
        for node in mine:
            room = holding.available(level, node).bit_count()
            room = max(0, room - holding.claims.get((level, node), 0))
            if node not in {each for _, each in holding.rooms[level].get(room, ())}:
                yield f"node {holding.chain.nodes[node]} is in the wrong bucket of rooms"


def _of_beside(holding: Holding) -> Iterator[str]:
    """Leaves that a task has beside those it sits on are the tenant's own, and in use."""
    for node, beside in holding.beside.items():
        mine = 0
        for leaves in holding.mine.values():
            mine |= leaves.get(node, 0)
        if beside & ~(holding.used.get(node, 0) & mine):
            yield f"leaves beside others on {holding.chain.nodes[node]} are not the tenant's"


def _of_idle(cells: Cells, at: int) -> Iterator[str]:
    chain, space = cells.chains[at], cells.spaces[at]
    for node in range(len(chain.nodes)):
        lent = 0
        for mask in cells.uses[at].borrowers[node].values():
            lent |= mask
        if lent != space.lent[node]:
            yield f"node {chain.nodes[node]}: lent leaves are not those of borrowers"
        busy = cells.uses[at].taken[node] | space.lent[node] | space.shut[node]
        for leaf in cells.uses[at].aside.get(node, ()):
            busy |= 1 << leaf
        if cells.uses[at].idle.leaves[node] != chain.full & ~busy:
            yield f"node {chain.nodes[node]}: idle leaves are wrong"
    for least in range(chain.width + 1):
        true = {
            n for n, idle in enumerate(cells.uses[at].idle.leaves) if idle.bit_count() >= least
        }
        told = list(cells.uses[at].idle.nodes_with(least))
        if len(told) != len(true) or set(told) != true:
            yield f"nodes with {least} idle leaves are {sorted(told)}, should be {sorted(true)}"


def _of_promises(space: Space, holdings: list[Holding]) -> Iterator[str]:
    """Every tenant can have what it is guaranteed, as far as healthy hardware goes."""
    guaranteed = [0] * (space.chain.top + 1)
    for holding in holdings:
        for level, cells in holding.unbound.items():
            guaranteed[level] += cells
            bound = sum(1 for cell in holding.bound if cell[0] == level)
            if holding.pinned is None and holding.guaranteed.get(level, 0) != cells + bound:
                yield f"{cells} unbound and {bound} bound cells of level {level} do not add up"
    unheld = _unheld(space)
    if unheld != space.whole:
        yield f"{space.whole} cells are free, by level, not {unheld}"
    if guaranteed != space.unbound:
        yield f"guaranteed {space.unbound} should be {guaranteed}"
    if any(cells < 0 for cells in guaranteed):
        return  # A share was cut: it is made up for as gangs end.
    if not can_be_dealt(space.chain, unheld, guaranteed):
        yield f"shares are not safe: {guaranteed} cells are guaranteed"


def _unheld(space: Space) -> list[int]:
    """Count the largest cells that no tenant has any part of, by level, broken or not."""
    chain = space.chain

    def unheld(cell: Cell) -> bool:
        mask = chain.mask_of(cell)
        return not any(space.held[node] & mask for node in chain.nodes_of(cell))

    return [
        sum(
            unheld((level, number))
            and (level == chain.top or not unheld(chain.above((level, number), level + 1)))
            for number in range(chain.cells[level])
        )
        for level in range(chain.top + 1)
    ]


def can_be_dealt(chain: Chain, free: Sequence[int], guaranteed: Sequence[int]) -> bool:
    """Deal cells out, the largest first, from what is free: the obvious way."""
    left = list(free)
    for level in range(chain.top, -1, -1):
        if left[level] < guaranteed[level]:
            return False
        if level:
            left[level - 1] += (left[level] - guaranteed[level]) * chain.fanout[level]
    return True


def lacking(space: Space) -> tuple[int, ...]:
    """Return, by level, how many guaranteed cells could not be had now: hardware is broken.

    What is lacking of larger cells is not made up for with smaller ones.
    """
    chain = space.chain
    lack: list[int] = []
    over = 0
    for level in range(chain.top, -1, -1):
        left = space.count[level] + over - space.unbound[level]
        lack.append(max(0, -left))
        over = max(0, left) * chain.fanout[level]
    return tuple(reversed(lack))


def worse(before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> bool:
    """Whether of any level more is lacking than was, chain by chain.

    No decision that gives cells to a tenant may do that.
    """
    return any(
        now > then
        for here, there in zip(before, after, strict=True)
        for then, now in zip(here, there, strict=True)
    )
