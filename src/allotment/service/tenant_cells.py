"""What each tenant has in cells, by type: for `allot tenants` and the API."""

from allotment.core.cells.account import accounts
from allotment.core.cells.book import Cells
from allotment.engine.state import State
from allotment.model.health import WHOLE
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.service.cells_view import TenantCells

MOST_NAMED = 8
"""Pieces of hardware that are named; of others it is said how many there are."""


def tenant_cells(state: State) -> dict[str, tuple[TenantCells, ...]]:
    """Give every tenant's cells; nothing where shares are counted. O(nodes + placed tasks)."""
    cells = state.cluster.cells
    if cells is None:
        return {}
    found: dict[str, list[TenantCells]] = {t.name: [] for t in state.config.tenants}
    borrowed = _borrowed(state, cells)
    down = [_down(state, cells, at) for at in range(len(cells.chains))]
    for account in accounts(cells):
        chain = cells.chains[account.chain]
        what, since = down[account.chain] if account.lost or account.broken else ((), 0)
        key = (account.tenant, account.chain)
        row = TenantCells(
            type=chain.names[account.level],
            chain=chain.names[-1],
            pin=account.pin,
            owed=account.owed,
            used=account.used,
            broken=account.broken,
            free=account.free,
            lent=account.lent,
            borrowed=0 if account.level or account.pin else borrowed.pop(key, 0),
            lost=account.lost,
            lost_with=account.lost_with,
            down=what,
            since=since,
        )
        if row.owed or row.borrowed:
            found[account.tenant].append(row)
    for (tenant, at), leaves in sorted(borrowed.items()):
        chain = cells.chains[at]
        if tenant in found:
            row = TenantCells(chain.names[0], chain.names[-1], borrowed=leaves)
            found[tenant].append(row)
    return {tenant: tuple(rows) for tenant, rows in found.items()}


def _borrowed(state: State, cells: Cells) -> dict[tuple[str, int], int]:
    """Count the leaves that each tenant's jobs borrow, by chain; a shared one for each job."""
    found: dict[tuple[str, int], int] = {}
    for gang in state.cluster.holders():
        if gang.entitlement is not Entitlement.OPPORTUNISTIC or gang.suspended:
            continue
        for slot in gang.slots:
            for at, number in cells.at(slot.node):
                leaf = cells.chains[at].leaf[number]
                if here := sum(1 for device in slot.devices if device in leaf):
                    found[gang.tenant, at] = found.get((gang.tenant, at), 0) + here
    return found


def _down(state: State, cells: Cells, at: int) -> tuple[tuple[str, ...], int]:
    """Name what of a chain takes no new work, and say since when the first is so."""
    chain, space = cells.chains[at], cells.spaces[at]
    names: list[str] = []
    since: list[int] = []
    for number, shut in sorted(space.broken.items()):
        node = chain.nodes[number]
        name = state.cluster.nodes[node].name
        if shut == chain.full:
            names.append(name)
        else:
            names += [f"{name}:{device}" for device in chain.devices_at(number, shut)]
        since += _since(state, node)
    if len(names) > MOST_NAMED:
        names[MOST_NAMED:] = [f"{len(names) - MOST_NAMED} more"]
    return tuple(names), min(since, default=0)


def _since(state: State, node: NodeId) -> list[int]:
    device_count = len(state.cluster.nodes[node].devices)
    found = [
        state.health[node, part].changed_at
        for part in (WHOLE, *range(device_count))
        if (node, part) in state.health
    ]
    return [*found, state.shut_since[node]] if node in state.shut_since else [*found]
