"""A small cluster of cells for the tests of this folder: two racks of two nodes of eight."""

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Chain, chains_of
from allotment.core.cells.space import Space
from allotment.core.request import Request
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import GIB, Resources
from allotment.model.tenancy import Tenant
from tests.support.audit_cells import flaws

LEAF, PAIR, SOCKET, NODE, RACK = range(5)
NAMES = ("V100", "pair", "socket", "node", "rack")
SIZES = (1, 2, 4, 8, 16)
NODES, WIDTH = 4, 8
LEAVES = NODES * WIDTH

MACHINES = tuple(
    Node(
        NodeId(number),
        f"n{number}",
        cpu_milli=64_000,
        memory=512 * GIB,
        disk=0,
        devices=tuple(Device(DeviceIndex(d), "V100", 16 * GIB) for d in range(WIDTH)),
    )
    for number in range(NODES)
)
TYPES = (
    CellType("pair", "V100", 2),
    CellType("socket", "pair", 2),
    CellType("node", "socket", 2, is_node=True),
    CellType("rack", "node", 2),
)
ROOTS = tuple(RootCell("rack", f"r{r}", (NodeId(2 * r), NodeId(2 * r + 1))) for r in range(2))
TOPOLOGY = Topology(TYPES, ROOTS)


def a_chain() -> Chain:
    (chain,) = chains_of(TOPOLOGY, MACHINES)
    return chain


def owns(name: str, *pins: str, **cells: int) -> Tenant:
    """Describe a tenant: `owns("a", node=2)`."""
    return Tenant(name, cells=tuple(CellShare(kind, n) for kind, n in cells.items()), pins=pins)


def a_book(*tenants: Tenant, pins: tuple[PinnedCell, ...] = ()) -> Cells:
    return Cells(Topology(TYPES, ROOTS, pins), MACHINES, tenants)


def gang(
    tasks: int, gpus: float, *, within: str = "", prefer: str = "", cpus: float = 1
) -> tuple[Request, ...]:
    need = Resources(round(gpus * 1000), round(cpus * 1000), GIB)
    return (Request(tasks, need, within=within, prefer=prefer),)


def leaves_of(cell: Cell) -> frozenset[int]:
    """Number the leaves of a cell over the whole chain, the obvious way."""
    level, number = cell
    return frozenset(range(number * SIZES[level], (number + 1) * SIZES[level]))


def cells_at(level: int) -> list[Cell]:
    return [(level, number) for number in range(LEAVES // SIZES[level])]


def leaves_in(slots: tuple[Slot, ...]) -> set[int]:
    """Number the leaves that slots name; devices and leaves are the same here."""
    return {slot.node * WIDTH + device for slot in slots for device in slot.devices}


def common_level(leaves: set[int]) -> int:
    """Return the level of the smallest cell that holds these leaves; 5 for none."""
    for level in range(5):
        if any(leaves <= leaves_of(cell) for cell in cells_at(level)):
            return level
    return 5


def largest(free: set[int]) -> list[set[int]]:
    """Return the largest cells all of whose leaves are free, by level: the obvious way."""
    found: list[set[int]] = [set() for _ in SIZES]
    for level in range(4, -1, -1):
        for _, number in cells_at(level):
            leaves = leaves_of((level, number))
            inside = any(leaves <= leaves_of((up, n)) for up in range(5) for n in found[up])
            if leaves <= free and not inside:
                found[level].add(number)
    return found


def listed(space: Space) -> list[set[int]]:
    """Return the free cells that a space lists, by level."""
    return [{n for bucket in at.values() for n in bucket} for at in space.buckets()]


def sound(cells: Cells) -> None:
    assert list(flaws(cells)) == []
