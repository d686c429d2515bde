"""What is shown of cells: the tree, and each tenant's account."""

import pytest

from allotment.explain.cell_accounts import lost_counts
from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.health import HealthReport, Source
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.service.cells_read import cell_tree
from allotment.service.cells_view import (
    CellOwner,
    CellState,
    CellUser,
    CellView,
    DownPart,
    TenantCells,
)
from allotment.service.queries import tenant_views
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware:
  - 4 x dgx-v100 in racks of 2
cells:
  pins: [{id: own, type: dgx-v100-socket, node: n4, device: 4}]
tenants:
  vision: {cells: {dgx-v100-node: 2}, pins: [own]}
  nlp: {cells: {dgx-v100-node: 1, V100: 1}}
  guest: {}
limits: {breaker: 100%}
"""


@pytest.fixture
def world() -> World:
    return a_cell_world(CELLS)


def node_of(world: World, name: str, level: str = "") -> CellView:
    (found,) = cell_tree(world.state, level, name).roots
    return found


def account(world: World, tenant: str) -> tuple[TenantCells, ...]:
    return next(view.cells for view in tenant_views(world.state) if view.name == tenant)


def placed(world: World, tenant: str, gpus: float, tasks: int = 1) -> None:
    world.submit(a_job().of(tenant).gpus(gpus).tasks(tasks))
    world.cycle()


def test_counted_shares_have_no_cells() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    assert cell_tree(world.state).roots == ()
    assert account(world, "vision") == ()


def test_a_tree_says_whose_a_cell_is_and_who_sits_in_it(world: World) -> None:
    placed(world, "vision", 3)
    tree = cell_tree(world.state)
    assert tree.levels == (
        ("V100", "dgx-v100-switch", "dgx-v100-socket", "dgx-v100-node", "dgx-v100-rack"),
    )
    assert [root.name for root in tree.roots] == ["r1", "r2"]
    (cell,) = [node for root in tree.roots for node in root.cells if node.users]
    assert (cell.state, cell.used, cell.bound, cell.free) == (CellState.USED, 3, 5, 0)
    assert cell.marks == "uuuooooo"
    assert cell.owners == (CellOwner("vision", "dgx-v100-node", "", tuple(range(8))),)
    assert [(user.job, user.tenant, user.leaves) for user in cell.users] == [
        (1, "vision", (0, 1, 2))
    ]


def test_a_part_of_a_node_counts_its_leaves_from_its_own_first(world: World) -> None:
    world.submit(a_job().of("vision").gpus(1).pinned("own"))
    world.cycle()
    node = node_of(world, "n4")
    assert node.marks == "....uooo"
    socket = node.cells[1]
    assert (socket.type, socket.marks) == ("dgx-v100-socket", "uooo")
    assert socket.owners == (CellOwner("vision", "dgx-v100-socket", "own", (0, 1, 2, 3)),)
    assert socket.users == (CellUser(1, "vision", leaves=(0,)),)  # pyright: ignore[reportArgumentType]
    leaf = socket.cells[0].cells[0]
    assert (leaf.type, leaf.device, leaf.state) == ("V100", "4", CellState.USED)
    assert leaf.name == f"{node.name}/1/0/0"


def test_borrowers_and_reserved_places_show(world: World) -> None:
    for _ in range(4):
        placed(world, "guest", 8)
    assert {root.state for root in cell_tree(world.state).roots} == {CellState.LENT}
    guest = account(world, "guest")
    assert guest == (TenantCells("V100", "dgx-v100-rack", borrowed=32),)
    assert [(row.type, row.free, row.lent) for row in account(world, "vision")] == [
        ("dgx-v100-socket", 1, 1),
        ("dgx-v100-node", 2, 2),
    ]
    placed(world, "vision", 8)
    users = [u for root in cell_tree(world.state).roots for n in root.cells for u in n.users]
    assert [(user.job, user.borrows) for user in users if user.reserved] == [(5, False)]
    assert account(world, "vision")[1].used == 1


def test_a_pinned_cell_is_lent_where_a_borrower_sits_in_it(world: World) -> None:
    world.do(c.DrainNode(NodeId(0)))
    world.do(c.DrainNode(NodeId(1)))
    world.do(c.DrainNode(NodeId(2)))
    placed(world, "guest", 4)
    (before, *_) = account(world, "vision")
    placed(world, "guest", 1)
    (pinned, *_) = account(world, "vision")
    assert (before.lent, pinned.pin, pinned.free, pinned.lent) == (0, "own", 1, 1)


def test_a_borrowed_device_that_tasks_of_a_job_share_counts_once_for_it(
    world: World,
) -> None:
    placed(world, "guest", 0.1, tasks=10)
    slots = world.state.cluster.gangs[JobId(1)].slots
    assert len({(slot.node, slot.devices) for slot in slots}) == 1, "all on one device"
    assert account(world, "guest")[0].borrowed == 1


def test_of_a_pinned_cell_its_own_hardware_is_named_also_where_nobody_is(
    world: World,
) -> None:
    world.do(c.DeclareHealth(((NodeId(0), DeviceIndex(0)),), ok=False))
    world.do(c.DeclareHealth(((NodeId(3), DeviceIndex(6)),), ok=False))
    (pinned, *_) = account(world, "vision")
    assert (pinned.pin, pinned.free, pinned.lost) == ("own", 0, 1)
    assert pinned.down == (DownPart("n4:6", world.now),)


def test_what_is_down_is_shown_with_its_time(world: World) -> None:
    world.do(c.DrainNode(NodeId(0), "fan"))
    at = world.now
    node = node_of(world, "n1", "node")
    assert (node.state, node.health, node.since, node.bad) == (CellState.BAD, "drained", at, 8)
    assert node.marks == "x" * 8
    root = cell_tree(world.state, "rack").roots[0]
    assert (root.health, root.bad, root.free, root.cells) == ("drained", 8, 8, ())


def test_what_of_a_share_cannot_be_had_is_told_with_who_shares_the_loss(world: World) -> None:
    for number in (0, 1):
        world.do(c.DrainNode(NodeId(number)))
    _, whole = account(world, "vision")
    assert (whole.guaranteed, whole.free, whole.lost, whole.lost_with) == (2, 0, 2, ("nlp",))
    assert whole.down == (DownPart("n1", world.now), DownPart("n2", world.now))
    world.do(c.UndrainNode(NodeId(0)))
    world.do(c.UndrainNode(NodeId(1)))
    assert account(world, "vision")[1].lost == 0


def test_used_cells_on_hardware_that_is_down_are_told(world: World) -> None:
    placed(world, "vision", 8)
    at = world.state.cluster.gangs[next(iter(world.state.cluster.gangs))].slots[0].node
    world.do(c.DrainNode(at))
    _, whole = account(world, "vision")
    assert (whole.used, whole.broken, whole.lost) == (1, 1, 0)
    name = world.state.cluster.nodes[at].name
    assert (whole.hurt, whole.down) == ((DownPart(name, world.now),), ())


def test_of_cells_in_use_just_their_own_hardware_is_named_each_with_its_time(
    world: World,
) -> None:
    """A V100 each of nlp's node and its single: on one node, others break elsewhere."""
    placed(world, "nlp", 8)
    gang = world.state.cluster.gangs[JobId(1)]
    mine = gang.slots[0].node
    others = [node for node in world.state.cluster.nodes if node != mine]
    world.tell(HealthReport(others[0], Source.PROBE, False, None, "fan"))
    began = world.now
    world.tell(HealthReport(mine, Source.PROBE, False, DeviceIndex(3), "gpu_ecc"))
    world.wait(1000)
    world.tell(HealthReport(mine, Source.PROBE, False, DeviceIndex(5), "gpu_ecc"))
    name = world.state.cluster.nodes[mine].name
    whole = next(row for row in account(world, "nlp") if row.broken)
    assert whole.hurt == (DownPart(f"{name}:3", began), DownPart(f"{name}:5", world.now))
    assert world.state.cluster.cells is not None
    lost = lost_counts(world.state.cluster.cells)
    assert lost["nlp", whole.type] == whole.lost + whole.broken


