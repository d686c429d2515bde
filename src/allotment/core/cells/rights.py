"""Whether a tenant may have just these leaves out of its own cells: the committer's question.

It shares nothing with the search but the book it reads. And by which cells a gang could
keep what it sits on. Cells smaller than a node cover what a task needs of its host beyond its
devices' share by leaves that are named. A borrower has none, so they are chosen here, on the
nodes where it is: out of bound cells, then of those its devices lie in, then of others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Spot, bits
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import Space, allows
from allotment.model.ids import NodeId
from allotment.model.ledger import Beside, Quota, Slot, having
from allotment.model.quantity import DEVICE, Resources


def objection(
    cells: Cells,
    tenant: str,
    pin: str,
    slots: Sequence[Slot],
    needs: Sequence[Resources],
    quota: Quota,
) -> str:
    """Return why a gang may not take these slots as guaranteed; empty when it may. O(tasks).

    Borrowers are in no tenant's way here: they can be evicted.
    """
    holdings = cells.holdings.get((tenant, pin))
    if not holdings or not quota:
        return f"tenant {tenant} has no guaranteed cells there"
    spots: list[tuple[Spot, int]] = []
    for at, (slot, need) in enumerate(zip(slots, needs, strict=True)):
        kind = quota[at if len(quota) > 1 else 0]
        spot = cells.spot(slot, need, kind)
        if spot is None:
            return f"not all of it lies in cells of node {slot.node}"
        if need.gpu_memory > cells.chains[spot.chain].memory:
            # A guarantee counts devices by the smallest of the chain: no cell has so much.
            return "the smallest device of those cells has less memory than it needs"
        names = cells.chains[spot.chain].names
        if kind not in names or (spots and spot.chain != spots[0][0].chain):
            return "a gang lies within one chain"
        spots.append((spot, names.index(kind)))
    holding = holdings.get(spots[0][0].chain) if spots else None
    if holding is None:
        return f"tenant {tenant} has no guaranteed cells there"
    return _in_holding(cells, holding, spots)


def _in_holding(cells: Cells, holding: Holding, spots: Sequence[tuple[Spot, int]]) -> str:
    chain, space = holding.chain, holding.space
    bound: dict[Cell, None] = {}
    used: dict[int, int] = {}
    parts: dict[tuple[int, int], int] = {}
    claims: dict[tuple[int, int], int] = {}
    for spot, level in spots:
        node, mask = spot.node, spot.mask
        claim, beside = holding.claimed(level, spot)
        if level < chain.node_level and not _by_leaves(spot):
            return "small cells cover a host beyond its leaves' share only leaf by leaf"
        for cell in holding.cells_of(level, node, mask | beside):
            if cell not in holding.bound:
                if not _could_be_bound(holding, cell):
                    return f"{chain.name_of(cell)} is not the tenant's, nor free"
                bound[cell] = None
        if (mask | beside) & space.shut[node]:
            return f"leaves of node {chain.nodes[node]} are broken or closed"
        busy = (mask | beside) & (used.get(node, 0) | holding.used.get(node, 0))
        if busy and not _shareable(holding, spot, parts, busy):
            return f"leaves of node {chain.nodes[node]} are in use"
        if spot.is_part:
            key = (node, mask)
            parts[key] = parts.get(key, 0) + spot.milli
        used[node] = used.get(node, 0) | mask | beside
        if claim:
            claims[level, node] = claims.get((level, node), 0) + claim
    return _too_much(holding, list(bound), used, claims, [level for _, level in spots])


def _by_leaves(spot: Spot) -> bool:
    """Whether a task has leaves for all it needs, and any at all."""
    return spot.beside.bit_count() >= spot.claim and bool(spot.mask | spot.beside)


def _shareable(
    holding: Holding, spot: Spot, parts: dict[tuple[int, int], int], busy: int
) -> bool:
    """Whether a leaf in use, the only one, has room for one more part."""
    if not spot.is_part or busy & ~spot.mask:
        return False
    leaf = spot.mask.bit_length() - 1
    there = holding.parts.get((spot.node, leaf), 0) + parts.get((spot.node, spot.mask), 0)
    return 0 < there <= DEVICE - spot.milli


def _could_be_bound(holding: Holding, cell: Cell) -> bool:
    """Whether a cell is in no tenant's hands. Broken leaves in it do not matter."""
    if holding.pinned is not None:
        return False
    chain, space = holding.chain, holding.space
    mask = chain.mask_of(cell)
    return not any(space.held[node] & mask for node in chain.nodes_of(cell))


