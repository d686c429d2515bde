"""Whose idle devices others use, where shares are cells: reckoned chain by chain.

Devices of one type that no tenant owns are no place for a borrower of another type.
"""

from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from allotment.core.cells.book import Cells
from allotment.engine.state import State
from allotment.explain.cell_accounts import accounts
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Resources


def with_devices_lent(state: State, lent: Mapping[str, Resources]) -> dict[str, Resources]:
    """Add what is lent of devices where shares are cells; change nothing elsewhere."""
    cells = state.cluster.cells
    if cells is None:
        return {**lent}
    milli = _lent(state, cells)
    return {
        tenant: replace(part, gpu_milli=milli.get(tenant, 0)) for tenant, part in lent.items()
    }


def _lent(state: State, cells: Cells) -> dict[str, int]:
    """Return by tenant the thousandths of devices that are lent to others, at the least.

    Borrowers are taken to sit first in what is idle of their own tenant's cells, then on
    what no tenant owns, then in the idle cells of tenants in the order of their names.
    O(placed tasks + tenants' cells).
    """
    idle, borrowed = _idle(cells), _borrowed(state, cells)
    left = [-DEVICE * unowned for unowned in _unowned(cells)]
    for (tenant, chain), milli in borrowed.items():
        left[chain] += max(0, milli - idle.get((tenant, chain), 0))
    lent: dict[str, int] = {}
    for (tenant, chain), milli in sorted(idle.items()):
        part = max(0, min(milli - borrowed.get((tenant, chain), 0), left[chain]))
        left[chain] -= part
        lent[tenant] = lent.get(tenant, 0) + part
    return lent


def _idle(cells: Cells) -> dict[tuple[str, int], int]:
    """Sum up by tenant and chain the devices in its idle cells, in thousandths."""
    found: defaultdict[tuple[str, int], int] = defaultdict(int)
    for account in accounts(cells):
        chain = cells.chains[account.chain]
        if chain.has_devices:
            leaves = account.free * chain.size[account.level]
            found[account.tenant, account.chain] += leaves * DEVICE
    return found


def _borrowed(state: State, cells: Cells) -> dict[tuple[str, int], int]:
    """Sum up by tenant and chain what is borrowed of its devices."""
    found: defaultdict[tuple[str, int], int] = defaultdict(int)
    for gang in state.cluster.holders():
        if gang.entitlement is Entitlement.OPPORTUNISTIC and not gang.suspended:
            for spot in cells.leaves_of(gang.slots, gang.needs):
                found[gang.tenant, spot.chain] += spot.mask.bit_count() * spot.milli
    return found


def _unowned(cells: Cells) -> list[int]:
    """Count by chain the leaves that are in no guarantee."""
    found = [chain.cells[0] for chain in cells.chains]
    for account in accounts(cells):
        found[account.chain] -= (
            account.guaranteed * cells.chains[account.chain].size[account.level]
        )
    return [max(0, leaves) for leaves in found]
