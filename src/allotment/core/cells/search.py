"""Where a gang goes: in the cells of its tenant, or on what is idle. Nothing is changed here.

A guaranteed gang is placed as if its tenant had a cluster of its own, borrowers or not:
first on bound nodes with the least room, then in newly bound cells, the smallest that
serve; where shares are of small cells, several side by side. Of alike cells that could be
bound, the one with fewest borrowers on it is, `opportunistic` jobs before any other. (HiveD,
OSDI'20, 3.3; its intra-tenant scheduler packs in the same order.)
"""

from collections.abc import Iterator
from itertools import islice

from allotment.core.cells.attempt import NOWHERE, Attempt, Avoid
from allotment.core.cells.book import Cells, Found
from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.fresh import fresh_cells, side_by_side
from allotment.core.cells.groups import roomy
from allotment.core.cells.holding import Holding
from allotment.core.request import Request
from allotment.model.quantity import DEVICE
from allotment.model.spec import Arch

MOST_REGIONS = 8
"""Cells that are tried as a common one, where a common one is only liked."""


def find(
    cells: Cells,
    tenant: str,
    pin: str,
    requests: tuple[Request, ...],
    avoid: Avoid = NOWHERE,
) -> Found | None:
    """Find room for a gang in the cells its tenant is owed; None if there is none.

    What is to `avoid` is left out. Asked the same again before anything is written in the
    book, it gives the same at once.
    """
    key = (tenant, pin, requests, avoid)
    if cells.last is None or cells.last[0] != key:
        cells.last = (key, _find(cells, *key))
    return cells.last[1]


def _find(
    cells: Cells,
    tenant: str,
    pin: str,
    requests: tuple[Request, ...],
    avoid: Avoid,
) -> Found | None:
    holdings = cells.holdings.get((tenant, pin), {})
    for chains in cells.chains_for(requests):
        best: tuple[int, int, Found] | None = None
        for at in chains:
            holding = holdings.get(at)
            if holding is None or not serves(cells.chains[at], requests):
                continue
            found = _in_chain(cells, at, holding, requests, avoid)
            if found is None:
                continue
            if len(chains) == 1:
                return found
            ranked = (cells.extent(at, found.slots), at, found)
            best = ranked if best is None or ranked[:2] < best[:2] else best
        if best is not None:
            return best[2]
    return None


def serves(chain: Chain, requests: tuple[Request, ...]) -> bool:
    """Whether the hardware of a chain is what a gang asks for."""
    return all(
        (not r.types or chain.names[0] in r.types)
        and r.arch in (Arch.ANY, chain.arch)
        and r.need.gpu_memory <= chain.memory
        and (not r.group or chain.level_of(r.group_within) is not None)
        and (not r.devices or chain.has_devices)
        for r in requests
    )


def _in_chain(
    cells: Cells,
    at: int,
    holding: Holding,
    requests: tuple[Request, ...],
    avoid: Avoid,
) -> Found | None:
    chain = cells.chains[at]
    first = requests[0]
    free = not (first.within or first.prefer or first.group)
    if free and len(requests) == 1 and first.count == 1:
        return Attempt(cells, at, holding, None, avoid).place_all(requests)
    if first.within and chain.level_of(first.within) is None:
        return None
    for region in _common(cells, at, holding, requests):
        found = Attempt(cells, at, holding, region, avoid).place_all(requests)
        if found is None and region is not None and _owed_of_many_levels(holding):
            # The small cells it would take first may part the large one it could have.
            trial = Attempt(cells, at, holding, region, avoid)
            trial.largest_first = True
            found = trial.place_all(requests)
        if found is not None:
            return found
    return None


def _owed_of_many_levels(holding: Holding) -> bool:
    return sum(1 for cells in holding.unbound.values() if cells > 0) > 1


def _common(
    cells: Cells, at: int, holding: Holding, requests: tuple[Request, ...]
) -> Iterator[Cell | None]:
    """Return the cells to look for room in, best first; None for anywhere."""
    chain = cells.chains[at]
    required, liked = chain.level_of(requests[0].within), chain.level_of(requests[0].prefer)
    if liked is not None and (required is None or liked < required):
        yield from regions(cells, at, holding, requests, liked)
    if required is not None:
        yield from regions(cells, at, holding, requests, required)
        return
    for level in range(chain.node_level, chain.top + 1):
        yield from islice(regions(cells, at, holding, requests, level), MOST_REGIONS)
    yield None


# ── a common cell ───────────────────────────────────────────────────────────────────────


def regions(
    cells: Cells, at: int, holding: Holding, requests: tuple[Request, ...], level: int
) -> Iterator[Cell]:
    """Return the cells of a level that could hold a whole gang, the tightest first."""
    chain = cells.chains[at]
    want = sum(r.count * max(1, r.devices + cells.claim(at, r.need)) for r in requests)
    if want > chain.size[level] and any(r.need.gpu_milli >= DEVICE for r in requests):
        return
    if level <= chain.node_level:
        yield from _small_regions(chain, holding, level, want)
        return
    least = min(r.devices + cells.claim(at, r.need) for r in requests)
    rooms: dict[int, int] = {}
    for room, _, node in holding.nodes_with(max(1, least)):
        number = node // chain.per[level]
        rooms[number] = rooms.get(number, 0) + room
    unbound = sum(n * chain.size[kind] for kind, n in holding.unbound.items() if n > 0)
    space = cells.spaces[at]
    fits: list[tuple[int, int, int]] = []
    for number, nodes in enumerate(space.free_nodes(level)):
        room = rooms.get(number, 0) + min(unbound, nodes * chain.width)
        if room >= want:
            fits.append((room, space.cost_of((level, number)), number))
    for _, _, number in sorted(fits):
        yield (level, number)
    if any(n > 0 and kind < chain.node_level for kind, n in holding.unbound.items()):
        # Small cells may be had on nodes that are not wholly free too.
        known = {number for _, _, number in fits}
        yield from (cell for cell in roomy(holding, level, want) if cell[1] not in known)


def _small_regions(chain: Chain, holding: Holding, level: int, want: int) -> Iterator[Cell]:
    """Return cells within one node: those that are bound, then what could be."""
    inside = chain.width // chain.size[level]
    for _, kind, node in holding.nodes_with(want):
        free = holding.available(kind, node)
        fits = [
            ((free & chain.mask_of((level, cell))).bit_count(), cell)
            for cell in range(node * inside, (node + 1) * inside)
        ]
        for room, cell in sorted(fits):
            if room >= want:
                yield (level, cell)
    for kind in sorted(holding.unbound):
        if holding.unbound[kind] > 0 and chain.size[kind] >= want:
            for cell in fresh_cells(holding.space, kind, None):
                first = cell[1] * chain.size[kind]
                yield (level, first // chain.size[level])
                break
    for kind in sorted(holding.unbound):
        if 0 < chain.size[kind] < want <= holding.unbound[kind] * chain.size[kind]:
            for whole in side_by_side(holding, kind, want, None):
                first = whole[0][1] * chain.size[kind]
                yield (level, first // chain.size[level])
                break