def test_what_is_only_suspect_is_not_called_bad(world: World) -> None:
    world.tell(HealthReport(NodeId(0), Source.PROBE, False, None, "fan"))
    node = node_of(world, "n1", "node")
    assert (node.state, node.health) == (CellState.SUSPECT, "suspect")
    world.do(c.DrainNode(NodeId(0)))
    assert node_of(world, "n1", "node").state is CellState.BAD


@pytest.mark.parametrize("level", ["row", "dgx"])
def test_a_level_that_there_is_not_is_refused(world: World, level: str) -> None:
    with pytest.raises(Rejected, match="Levels: leaf, node, V100"):
        cell_tree(world.state, level)


def test_a_name_that_there_is_not_is_refused(world: World) -> None:
    with pytest.raises(Rejected, match="no root and no node 'n9'"):
        cell_tree(world.state, "", "n9")


def test_too_many_cells_are_refused_and_a_part_of_them_is_given() -> None:
    large = a_cell_world(CELLS.replace("4 x", "2000 x"))
    with pytest.raises(Rejected, match="16,000 cells"):
        cell_tree(large.state, "leaf")
    assert len(cell_tree(large.state, "leaf", "r7").roots) == 1


def test_every_leaf_is_counted_once_whatever_happens(world: World) -> None:
    placed(world, "guest", 5, 2)
    placed(world, "vision", 2, 3)
    placed(world, "nlp", 0.5, 3)
    world.do(c.DrainNode(NodeId(2)))
    for level in ("rack", "node", "socket", "leaf"):
        for cell in every(cell_tree(world.state, level).roots):
            assert cell.leaves == cell.used + cell.lent + cell.bound + cell.free + cell.bad
            if cell.cells:
                assert cell.used == sum(part.used for part in cell.cells)
                assert cell.bad == sum(part.bad for part in cell.cells)
                assert cell.marks in ("", "".join(part.marks for part in cell.cells))