def _not_guaranteed(holding: Holding, bound: Sequence[Cell]) -> str:
    """Check that a guarantee has so many more cells, and that they lie together."""
    chain = holding.chain
    levels = {cell[0] for cell in bound}
    for level in levels:
        if sum(1 for cell in bound if cell[0] == level) > holding.unbound.get(level, 0):
            return f"no more {chain.names[level]} are guaranteed"
    if len(levels) > 1 and any(
        chain.above(cell, level) in bound
        for cell in bound
        for level in levels
        if level > cell[0]
    ):
        return "one of those cells lies in another"
    return ""


def _too_much(
    holding: Holding,
    bound: list[Cell],
    used: dict[int, int],
    claims: dict[tuple[int, int], int],
    levels: Sequence[int],
) -> str:
    """Check the sums: guaranteed cells, room for claims, and the shares of all others."""
    chain, space = holding.chain, holding.space
    if wrong := _not_guaranteed(holding, bound):
        return wrong
    for level in set(levels):
        for node, mask in used.items():
            key = (level, node)
            claimed = holding.claims.get(key, 0) + claims.get(key, 0)
            # A part of a leaf in use takes nothing of what is left, be that too little by now.
            more = claims.get(key, 0) or mask & ~holding.used.get(node, 0)
            if not claimed or not more:
                continue
            mine = holding.mine.get(level, {}).get(node, 0)
            for cell in bound:
                if cell[0] == level and node in chain.nodes_of(cell):
                    mine |= chain.mask_of(cell)
            left = mine & ~(holding.used.get(node, 0) | mask) & ~space.shut[node]
            if left.bit_count() < claimed:
                return f"the host share of node {chain.nodes[node]} is used up"
    if not allows(space, bound):
        return "those cells are guaranteed to another tenant"
    return ""


def quota_for(
    cells: Cells, tenant: str, pin: str, slots: Sequence[Slot], needs: Sequence[Resources]
) -> Quota:
    """Find the cells by which a gang could keep, as guaranteed, what it sits on; or none.

    The smallest type that serves is taken, for all slots alike; where none does, for those
    of each node alike.
    """
    holdings = cells.holdings.get((tenant, pin), {})
    spot = cells.spot(slots[0], needs[0]) if slots else None
    if spot is None:
        return ()
    chain = spot.chain
    holding = holdings.get(chain)
    if holding is None:
        return ()
    levels = {cell[0] for cell in holding.bound} | holding.unbound.keys()
    kinds = [cells.chains[chain].names[level] for level in sorted(levels)]
    for kind in kinds:
        if not objection(cells, tenant, pin, slots, needs, (kind,)):
            return (kind,)
    return _by_nodes(cells, tenant, pin, slots, needs, kinds) if len(kinds) > 1 else ()


def quota_still(
    cells: Cells,
    tenant: str,
    pin: str,
    slots: Sequence[Slot],
    needs: Sequence[Resources],
    quota: Quota,
) -> Quota:
    """Return the cells by which a gang had its place, if it still may; or others, or none."""
    if len(quota) in (1, len(slots)) and not objection(cells, tenant, pin, slots, needs, quota):
        return quota
    return quota_for(cells, tenant, pin, slots, needs)


def _by_nodes(
    cells: Cells,
    tenant: str,
    pin: str,
    slots: Sequence[Slot],
    needs: Sequence[Resources],
    kinds: Sequence[str],
) -> Quota:
    """Choose a type for what lies on each node: the smallest that serves, most tasks first.

    O(nodes · types · tasks), and mostly over at the first node.
    """
    there: dict[NodeId, list[int]] = {}
    for at, slot in enumerate(slots):
        there.setdefault(slot.node, []).append(at)
    if len(there) == 1:
        return ()
    chosen: dict[int, str] = {}
    for places in sorted(
        there.values(), key=lambda some: (-sum(len(slots[at].devices) for at in some), some[0])
    ):
        for kind in kinds:
            wanted = chosen | dict.fromkeys(places, kind)
            taken = sorted(wanted)
            mine, asked = [slots[at] for at in taken], [needs[at] for at in taken]
            quota = tuple(wanted[at] for at in taken)
            if not objection(cells, tenant, pin, mine, asked, quota):
                chosen = wanted
                break
        else:
            return ()
    return tuple(chosen[at] for at in range(len(slots)))


# ── by host shares ────────────────────────────────────────────────────────────────────────


def by_host_shares(
    cells: Cells, tenant: str, pin: str, slots: Sequence[Slot], needs: Sequence[Resources]
) -> tuple[Quota, Beside]:
    """Find the cells, and the leaves beside each task, that cover a gang; or none.

    The smallest type that serves is taken, for all slots alike.
    """
    for at, holding in cells.holdings.get((tenant, pin), {}).items():
        chain = holding.chain
        levels = {*holding.mine, *holding.unbound}
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
    """Return the leaves of a node that may be used in cells of a level, the best first."""
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
