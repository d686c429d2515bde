"""What each tenant has of each type of cell: guaranteed, used, available, lent and lost.

For people: no decision reads it.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Chain, bits
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import COSTLY, Space, spare


class Account(msgspec.Struct, frozen=True):
    """One tenant's cells of one level of a chain. guaranteed = used + free + lost."""

    tenant: str
    pin: str
    """The pinned cell this is about; '' for all others of the type."""
    chain: int
    level: int
    guaranteed: int
    used: int
    """Cells its jobs sit in, or have a place reserved in."""
    broken: int
    """Those of them of which a part takes no new work."""
    free: int
    """Cells it is sure to get at once, whatever others do; by eviction of borrowers."""
    lent: int
    """Those of them that borrowers sit in, at the least; named by the order of tenants.

    Of a pinned cell it is known for certain: it is always the same."""
    lost: int
    """Cells it may not get whole while hardware is down."""
    lost_with: tuple[str, ...] = ()
    """Other tenants with a guarantee of the same cells: the last to ask goes without."""


def accounts(cells: Cells) -> list[Account]:
    """Return each tenant's cells, in the order of tenants, chains and levels, largest first."""
    short = [shortage(space) for space in cells.spaces]
    lent = [
        _lacking(space, short[at], _quiet(cells, at)) for at, space in enumerate(cells.spaces)
    ]
    found: list[Account] = []
    for (tenant, pin), holdings in cells.holdings.items():
        for at, holding in sorted(holdings.items()):
            levels = holding.guaranteed if holding.pinned is None else (holding.pinned[0],)
            for level in sorted(levels, reverse=True):
                account = _account(tenant, pin, at, level, holding, short[at][level])
                if pin == "":
                    others = _rivals(cells, account, short[at][level])
                    part = min(account.free, lent[at][level])
                    lent[at][level] -= part
                    account = msgspec.structs.replace(account, lent=part, lost_with=others)
                found.append(account)
    return found


def account_of(cells: Cells, tenant: str, pin: str, chain: int, level: int) -> Account:
    """Return one account; of what is not pinned without borrowers: `lent` is 0.

    O(levels + cells it holds).
    """
    holding = cells.holdings[tenant, pin][chain]
    short = shortage(cells.spaces[chain])[level]
    account = _account(tenant, pin, chain, level, holding, short)
    if pin:
        return account
    return msgspec.structs.replace(account, lost_with=_rivals(cells, account, short))


def lost_counts(cells: Cells) -> dict[tuple[str, str], int]:
    """Count, by tenant and type, the cells that are lost for sure; fast, for figures.

    Those are held ones with broken leaves, and guaranteed ones that it could not get even if
    no other tenant asked. Borrowers are in no tenant's way.
    """
    found: dict[tuple[str, str], int] = {}
    for (tenant, _), holdings in cells.holdings.items():
        for holding in holdings.values():
            chain, space = holding.chain, holding.space
            if not space.broken:
                continue
            unbound = [max(0, holding.unbound.get(at, 0)) for at in range(chain.top + 1)]
            lost = lacking(chain, space.count, unbound)
            for cell in holding.bound:
                lost[cell[0]] += is_hurt(space, cell)
            for level, count in enumerate(lost):
                if count:
                    key = (tenant, chain.names[level])
                    found[key] = found.get(key, 0) + count
    return found


def lacking(chain: Chain, free: Sequence[int], guaranteed: Sequence[int]) -> list[int]:
    """Deal cells out from the top; return, by level, how many are not there.

    Larger cells come first, as no tenant may split one that is guaranteed to another.
    """
    return [max(0, -left) for left in spare(chain, free, guaranteed)]


def shortage(space: Space) -> list[int]:
    """Return, by level, how many guaranteed cells are not available while hardware is down."""
    return lacking(space.chain, space.count, space.unbound)


