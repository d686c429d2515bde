"""Whether what a tenant takes leaves everybody else what they are owed.

Two things must stay true, and each decision is checked against both:

1. If nothing were broken or closed, all that is owed could be dealt out at once. So what a
   tenant loses to broken hardware it has again as soon as that is mended.
2. Of the hardware that is healthy now, nobody finds less: no level that has enough cells for
   all who are owed some ends with too few, none that has too few ends with fewer still.
"""

from collections.abc import Callable, Sequence

from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.space import Space


def spare(chain: Chain, count: Sequence[int], owed: Sequence[int]) -> list[int]:
    """Return, by level, how many cells nobody is owed; what is negative cannot be had.

    A cell of a level is one of its free cells or a part of a larger one that is spare.
    """
    left = list(count)
    over = 0
    for level in range(chain.top, -1, -1):
        left[level] += over - owed[level]
        over = max(0, left[level]) * chain.fanout[level]
    return left


def shortage(spaces: Sequence[Space]) -> list[tuple[int, ...]]:
    """Return, chain by chain and level by level, what is owed and cannot be had: 0 or less."""
    return [
        tuple(min(0, left) for left in spare(space.chain, space.count, space.owed))
        for space in spaces
    ]


def shorter(before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> bool:
    """Whether of any level more is lacking than was."""
    return any(
        now < then
        for here, there in zip(before, after, strict=True)
        for then, now in zip(here, there, strict=True)
    )


def allows(space: Space, cells: Sequence[Cell]) -> bool:
    """Whether a tenant that is owed these cells may have just these. O(cells · levels).

    Nobody has any part of them, and no two overlap.
    """
    owed = space.owed.copy()
    for level, _ in cells:
        owed[level] -= 1
    if not _no_less(space, space.count, _count_without(space, cells), owed):
        return False
    return not space.broken or _no_less(space, space.whole, _whole_without(space, cells), owed)


def _no_less(
    space: Space, count: Sequence[int], count_after: Sequence[int], owed_after: Sequence[int]
) -> bool:
    before = spare(space.chain, count, space.owed)
    after = spare(space.chain, count_after, owed_after)
    return all(now >= min(then, 0) for now, then in zip(after, before, strict=True))


def _count_without(space: Space, cells: Sequence[Cell]) -> list[int]:
    """Count free cells as if some were held. Of one with broken leaves, the free parts go."""
    count = space.count.copy()
    free: list[Cell] = []
    for cell in cells:
        if space.is_free(cell):
            free.append(cell)
        else:
            for part in space.parts_free(cell):
                count[part[0]] -= 1
    _take_out(space.chain, count, free, space.free_around)
    return count


def _whole_without(space: Space, cells: Sequence[Cell]) -> list[int]:
    """The same, as if nothing were broken."""
    count = space.whole.copy()
    _take_out(space.chain, count, cells, space.unheld_around)
    return count


def _take_out(
    chain: Chain, count: list[int], cells: Sequence[Cell], around: Callable[[Cell], Cell]
) -> None:
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(around(cell), []).append(cell)
    for whole, parts in groups.items():
        count[whole[0]] -= 1
        _split(chain, count, whole, parts)


def _split(chain: Chain, count: list[int], whole: Cell, parts: Sequence[Cell]) -> None:
    """Count what is left of a cell when parts of it are taken out."""
    if parts[0] == whole:
        return
    level = whole[0] - 1
    inside: dict[Cell, list[Cell]] = {}
    for part in parts:
        inside.setdefault(chain.above(part, level), []).append(part)
    count[level] += chain.fanout[whole[0]] - len(inside)
    for child, some in inside.items():
        _split(chain, count, child, some)
