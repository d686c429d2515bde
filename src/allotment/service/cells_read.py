"""The tree of cells, made from the state. O(nodes · levels asked for + placed tasks)."""

from functools import lru_cache

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import NODE, Cell, Chain, bits
from allotment.core.cells.space import Space
from allotment.core.gang import Gang, ReservedPlace
from allotment.engine.state import State
from allotment.model.cluster import NodeState
from allotment.model.errors import Code, Rejected
from allotment.model.health import WHOLE
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.service.cells_hosts import HostUse
from allotment.service.cells_view import CellOwner, CellState, CellTree, CellUser, CellView

WORST = ("lost", "bad", "drained", "suspect", "healthy")
MOST_CELLS = 10_000
"""Cells in one answer, at the lowest level."""
LEAF = "leaf"
"""The word for the lowest level, whatever its type."""

_Owner = tuple[int, str, str, str]
"""Leaves of a node, whose, by which type of cell, by which pin."""
_User = tuple[int, JobId, str, bool, bool]
"""Leaves of a node, their job and its tenant, whether borrowed, whether only reserved."""
_Ills = dict[NodeId, dict[int, tuple[str, int]]]
"""What is wrong with parts of nodes, and since when."""


def cell_tree(state: State, level: str = "", under: str = "") -> CellTree:
    """Return all cells down to a level: a type, `node`, `leaf` or the last part of a type.

    With `under`, only the root or the machine of that name; without `level` down to nodes,
    and to leaves for a machine. Raises Rejected.
    """
    cells = state.cluster.cells
    if cells is None:
        return CellTree((), (), ())
    if not level:
        above = (c.roots for c in cells.chains if c.top > c.node_level)
        level = LEAF if under and not any(under in roots for roots in above) else NODE
    levels = [0 if level == LEAF else chain.level_of(level) for chain in cells.chains]
    if all(found is None for found in levels):
        raise _no_level(cells, level)
    ills = _ills(state)
    roots: list[CellView] = []
    wanted = 0
    for at, found in enumerate(levels):
        chain = cells.chains[at]
        lowest = chain.top if found is None else found
        tops = _tops(state, chain, under)
        wanted += sum(chain.size[cell[0]] for cell in tops) // chain.size[lowest]
        if wanted > MOST_CELLS:
            raise Rejected(
                Code.BAD_REQUEST,
                f"That is {wanted:,} cells and more; at most {MOST_CELLS:,} at a time.",
                "Ask for a higher level, or for those under one root or node.",
            )
        if tops:
            reader = _ChainReader(state, cells, at, lowest, ills)
            roots += [reader.view(cell, chain.name_of(cell)) for cell in tops]
    if under and not roots:
        raise Rejected(
            Code.NOT_FOUND,
            f"There is no root and no node {under!r} among the cells.",
            "See `allot cells` for their names.",
        )
    return CellTree(
        tuple(chain.names for chain in cells.chains),
        tuple(tenant.name for tenant in state.config.tenants),
        tuple(roots),
    )


def _tops(state: State, chain: Chain, under: str) -> list[Cell]:
    """Return the cells to begin with: all roots, or the one root or machine of a name."""
    if not under:
        return [(chain.top, number) for number in range(chain.cells[chain.top])]
    if under in chain.roots:
        return [(chain.top, chain.roots.index(under))]
    names = state.cluster.nodes
    return [
        (chain.node_level, number)
        for number, node in enumerate(chain.nodes)
        if names[node].name == under
    ]


def _no_level(cells: Cells, level: str) -> Rejected:
    names = dict.fromkeys(name for chain in cells.chains for name in chain.names)
    return Rejected(
        Code.BAD_REQUEST,
        f"There is no level {level!r} of cells.",
        f"Levels: {LEAF}, node, {', '.join(names)}.",
    )


