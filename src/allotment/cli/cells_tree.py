"""The tree of cells as lines of text: all of a small cluster, the sum of a large one."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from allotment.cli.table import Column
from allotment.cli.words import NOTHING_THERE, show_age
from allotment.service.cells_view import CellOwner, CellState, CellTree, CellView

MOST_IN_FULL = 64
"""Nodes of a cluster that is shown node by node without being asked."""
MOST_NAMED = 4
WIDEST_MARKS = 16
INDENT = "  "
SEVERAL = "several"

TREE = (
    Column("CELL"),
    Column("STATE"),
    Column("LEAVES", flexible=True),
    Column("OWNER", flexible=True),
    Column("JOBS", flexible=True),
    Column("HEALTH"),
)
SUM = (
    Column("CELLS", right=True),
    Column("OF"),
    Column("OWNER", flexible=True),
    Column("USED", right=True),
    Column("LENT", right=True),
    Column("BOUND", right=True),
    Column("FREE", right=True),
    Column("BAD", right=True),
    Column("HEALTH"),
    Column("SUCH AS", rank=1, flexible=True),
)
LEGEND = "u used, l lent, o bound (its owner's, idle), . free, x out of use; * reserved"

Row = tuple[str, ...]


def nodes_in(tree: CellTree) -> int:
    """Count the nodes of a tree that was asked for down to nodes."""
    return sum(1 for root in tree.roots for cell in _all(root) if cell.node)


def _all(cell: CellView) -> Iterable[CellView]:
    yield cell
    for part in cell.cells:
        yield from _all(part)


# ── cell by cell ────────────────────────────────────────────────────────────────────────


def tree_rows(tree: CellTree, now: int) -> list[Row]:
    """Return a line for each cell; equal empty neighbours share one."""
    return list(_rows(tree.roots, Names(tree), now))


def _rows(
    cells: Sequence[CellView], names: "Names", now: int, above: str = ""
) -> Iterable[Row]:
    for run in _runs(cells):
        yield _row(run, names, now, above)
        yield from _rows(run[0].cells, names, now, f"{above}{INDENT}")


def _runs(cells: Sequence[CellView]) -> Iterable[list[CellView]]:
    """Part cells into runs that are equal and empty."""
    run: list[CellView] = []
    for cell in cells:
        if run and (_idle(cell) is None or _idle(cell) != _idle(run[-1])):
            yield run
            run = []
        run.append(cell)
    if run:
        yield run


def _idle(cell: CellView) -> object:
    """Return what two cells on one line have in common; None where one stands alone."""
    if cell.users or cell.used or cell.lent or cell.cells:
        return None
    return (cell.type, cell.state, cell.health, cell.marks, cell.owners, cell.leaves)


def _row(run: Sequence[CellView], names: "Names", now: int, above: str) -> Row:
    first, last = run[0], run[-1]
    name = above + names.of(first)
    if len(run) > 1:
        name += f" … {names.of(last)} ({len(run):,})"
    return (
        name,
        first.state.value,
        _leaves(first),
        _owner_words(first) or NOTHING_THERE,
        _jobs(first) or NOTHING_THERE,
        _health(first, now),
    )


class Names:
    """What cells are called where they stand: `rack r1`, `n3`, `switch 2`, `device 5`."""

    def __init__(self, tree: CellTree) -> None:
        machines = [cell for root in tree.roots for cell in _machines(root)]
        self._machines = {id(cell) for cell in machines}
        self._chains = Counter(cell.node for cell in machines)

    def of(self, cell: CellView) -> str:
        """Return the name of a cell: a node's own name, with the type where it has several."""
        if cell.device:
            return f"{cell.type} {cell.device}"
        kind = cell.type.rpartition("-")[2]
        if id(cell) not in self._machines:
            return f"{kind} {cell.name.rpartition('/')[2]}"
        if self._chains[cell.node] > 1:
            return f"{cell.type} {cell.node}"
        return cell.node if kind.casefold() == "node" else f"{kind} {cell.node}"


def _machines(cell: CellView) -> Iterable[CellView]:
    """Return cells that are whole machines, as far as their chain goes: a root, or in one."""
    if cell.node:
        yield cell
        return
    for part in cell.cells:
        yield from _machines(part)


def _leaves(cell: CellView) -> str:
    if cell.marks and len(cell.marks) <= WIDEST_MARKS:
        return cell.marks
    counts = (
        (cell.used, "used"), (cell.lent, "lent"), (cell.bound, "bound"), (cell.free, "free"),
        (cell.bad, "out"),
    )  # fmt: skip
    there = [f"{number:,} {word}" for number, word in counts if number]
    if len(there) == 1:
        return f"all {there[0]}"
    return ", ".join(there)


def _owner_words(cell: CellView) -> str:
    words = [_owner(owner, cell) for owner in cell.owners]
    return _some(list(dict.fromkeys(words)))


def _owner(owner: CellOwner, cell: CellView) -> str:
    """Name an owner, and what it is in if that is not this very cell."""
    if owner.pin:
        return f"{owner.tenant} ({owner.pin})"
    if owner.type == cell.type:
        return owner.tenant
    return f"{owner.tenant} ({owner.type.rpartition('-')[2]})"


def _jobs(cell: CellView) -> str:
    words = [f"{user.job}{'*' if user.reserved else ''}" for user in cell.users]
    return _some(list(dict.fromkeys(words)))


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} +{more}" if more > 0 else shown


def _health(cell: CellView, now: int) -> str:
    if cell.health == "healthy":
        return "ok"
    return f"{cell.health} {show_age(cell.since, now)}" if cell.since else cell.health


# ── in sum ──────────────────────────────────────────────────────────────────────────────


class Kind(msgspec.Struct, frozen=True):
    """What cells of one line of the sum have in common."""

    type: str
    state: CellState
    owner: str
    health: str


def sum_rows(tree: CellTree) -> list[Row]:
    """Return a line for all roots of one type with the same owner, state and health."""
    kinds: dict[Kind, list[CellView]] = {}
    for root in tree.roots:
        tenants = list(dict.fromkeys(owner.tenant for owner in root.owners))
        owner = SEVERAL if len(tenants) > 1 else "".join(tenants)
        kinds.setdefault(Kind(root.type, root.state, owner, root.health), []).append(root)
    rows: list[Row] = []
    for kind, cells in sorted(kinds.items(), key=lambda item: (item[0].type, -len(item[1]))):
        sums = (
            sum(cell.used for cell in cells), sum(cell.lent for cell in cells),
            sum(cell.bound for cell in cells), sum(cell.free for cell in cells),
            sum(cell.bad for cell in cells),
        )  # fmt: skip
        rows.append(
            (
                f"{len(cells):,}",
                kind.type,
                kind.owner or NOTHING_THERE,
                *(f"{number:,}" if number else NOTHING_THERE for number in sums),
                "ok" if kind.health == "healthy" else kind.health,
                ", ".join(cell.name for cell in cells[:2]),
            )
        )
    return rows