def every(cells: tuple[CellView, ...]) -> list[CellView]:
    return [cell for each in cells for cell in (each, *every(each.cells))]


# ── parts of the host ───────────────────────────────────────────────────────────────────

HOSTS = """\
hardware: ["1 x cpu-32 named c", "1 x mi100-8 named m"]
tenants:
  a: {cells: {core: 32}}
  nlp: {cells: {mi100-8-node: 1}}
  d: {}
"""


def on_cpus(world: World, tenant: str, cpus: float) -> None:
    world.submit(a_job().of(tenant).gpus(0).cpus(cpus))
    world.cycle()


def test_a_borrower_without_devices_is_seen_on_the_cores_it_uses() -> None:
    world = a_cell_world(HOSTS)
    on_cpus(world, "d", 30)
    node = node_of(world, "c1", "node")
    assert (node.state, node.lent, node.free) == (CellState.LENT, 30, 2)
    assert node.users == (CellUser(JobId(1), "d", True, False, tuple(range(2, 32))),)
    (cores,) = account(world, "a")
    assert (cores.type, cores.guaranteed, cores.free, cores.lent) == ("core", 32, 32, 30)
    assert account(world, "d") == (TenantCells("core", "cpu-32-node", borrowed=30),)


def test_an_owner_without_devices_is_seen_on_its_cores() -> None:
    world = a_cell_world(HOSTS)
    on_cpus(world, "a", 2)
    on_cpus(world, "d", 3)
    node = node_of(world, "c1", "node")
    assert (node.state, node.used, node.lent, node.free) == (CellState.USED, 2, 3, 27)
    (cores,) = account(world, "a")
    assert (cores.used, cores.free, cores.lent) == (2, 30, 3)


def test_jobs_without_devices_are_seen_in_a_cell_of_devices() -> None:
    world = a_cell_world(HOSTS)
    on_cpus(world, "nlp", 20)
    node = node_of(world, "m1", "node")
    assert (node.state, node.used, node.bound) == (CellState.USED, 2, 6)
    assert [user.leaves for user in node.users] == [(0, 1)]
