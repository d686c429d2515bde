"""The tree of cells and the table of tenants as text, and the page."""

import msgspec

from allotment.cli.cells_page import page
from allotment.cli.cells_tree import SUM, nodes_in, sum_rows, tree_rows
from allotment.cli.table import aligned
from allotment.cli.tenant_table import COLUMNS, notes, rows
from allotment.model import commands as c
from allotment.model.ids import NodeId
from allotment.service.cells_read import cell_tree
from allotment.service.cells_view import DownPart, TenantCells
from allotment.service.queries import tenant_views
from tests.support.builders import a_job
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware:
  - %d x dgx-v100 in racks of 4
cells:
  pins: [{id: own, type: dgx-v100-socket, node: n4, device: 4}]
tenants:
  vision: {cells: {dgx-v100-node: 2}, pins: [own]}
  nlp: {cells: {dgx-v100-node: 1}}
"""


def a_world(nodes: int) -> World:
    world = a_cell_world(CELLS % nodes)
    world.submit(a_job().of("vision").gpus(3))
    world.submit(a_job().of("vision").gpus(1).pinned("own"))
    world.submit(a_job().of("nlp").gpus(8).opportunistic())
    world.cycle()
    return world


def test_four_nodes_are_shown_one_by_one() -> None:
    world = a_world(4)
    world.do(c.DrainNode(NodeId(1)))
    lines = tree_rows(cell_tree(world.state), world.now + 7_200_000)
    assert lines[0] == (
        "rack r1", "used", "4 used, 8 lent, 8 bound, 4 free, 8 out",
        "vision (node), vision (own)", "-", "drained 2h",
    )  # fmt: skip
    assert sorted(line[2:5] for line in lines[1:]) == [
        ("....uooo", "vision (own)", "2"),
        ("llllllll", "-", "3"),
        ("uuuooooo", "vision", "1"),
        ("xxxxxxxx", "-", "-"),
    ]


def test_alike_neighbours_share_a_line() -> None:
    world = a_cell_world(CELLS % 4)
    names = [line[0] for line in tree_rows(cell_tree(world.state, "node"), 0)]
    assert names == ["rack r1", "  n1 … n3 (3)", "  n4"]


def test_a_large_cluster_is_summed_up_in_lines_that_fit_a_screen() -> None:
    world = a_world(4_000)
    tree = cell_tree(world.state)
    assert nodes_in(tree) == 4_000
    lines = sum_rows(tree)
    assert sum(int(line[0].replace(",", "")) for line in lines) == 1_000
    assert len(lines) < 10
    text = aligned(
        [[column.header for column in SUM[:-1]], *[line[:-1] for line in lines]], SUM[:-1]
    )
    assert max(map(len, text)) <= 80


def test_tenants_have_a_line_for_each_type_and_are_told_what_is_lost() -> None:
    world = a_world(4)
    for number in range(4):
        world.do(c.DrainNode(NodeId(number)))
    views = tenant_views(world.state)
    table = rows(views)
    assert {len(row) for row in table} == {len(COLUMNS)}
    assert [row[:7] for row in table] == [
        ("vision", "dgx-v100-socket (pin own)", "1", "1", "-", "-", "1"),
        ("", "dgx-v100-node", "2", "1", "-", "-", "2"),
        ("nlp", "dgx-v100-node", "1", "-", "-", "-", "1"),
        ("", "V100", "-", "-", "-", "-", "-"),
    ]
    assert notes(views, world.now + 60_000)[1:] == [
        "vision: 1 of 2 dgx-v100-node are not available now (n2, n3, n4 for 1m); "
        "1 dgx-v100-node in use has hardware that is down (n1 for 1m)",
        "nlp: 1 of 1 dgx-v100-node are not available now (n2, n3, n4 for 1m)",
    ]


def test_each_piece_is_told_with_its_own_time_and_many_have_hardware() -> None:
    parts = (DownPart("n1", 5_000), DownPart("n3:5", 60_000), DownPart("n4:0", 60_000))
    cells = TenantCells("v-switch", "v-rack", guaranteed=2, used=2, broken=2, hurt=parts)
    view = msgspec.structs.replace(tenant_views(a_world(4).state)[0], cells=(cells,))
    assert notes([view], 65_000) == [
        f"{view.name}: 2 v-switch in use have hardware that is down "
        "(n1 for 1m, n3:5, n4:0 for 5s)"
    ]
    assert rows([view])[0][6] == "2"


def test_the_page_stands_alone_and_has_every_leaf() -> None:
    world = a_world(4)
    text = page(cell_tree(world.state), world.now)
    assert "http" not in text
    assert "<script" not in text
    assert text.count('<i class="l t1"></i>') == 8
    assert text.count('<i class="u t0"></i>') == 5  # One of them is the legend's.
    assert "job 3 of nlp, borrowed" in text


ODD = """\
nodes:
  - {names: [a, b, c], cpu: 40, memory: 512GiB, gpu: {type: V100, count: 4}}
  - {name: m1, cpu: 32, memory: 256GiB, gpu: [{type: MI100, count: 4}, {type: T4, count: 2}]}
cells:
  types:
    V100-NODE: {of: V100, count: 4, node: true}
    V100-RACK: {of: V100-NODE, count: 2}
    v: {of: V100, count: 4, node: true}
    mi-node: {of: MI100, count: 4, node: true}
    t4-node: {of: T4, count: 2, node: true}
  roots:
    - {type: V100-RACK, name: r0, nodes: [a, b]}
    - {type: v, nodes: [c]}
    - {type: mi-node, nodes: [m1]}
    - {type: t4-node, nodes: [m1], devices: [[5, 4]]}
  pins: [{id: own, type: V100-NODE, node: a, device: 0}]
tenants: {t: {cells: {mi-node: 1}, pins: [own]}}
"""


def test_machines_go_by_their_own_names_whatever_their_types_are_called() -> None:
    tree = cell_tree(a_cell_world(ODD).state, "node")
    assert [line[0] for line in tree_rows(tree, 0)] == [
        "RACK r0", "  a", "  b", "v c", "mi-node m1", "t4-node m1",
    ]  # fmt: skip