def _account(
    tenant: str, pin: str, chain: int, level: int, holding: Holding, short: int
) -> Account:
    mine = [cell for cell in holding.bound if cell[0] == level]
    broken = sum(1 for cell in mine if is_hurt(holding.space, cell))
    if holding.pinned is not None:
        used = 1 if holding.bound[holding.pinned] else 0
        lost = 1 if broken and not used else 0
        free = 1 - used - lost
        lent = min(free, _lent_in(holding.space, holding.pinned))
        return Account(tenant, pin, chain, level, 1, used, min(used, broken), free, lent, lost)
    unbound = max(0, holding.unbound[level])
    lost = min(unbound, short)
    guaranteed = max(holding.guaranteed[level], len(mine))
    return Account(
        tenant, pin, chain, level, guaranteed, len(mine), broken, unbound - lost, 0, lost
    )


def is_hurt(space: Space, cell: Cell) -> bool:
    """Whether a part of a cell takes no new work."""
    if not space.broken:
        return False
    mask = space.chain.mask_of(cell)
    return any(space.shut[node] & mask for node in space.chain.nodes_of(cell))


def _rivals(cells: Cells, account: Account, short: int) -> tuple[str, ...]:
    """Name the tenants that may lose in a tenant's place; none when all of them lose all."""
    at, level = account.chain, account.level
    if not account.lost or short >= cells.spaces[at].unbound[level]:
        return ()
    return tuple(
        name
        for (name, pin), holdings in cells.holdings.items()
        if name != account.tenant
        and not pin
        and at in holdings
        and holdings[at].unbound.get(level, 0) > 0
    )


# ── borrowers ───────────────────────────────────────────────────────────────────────────


def _lacking(space: Space, short: list[int], quiet: list[int]) -> list[int]:
    """Return, by level, how many guaranteed cells are not available without evictions."""
    left = spare(space.chain, quiet, space.unbound)
    return [max(0, -here) - gone for here, gone in zip(left, short, strict=True)]


def _quiet(cells: Cells, at: int) -> list[int]:
    """Count, by level, the largest free cells that no borrower sits in."""
    space = cells.spaces[at]
    if not space.chain.has_devices:
        return _quiet_hosts(cells, at)
    count = space.count.copy()
    lowest = next((level for level, cells in enumerate(space.unbound) if cells), len(count))
    for level, buckets in enumerate(space.buckets()):
        for cost, numbers in buckets.items():
            if cost:
                count[level] -= len(numbers)
                for number in numbers:
                    lent = _lent_in(space, (level, number))
                    _count_parts(space, (level, number), lent, lowest, count)
    return count


def _quiet_hosts(cells: Cells, at: int) -> list[int]:
    """Count them where leaves are parts of hosts, of which any serve a borrower: the last."""
    space, chain = cells.spaces[at], cells.chains[at]
    lent: dict[int, int] = {}
    for node, leaves in cells.uses[at].hosted.items():
        free = chain.full & ~space.held[node] & ~space.shut[node]
        lent[node] = sum(1 << place for place in [*bits(free)][::-1][:leaves])
    count = space.count.copy()

    def part(cell: Cell) -> None:
        """Count the quiet parts of a cell that is no whole any more."""
        mask = chain.mask_of(cell)
        if not any(lent.get(node, 0) & mask for node in chain.nodes_of(cell)):
            count[cell[0]] += 1
        elif cell[0]:
            for child in chain.children(cell):
                part((cell[0] - 1, child))

    for level, buckets in enumerate(space.buckets()):
        for number in (number for numbers in buckets.values() for number in numbers):
            count[level] -= 1
            part((level, number))
    return count


def _lent_in(space: Space, cell: Cell) -> int:
    """Count the leaves of a cell whose user may be sent away."""
    return space.cost_of(cell) % COSTLY


def _count_parts(space: Space, cell: Cell, lent: int, lowest: int, count: list[int]) -> None:
    """Count the largest unused parts of a cell, down to some level."""
    level = cell[0]
    if level <= lowest or lent == space.chain.size[level]:
        return
    for child in space.chain.children(cell):
        part = (level - 1, child)
        here = _lent_in(space, part)
        if here:
            _count_parts(space, part, here, lowest, count)
        else:
            count[level - 1] += 1
