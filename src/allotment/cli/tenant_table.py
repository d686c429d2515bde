"""`allot tenants` where shares are cells: a line for each type of cell a tenant has."""

from collections.abc import Iterable

from allotment.cli.table import Column
from allotment.cli.words import NOTHING_THERE, show_age
from allotment.service.cells_view import TenantCells
from allotment.service.views import TenantView

COLUMNS = (
    Column("TENANT"),
    Column("CELLS"),
    Column("OWED", right=True),
    Column("USED", right=True),
    Column("FREE", right=True),
    Column("LENT", right=True),
    Column("LOST", right=True),
    Column("BORROWED", rank=1, right=True),
    Column("RUNNING", rank=3, right=True),
    Column("WAITING", rank=2, right=True),
)


def rows(tenants: Iterable[TenantView]) -> list[tuple[str, ...]]:
    """Write every tenant: its jobs on its first line, its cells on one each."""
    found: list[tuple[str, ...]] = []
    for tenant in tenants:
        jobs = (str(tenant.running), str(tenant.waiting))
        lines = [_cells(cells) for cells in tenant.cells] or [(NOTHING_THERE,) * 7]
        for at, line in enumerate(lines):
            found.append(
                (tenant.name if not at else "", *line, *(jobs if not at else ("", "")))
            )
    return found


def _cells(cells: TenantCells) -> tuple[str, ...]:
    name = f"{cells.type} (pin {cells.pin})" if cells.pin else cells.type
    amounts = (cells.owed, cells.used, cells.free, cells.lent, cells.lost, cells.borrowed)
    return (name, *(f"{amount:,}" if amount else NOTHING_THERE for amount in amounts))


def notes(tenants: Iterable[TenantView], now: int) -> list[str]:
    """Say what of whose share cannot be had now, why, and since when."""
    found: list[str] = []
    for tenant in tenants:
        for cells in tenant.cells:
            if not cells.lost and not cells.broken:
                continue
            since = f" for {show_age(cells.since, now)}" if cells.since else ""
            down = f" (down{since}: {', '.join(cells.down)})" if cells.down else ""
            words: list[str] = []
            if cells.lost:
                words.append(f"{cells.lost:,} of {cells.owed:,} {cells.type} cannot be had now")
                if cells.lost_with:
                    words[-1] += f", or {', '.join(cells.lost_with)} cannot have its own"
            if cells.broken:
                words.append(f"{cells.broken:,} {cells.type} in use has hardware that is down")
            found.append(f"{tenant.name}: {'; '.join(words)}{down}")
    return found
