"""What each tenant has in cells, by type: for `allot tenants` and the API."""

from collections.abc import Sequence

from allotment.core.cells.book import Cells
from allotment.core.cells.space import Space
from allotment.engine.state import State
from allotment.explain.cell_accounts import Account, accounts
from allotment.model.health import WHOLE
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.service.cells_view import DownPart, TenantCells


def tenant_cells(state: State) -> dict[str, tuple[TenantCells, ...]]:
    """Return each tenant's cells; nothing where shares are counted. O(nodes + placed tasks)."""
    cells = state.cluster.cells
    if cells is None:
        return {}
    found: dict[str, list[TenantCells]] = {t.name: [] for t in state.config.tenants}
    borrowed = _borrowed(state, cells)
    down = [_unheld(state, space) for space in cells.spaces]
    for account in accounts(cells):
        chain = cells.chains[account.chain]
        key = (account.tenant, account.chain)
        row = TenantCells(
            type=chain.names[account.level],
            chain=chain.names[-1],
            pin=account.pin,
            guaranteed=account.guaranteed,
            used=account.used,
            broken=account.broken,
            free=account.free,
            lent=account.lent,
            borrowed=0 if account.level or account.pin else borrowed.pop(key, 0),
            lost=account.lost,
            lost_with=account.lost_with,
            hurt=_hurt(state, cells, account) if account.broken else (),
            down=_down(state, cells, account, down) if account.lost else (),
        )
        if row.guaranteed or row.borrowed:
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
    seen: dict[tuple[JobId, int, int], int] = {}
    for gang in state.cluster.holders():
        if gang.entitlement is not Entitlement.OPPORTUNISTIC or gang.suspended:
            continue
        for spot in cells.leaves_of(gang.slots, gang.needs):
            at, place = spot.chain, (gang.id, spot.chain, spot.node)
            known = seen.get(place, 0)
            seen[place] = known | spot.mask
            here = (spot.mask & ~known).bit_count()
            if not cells.chains[at].has_devices:
                here = spot.claim
            if here:
                found[gang.tenant, at] = found.get((gang.tenant, at), 0) + here
    return found


def _down(
    state: State, cells: Cells, account: Account, unheld: Sequence[tuple[DownPart, ...]]
) -> tuple[DownPart, ...]:
    """Name what may be why cells are lost: of a pinned one, which is held, its own parts."""
    return _hurt(state, cells, account) if account.pin else unheld[account.chain]


def _unheld(state: State, space: Space) -> tuple[DownPart, ...]:
    """Name what of a chain takes no new work and lies in no tenant's cell."""
    leaves = {node: shut & ~space.held[node] for node, shut in space.broken.items()}
    return _parts(state, space, leaves)


def _hurt(state: State, cells: Cells, account: Account) -> tuple[DownPart, ...]:
    """Name what of the cells that a tenant's jobs sit in, or that are pinned, is down."""
    holding = cells.holdings[account.tenant, account.pin][account.chain]
    space, leaves = holding.space, dict[int, int]()
    for cell in holding.bound:
        if cell[0] == account.level:
            mask = space.chain.mask_of(cell)
            for node in space.chain.nodes_of(cell):
                leaves[node] = leaves.get(node, 0) | (space.shut[node] & mask)
    return _parts(state, space, leaves)


def _parts(state: State, space: Space, leaves: dict[int, int]) -> tuple[DownPart, ...]:
    """Name leaves by their nodes: the whole node where all of it is down."""
    chain = space.chain
    found: list[DownPart] = []
    for number, mask in sorted(leaves.items()):
        if not mask:
            continue
        node = chain.nodes[number]
        name = state.cluster.nodes[node].name
        if space.shut[number] == chain.full:
            found.append(DownPart(name, _since(state, node, *chain.devices[number])))
            continue
        found += [
            DownPart(f"{name}:{device}", _since(state, node, device))
            for device in chain.devices_at(number, mask)
        ]
    return tuple(found)


def _since(state: State, node: NodeId, *devices: int) -> int:
    """Return since when a node is down, or one of these devices, whichever was first."""
    found = [
        state.health[node, part].changed_at
        for part in (WHOLE, *devices)
        if (node, part) in state.health
    ]
    found += [state.shut_since[node]] if node in state.shut_since else []
    return min(found, default=0)
