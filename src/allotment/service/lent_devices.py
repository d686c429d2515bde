"""Whose idle devices others use, where shares are cells: reckoned chain by chain.

What nobody owns of one type of device is no place for who borrows another.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from allotment.core.cells.account import accounts
from allotment.core.cells.book import Cells
from allotment.engine.state import State
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Resources


def with_devices_lent(state: State, lent: Mapping[str, Resources]) -> dict[str, Resources]:
    """Put in what is lent of devices where shares are cells; counted ones stay as they are."""
    cells = state.cluster.cells
    if cells is None:
        return {**lent}
    milli = _lent(state, cells)
    return {
        tenant: replace(part, gpu_milli=milli.get(tenant, 0)) for tenant, part in lent.items()
    }


def _lent(state: State, cells: Cells) -> dict[str, int]:
    """Give by tenant the thousandths of devices that are lent, at the least.

    Borrowers are taken to sit first on what nobody owns, then in the idle cells of tenants
    in the order of their names. O(placed tasks + tenants' cells).
    """
    left = [
        milli - DEVICE * unowned
        for milli, unowned in zip(_borrowed(state, cells), _unowned(cells), strict=True)
    ]
    lent: dict[str, int] = {}
    for account in sorted(accounts(cells), key=lambda account: account.tenant):
        chain = cells.chains[account.chain]
        if chain.has_devices:
            idle = account.free * chain.size[account.level] * DEVICE
            part = max(0, min(idle, left[account.chain]))
            left[account.chain] -= part
            lent[account.tenant] = lent.get(account.tenant, 0) + part
    return lent


def _borrowed(state: State, cells: Cells) -> list[int]:
    """Sum up by chain what is borrowed of its devices."""
    found = [0] * len(cells.chains)
    for gang in state.cluster.holders():
        if gang.entitlement is Entitlement.OPPORTUNISTIC and not gang.suspended:
            for spot in cells.leaves_of(gang.slots, gang.needs):
                found[spot.chain] += spot.mask.bit_count() * spot.milli
    return found


def _unowned(cells: Cells) -> list[int]:
    """Count by chain the leaves that no tenant is owed."""
    found = [chain.cells[0] for chain in cells.chains]
    for account in accounts(cells):
        found[account.chain] -= account.owed * cells.chains[account.chain].size[account.level]
    return [max(0, leaves) for leaves in found]