def _ills(state: State) -> _Ills:
    found: _Ills = {}
    for node, (how, _) in state.nodes.items():
        if how is not NodeState.READY:
            found.setdefault(node, {})[WHOLE] = (how.value, state.shut_since.get(node, 0))
    for (node, part), condition in state.health.items():
        ill = found.setdefault(node, {})
        if part not in ill:
            ill[part] = (condition.health.value, condition.changed_at)
    return found


class _ChainReader:
    """Makes the views of one chain."""

    def __init__(self, state: State, cells: Cells, at: int, lowest: int, ills: _Ills) -> None:
        self.state, self.cells, self.at, self.lowest = state, cells, at, lowest
        self.chain: Chain = cells.chains[at]
        self.space: Space = cells.spaces[at]
        self.ills = ills
        self.owners: list[list[_Owner]] = [[] for _ in self.chain.nodes]
        self.users: list[list[_User]] = [[] for _ in self.chain.nodes]
        self.hosts = HostUse(cells, at)
        self._read_owners()
        self._read_users()

    def _read_owners(self) -> None:
        chain = self.chain
        for (tenant, pin), holdings in self.cells.holdings.items():
            holding = holdings.get(self.at)
            for cell in holding.bound if holding is not None else ():
                kind = chain.names[cell[0]]
                mask = chain.mask_of(cell)
                for node in chain.nodes_of(cell):
                    self.owners[node].append((mask, tenant, kind, pin))

    def _read_users(self) -> None:
        cluster = self.state.cluster
        gangs = sorted(
            (gang for gang in cluster.holders() if not gang.suspended),
            key=lambda gang: gang.entitlement is Entitlement.OPPORTUNISTIC,
        )
        for gang in gangs:
            self._enter(gang, gang.id, gang.tenant, reserved=False)
        for kept in cluster.reserved.values():
            self._enter(kept, kept.job, cluster.tenant_of(kept.job), reserved=True)

    def _enter(
        self, place: Gang | ReservedPlace, job: JobId, tenant: str, *, reserved: bool
    ) -> None:
        lent = place.entitlement is Entitlement.OPPORTUNISTIC
        slots, needs = place.slots, place.needs
        found: list[tuple[int, int]] = []
        if lent or not place.quota:
            for spot in self.cells.leaves_of(slots, needs):
                if spot.chain == self.at:
                    mask = spot.mask if reserved else self.hosts.of_borrower(spot)
                    found.append((spot.node, mask))
        else:
            for spot, level in self.cells.spots(slots, needs, place.quota):
                if spot.chain == self.at:
                    mask = self.hosts.of_owner(tenant, place.pin, level, spot)
                    found.append((spot.node, mask))
        for node, mask in found:
            self.users[node].append((mask, job, tenant, lent, reserved))

    # ── views ───────────────────────────────────────────────────────────────────────────

    def view(self, cell: Cell, name: str) -> CellView:
        if cell[0] > self.chain.node_level:
            return self._large(cell, name)
        return self._small(cell, name)

    def _children(self, cell: Cell, name: str) -> tuple[CellView, ...]:
        level = cell[0] - 1
        return tuple(
            self.view((level, child), f"{name}/{place}")
            for place, child in enumerate(self.chain.children(cell))
        )

    def _large(self, cell: Cell, name: str) -> CellView:
        """View a cell of several nodes: the sum of its parts."""
        chain = self.chain
        used = lent = bound = bad = 0
        worst, since = "healthy", 0
        owners: dict[tuple[str, str, str], None] = {}
        for node in chain.nodes_of(cell):
            counts = self._counts(node, chain.full, 0)
            used += counts[0].bit_count()
            lent += counts[1].bit_count()
            bound += counts[2].bit_count()
            bad += counts[3].bit_count()
            for owner in self.owners[node]:
                owners[owner[1:]] = None
            if chain.nodes[node] in self.ills:
                how, at = self._health(node, chain.full)
                worst = min(worst, how, key=WORST.index)
                since = min(since or at, at or since)
        size = chain.size[cell[0]]
        free = size - used - lent - bound - bad
        return CellView(
            name,
            chain.names[cell[0]],
            _state(used, lent, bound, free, worst),
            worst,
            size,
            free,
            bound,
            used,
            lent,
            bad,
            since,
            owners=tuple(CellOwner(*owner) for owner in owners),
            cells=self._children(cell, name) if cell[0] > self.lowest else (),
        )

    def _counts(self, node: int, mask: int, first: int) -> tuple[int, int, int, int]:
        """Part the leaves of a node, from the first of a cell on: used, lent, bound, bad."""
        space = self.space
        hosts = self.hosts
        used = (self.cells.uses[self.at].taken[node] | hosts.used.get(node, 0)) & mask
        lent = (space.lent[node] | hosts.lent.get(node, 0)) & mask & ~used
        bad = space.shut[node] & mask & ~used & ~lent
        bound = space.held[node] & mask & ~(used | lent | bad)
        return used >> first, lent >> first, bound >> first, bad >> first

    def _small(self, cell: Cell, name: str) -> CellView:
        """View a node, or a part of one."""
        chain, (level, number) = self.chain, cell
        size = chain.size[level]
        node = number * size // chain.width
        mask = chain.mask_of(cell)
        first = number * size % chain.width
        counts = self._counts(node, mask, first)
        used, lent, bound, bad = (part.bit_count() for part in counts)
        free = size - used - lent - bound - bad
        health, since = ("healthy", 0) if not self.ills else self._health(node, mask)
        owners = self.owners[node]
        users = self.users[node]
        return CellView(
            name,
            chain.names[level],
            _state(used, lent, bound, free, health),
            health,
            size,
            free,
            bound,
            used,
            lent,
            bad,
            since,
            self.state.cluster.nodes[chain.nodes[node]].name,
            self._device(node, first) if level == 0 else "",
            marks(size, *counts),
            tuple(
                CellOwner(tenant, kind, pin, places((held & mask) >> first))
                for held, tenant, kind, pin in owners
                if held & mask
            )
            if owners
            else (),
            tuple(
                CellUser(job, tenant, borrows, reserved, places((sat & mask) >> first))
                for sat, job, tenant, borrows, reserved in users
                if sat & mask or not sat
            )
            if users
            else (),
            self._children(cell, name) if level > self.lowest else (),
        )

    def _device(self, node: int, leaf: int) -> str:
        devices = self.chain.devices[node]
        return str(devices[leaf]) if devices else ""

    def _health(self, node: int, mask: int) -> tuple[str, int]:
        ill = self.ills.get(self.chain.nodes[node])
        if ill is None:
            return "healthy", 0
        leaf = self.chain.leaf[node]
        found = [
            how
            for part, how in ill.items()
            if part == WHOLE or (part in leaf and mask >> leaf[part] & 1)
        ]
        if not found:
            return "healthy", 0
        return min(found, key=lambda how: WORST.index(how[0]))[0], min(at for _, at in found)


def _state(used: int, lent: int, bound: int, free: int, worst: str) -> CellState:
    if used:
        return CellState.USED
    if lent:
        return CellState.LENT
    if bound:
        return CellState.BOUND
    if free:
        return CellState.FREE
    return CellState.SUSPECT if worst == "suspect" else CellState.BAD


@lru_cache(maxsize=4_096)
def places(mask: int) -> tuple[int, ...]:
    """Return the numbers of the leaves that are set."""
    return tuple(bits(mask))


@lru_cache(maxsize=4_096)
def marks(size: int, used: int, lent: int, bound: int, shut: int) -> str:
    """Return a letter for each leaf."""
    letters = ["."] * size
    for letter, mask in (("u", used), ("l", lent), ("o", bound), ("x", shut)):
        for place in bits(mask):
            letters[place] = letter
    return "".join(letters)
