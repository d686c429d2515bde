"""What tenants are guaranteed and cannot have, because hardware is broken or closed.

Two things are lost to a tenant. Cells it holds may have broken leaves: these are named.
And cells it may still bind can be more than healthy hardware has left: more than that which
is free would give it even if it were alone, or more than it gives to all tenants together
with guaranteed ones. Larger cells are dealt first, as no tenant may split one that is
guaranteed to another; which of those with alike cells goes short is not decided before they
ask. Borrowers are in no tenant's way.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Chain, bits
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import Space, spare
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant

Since = Mapping[tuple[NodeId, int], Instant]
"""Since when devices are broken, and nodes, at -1, closed."""


class Broken(msgspec.Struct, frozen=True):
    """A cell that a tenant holds, and what of it does not work."""

    cell: str
    """Its way from the root: `r1/2/0`."""
    node: NodeId
    """The first node of it with broken leaves."""
    leaves: int
    """How many are broken, of all its nodes."""
    since: Instant
    """Since when the first of them is; 0 if that is not known."""


class Loss(msgspec.Struct, frozen=True):
    """What one tenant has lost of the cells of one type."""

    tenant: str
    pin: str
    """The pinned cell it is about; empty for cells that are bound as they are needed."""
    chain: str
    """The top type of the hardware."""
    type: str
    broken: tuple[Broken, ...]
    missing: int
    """Cells still guaranteed that it could not get even if no other tenant asked."""
    shared: int
    """Cells of this type that all tenants with guaranteed ones lack, this one among them."""
    since: Instant
    """Since when hardware is broken without which this would not be; 0 if not known."""

    @property
    def count(self) -> int:
        """Return how many cells it does not have whole: broken ones and missing ones."""
        return len(self.broken) + self.missing


def losses(cells: Cells, since: Since | None) -> tuple[Loss, ...]:
    """Return what every tenant has lost, in the order of tenants, chains and levels.

    O(cells that are held) where anything is shut; nothing to do where nothing is. To say
    since when takes O(nodes) for each of some moments; without `since` it is not said.
    """
    found: list[Loss] = []
    times = {
        at: _Times(space, since)
        for at, space in enumerate(cells.spaces)
        if since is not None and space.broken
    }
    for (tenant, pin), holdings in cells.holdings.items():
        for at, holding in holdings.items():
            if cells.spaces[at].broken:
                found += [
                    msgspec.structs.replace(loss, tenant=tenant, pin=pin)
                    for loss in _of_holding(holding, since or {}, times.get(at))
                ]
    return tuple(found)


def _of_holding(holding: Holding, since: Since, times: "_Times | None") -> Iterator[Loss]:
    chain, space = holding.chain, holding.space
    broken = _broken_in(space, holding, since)
    alone = lacking(chain, space.count, _guaranteed(chain, holding.unbound))
    together = lacking(chain, space.count, [max(0, cells) for cells in space.unbound])
    for level in range(chain.top, -1, -1):
        mine = tuple(broken.get(level, ()))
        asks = holding.unbound.get(level, 0) > 0
        missing, shared = alone[level], together[level] if asks else 0
        if not (mine or missing or shared):
            continue
        moments = [each.since for each in mine]
        if times is not None and (missing or shared):
            guaranteed = holding.unbound if missing else dict(enumerate(space.unbound))
            moments.append(times.short(_guaranteed(chain, guaranteed), level))
        yield Loss(
            "", "", chain.names[-1], chain.names[level], mine, missing, shared,
            min((moment for moment in moments if moment), default=Instant(0)),
        )  # fmt: skip


def _guaranteed(chain: Chain, unbound: Mapping[int, int]) -> list[int]:
    return [max(0, unbound.get(level, 0)) for level in range(chain.top + 1)]


def lacking(chain: Chain, free: Sequence[int], guaranteed: Sequence[int]) -> list[int]:
    """Deal cells out from the top; return, by level, how many are not there."""
    return [max(0, -left) for left in spare(chain, free, guaranteed)]


# ── what is held ────────────────────────────────────────────────────────────────────────


def _broken_in(space: Space, holding: Holding, since: Since) -> dict[int, list[Broken]]:
    """Find the cells of a tenant that have broken leaves, by level."""
    found: dict[int, list[Broken]] = {}
    for cell in sorted(holding.bound):
        nodes = [n for n in space.chain.nodes_of(cell) if _shut_in(space, cell, n)]
        if nodes:
            found.setdefault(cell[0], []).append(_broken(space, cell, nodes, since))
    return found


def _shut_in(space: Space, cell: Cell, node: int) -> int:
    return space.shut[node] & space.chain.mask_of(cell)


def _broken(space: Space, cell: Cell, nodes: list[int], since: Since) -> Broken:
    chain = space.chain
    shut = {node: _shut_in(space, cell, node) for node in nodes}
    moments = [_since(chain, node, leaf, since) for node in nodes for leaf in bits(shut[node])]
    return Broken(
        chain.name_of(cell),
        chain.nodes[nodes[0]],
        sum(mask.bit_count() for mask in shut.values()),
        min((moment for moment in moments if moment), default=Instant(0)),
    )


def _since(chain: Chain, node: int, leaf: int, since: Since) -> Instant:
    """Return since when a leaf does not work: by itself, or because its node is closed."""
    name, devices = chain.nodes[node], chain.devices[node]
    moments = [since.get((name, -1), 0)]
    if devices:
        moments.append(since.get((name, devices[leaf]), 0))
    return Instant(min((moment for moment in moments if moment), default=0))


# ── what is guaranteed ──────────────────────────────────────────────────────────────────


class _Times:
    """Free cells of a chain as they would be had less broken: what broke first, first."""

    def __init__(self, space: Space, since: Since) -> None:
        self._space = space
        chain = space.chain
        self._leaves = [
            (_since(chain, node, leaf, since), node, leaf)
            for node, shut in space.broken.items()
            for leaf in bits(shut & ~space.held[node])
        ]
        self._moments = sorted({moment for moment, _, _ in self._leaves})
        self._free: dict[Instant, list[int]] = {}

    def short(self, guaranteed: Sequence[int], level: int) -> Instant:
        """Return since when hardware is broken without which a level would not be short.

        Of all moments the first is meant at which what was broken by then, with what is
        held now, makes it short.
        """

        def is_short(moment: Instant) -> bool:
            return lacking(self._space.chain, self._free_at(moment), guaranteed)[level] > 0

        at = bisect_left(self._moments, True, key=is_short)
        return self._moments[at] if at < len(self._moments) else Instant(0)

    def _free_at(self, moment: Instant) -> list[int]:
        if moment not in self._free:
            shut: dict[int, int] = {}
            for then, node, leaf in self._leaves:
                if then <= moment:
                    shut[node] = shut.get(node, 0) | 1 << leaf
            self._free[moment] = free_if(self._space, shut)
        return self._free[moment]


def free_if(space: Space, shut: Mapping[int, int]) -> list[int]:
    """Count free cells, by level, as if just these leaves were shut. O(nodes)."""
    chain = space.chain
    count = [0] * (chain.top + 1)

    def free(cell: Cell) -> bool:
        mask = chain.mask_of(cell)
        return not any(
            (space.held[node] | shut.get(node, 0)) & mask for node in chain.nodes_of(cell)
        )

    def enter(cell: Cell) -> None:
        if free(cell):
            count[cell[0]] += 1
        elif cell[0]:
            for child in chain.children(cell):
                enter((cell[0] - 1, child))

    for number in range(chain.cells[chain.top]):
        enter((chain.top, number))
    return count
