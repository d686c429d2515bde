"""What a gang needs of cells, in words."""

from allotment.core.cells.chain import Chain
from allotment.core.request import Request
from allotment.explain.cell_words import gang_words
from allotment.model.quantity import DEVICE, Resources
from allotment.model.tenancy import Config
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns


def a_chain() -> Chain:
    world = World(Config(MACHINES, (owns("a"), owns("b", node=1)), topology=TOPOLOGY))
    cells = world.state.cluster.cells
    assert cells is not None
    return cells.chains[0]


def said(count: int, within: str = "") -> str:
    chain = a_chain()
    need = Resources(gpu_milli=2 * DEVICE)
    return gang_words(chain, (Request(count, need, within=within),))


def test_a_gang_says_where_its_tasks_have_to_be_together() -> None:
    chain = a_chain()
    node, leaf = chain.names[chain.node_level], chain.names[0]
    assert said(1) == f"2 {leaf} in one {node}"
    assert said(2) == f"2 × 2 {leaf}, each in one {node}"
    assert said(1, within="node") == f"2 {leaf} in one {node}"
    assert said(2, within="node") == f"2 × 2 {leaf}, each in one {node}, all in the same"
