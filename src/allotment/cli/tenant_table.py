"""`allot tenants` where shares are cells: a line for each type of cell a tenant has."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from allotment.cli.table import Column
from allotment.cli.words import NOTHING_THERE, show_age
from allotment.service.cells_view import DownPart, TenantCells
from allotment.service.views import TenantView

MOST_NAMED = 8
"""Pieces of hardware that are named; of others it is said how many there are."""

COLUMNS = (
    Column("TENANT"),
    Column("CELLS"),
    Column("GUARANTEED", right=True),
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
    tenants = list(tenants)
    names = _names(tenants)
    for tenant in tenants:
        jobs = (str(tenant.running), str(tenant.waiting))
        lines = [_cells(cells, names) for cells in tenant.cells] or [(NOTHING_THERE,) * 7]
        for at, line in enumerate(lines):
            found.append(
                (tenant.name if not at else "", *line, *(jobs if not at else ("", "")))
            )
    return found


Names = Mapping[tuple[str, str], str]
"""What types of cells are called, by type and chain."""


def _names(tenants: Iterable[TenantView]) -> Names:
    """Name cells by their type; with their chain where several of those shown have it."""
    shown = {(cells.type, cells.chain) for tenant in tenants for cells in tenant.cells}
    chains = Counter(kind for kind, _ in shown)
    return {
        (kind, chain): kind if chains[kind] == 1 or kind == chain else f"{kind} of {chain}"
        for kind, chain in shown
    }


def _cells(cells: TenantCells, names: Names) -> tuple[str, ...]:
    name = _called(cells, names)
    lost = cells.lost + cells.broken
    amounts = (cells.guaranteed, cells.used, cells.free, cells.lent, lost, cells.borrowed)
    return (name, *(f"{amount:,}" if amount else NOTHING_THERE for amount in amounts))


def _called(cells: TenantCells, names: Names) -> str:
    name = names[cells.type, cells.chain]
    return f"{name} (pin {cells.pin})" if cells.pin else name


def notes(tenants: Iterable[TenantView], now: int) -> list[str]:
    """Return which guarantees are not available now, why, and since when."""
    found: list[str] = []
    tenants = list(tenants)
    names = _names(tenants)
    for tenant in tenants:
        for cells in tenant.cells:
            kind = _called(cells, names)
            if not cells.lost and not cells.broken:
                continue
            words: list[str] = []
            if cells.lost:
                words.append(
                    f"{cells.lost:,} of {cells.guaranteed:,} {kind} are not available now"
                )
                if cells.lost_with:
                    words[-1] += f", or {', '.join(cells.lost_with)} cannot have its own"
                words[-1] += _down(cells.down, now)
            if cells.broken:
                have = "has" if cells.broken == 1 else "have"
                words.append(
                    f"{cells.broken:,} {kind} in use {have} hardware that is down"
                    f"{_down(cells.hurt, now)}"
                )
            found.append(f"{tenant.name}: {'; '.join(words)}")
    return found


def _down(parts: Sequence[DownPart], now: int) -> str:
    """Write what is down, and how long each: ` (n1, n2 for 3h, n3:5 for 26s)`."""
    if not parts:
        return ""
    ages: dict[str, list[str]] = {}
    for part in parts[:MOST_NAMED]:
        ages.setdefault(show_age(part.since, now) if part.since else "", []).append(part.name)
    told = [", ".join(names) + (f" for {age}" if age else "") for age, names in ages.items()]
    if len(parts) > MOST_NAMED:
        told.append(f"{len(parts) - MOST_NAMED:,} more")
    return f" ({', '.join(told)})"
