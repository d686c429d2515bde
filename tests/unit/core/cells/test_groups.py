"""Groups of tasks within one cell each: against counting what every cell has left."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.chain import in_one_cell
from allotment.core.cells.rights import objection
from allotment.core.cells.search import find
from allotment.core.ledger import Ledger
from allotment.core.request import Request, needs_of
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Resources
from allotment.model.tenancy import Tenant

WIDTH, NODES, LEAVES = 8, 4, 32
SIZES = {"pair": 2, "socket": 4, "node": 8, "rack": 16, "": LEAVES}
TOPOLOGY = Topology(
    (
        CellType("pair", "V100", 2),
        CellType("socket", "pair", 2),
        CellType("node", "socket", 2, is_node=True),
        CellType("rack", "node", 2),
    ),
    tuple(RootCell("rack", f"r{r}", (NodeId(2 * r), NodeId(2 * r + 1))) for r in range(2)),
)
MACHINES = tuple(
    Node(
        NodeId(n),
        f"n{n}",
        cpu_milli=64_000,
        memory=1 << 40,
        disk=1 << 40,
        devices=tuple(Device(DeviceIndex(d), "V100", 1 << 34) for d in range(WIDTH)),
    )
    for n in range(NODES)
)
LEVELS = st.sampled_from(["pair", "socket", "node", "rack"])
TAKEN = st.sets(st.integers(0, LEAVES - 1), max_size=24)
SIZE, GROUPS, EACH = st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 1, 2, 3, 4])
OUTER = st.sampled_from(["", "", "socket", "node", "rack"])


def a_book(owned: tuple[CellShare, ...]) -> Cells:
    return Cells(TOPOLOGY, MACHINES, (Tenant("t", cells=owned), Tenant("other")))


def a_request(size: int, groups: int, each: int, level: str, outer: str = "") -> Request:
    need = Resources(gpu_milli=each * DEVICE)
    return Request(size * groups, need, within=outer, group=size, group_within=level)


def room_for(request: Request, free: set[int]) -> bool:
    """Count, cell by cell, the groups that fit; cells of a level do not overlap."""
    level, outer, each = SIZES[request.group_within], SIZES[request.within], request.devices
    within = min(level, outer)

    def tasks(first: int, size: int) -> int:
        step = min(WIDTH, size)
        nodes = (free & set(range(at, at + step)) for at in range(first, first + size, step))
        return sum(len(node) // each for node in nodes)

    return any(
        sum(tasks(at, within) // request.group for at in range(begin, begin + outer, within))
        * request.group
        >= request.count
        for begin in range(0, LEAVES, outer)
    )


def slots_on(leaves: set[int]) -> tuple[Slot, ...]:
    return tuple(Slot(NodeId(at // WIDTH), (at % WIDTH,), DEVICE) for at in sorted(leaves))


def together(cells: Cells, request: Request, slots: tuple[Slot, ...]) -> bool:
    groups = (slots[at : at + request.group] for at in range(0, len(slots), request.group))
    whole = not request.within or in_one_cell(cells.chains, request.within, slots)
    return whole and all(
        in_one_cell(cells.chains, request.group_within, group) for group in groups
    )


REQUESTS = st.builds(a_request, SIZE, GROUPS, EACH, LEVELS, OUTER)


@given(st.sampled_from([("node", 4), ("socket", 8), ("rack", 2)]), TAKEN, REQUESTS)
def test_a_tenant_that_owns_all_gets_groups_wherever_they_fit(
    owned: tuple[str, int], taken: set[int], request: Request
) -> None:
    cells = a_book((CellShare(*owned),))
    if taken:
        one = Resources(gpu_milli=DEVICE)
        cells.take("t", "", slots_on(taken), (one,) * len(taken), (owned[0],))
    found = find(cells, "t", "", (request,))
    free = set(range(LEAVES)) - taken
    assert (found is not None) is room_for(request, free)
    if found is not None:
        assert together(cells, request, found.slots)
        needs = needs_of((request,))
        assert not objection(cells, "t", "", found.slots, needs, found.quota)


@given(
    st.sampled_from([
        (("node", 1), ("socket", 2)),
        (("node", 2),),
        (("socket", 3),),
        (("pair", 4), ("node", 1)),
        (("V100", 9),),
    ]),
    REQUESTS,
    REQUESTS,
)  # fmt: skip
def test_a_tenant_that_owns_a_part_gets_groups_that_are_together_and_guaranteed(
    owned: tuple[tuple[str, int], ...], first: Request, second: Request
) -> None:
    cells = a_book(tuple(CellShare(*each) for each in owned))
    for request in (first, second):
        found = find(cells, "t", "", (request,))
        if found is None:
            continue
        needs = needs_of((request,))
        assert together(cells, request, found.slots)
        assert not objection(cells, "t", "", found.slots, needs, found.quota)
        cells.take("t", "", found.slots, needs, found.quota)


@given(TAKEN, TAKEN, REQUESTS)
def test_borrowed_groups_go_wherever_they_fit(
    taken: set[int], lent: set[int], request: Request
) -> None:
    cells = a_book((CellShare("node", 4),))
    one, lent = Resources(gpu_milli=DEVICE), lent - taken
    if taken:
        cells.take("t", "", slots_on(taken), (one,) * len(taken), ("node",))
    if lent:
        cells.lend(JobId(1), slots_on(lent), (one,) * len(lent))
    slots = find_idle(cells, (request,), Ledger(MACHINES))
    assert (slots is not None) is room_for(request, set(range(LEAVES)) - taken - lent)
    if slots is not None:
        assert together(cells, request, slots)


def test_groups_of_a_node_share_it_before_another_is_bound() -> None:
    cells = a_book((CellShare("node", 2),))
    found = find(cells, "t", "", (a_request(4, 4, 1, "socket"),))
    assert found is not None
    assert [slot.node for slot in found.slots] == [0] * 8 + [1] * 8


def test_parts_of_devices_stay_in_the_cell_of_their_group() -> None:
    cells = a_book((CellShare("socket", 3),))
    half = Request(12, Resources(gpu_milli=500), group=6, group_within="socket")
    found = find(cells, "t", "", (half,))
    assert found is not None
    assert together(cells, half, found.slots)
    idle = find_idle(cells, (half,), Ledger(MACHINES))
    assert idle is not None
    assert together(cells, half, idle)
