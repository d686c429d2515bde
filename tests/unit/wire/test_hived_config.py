"""HiveD's configuration, read into ours."""

import pytest

from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell
from allotment.model.errors import BadInput
from allotment.model.ids import NodeId
from allotment.model.quantity import GIB
from allotment.model.tenancy import Preempt, Queue, QueueOrder
from allotment.wire.config import read_config
from allotment.wire.config_text import config_text
from allotment.wire.hived_config import Imported, read_hived

TYPES = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: K80, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  skuTypes:
    K80: {gpu: 2, cpu: 12, memory: 64Gi}
"""
WHOLE = f"""\
kubeApiServerAddress: http://10.0.0.1:8080
webServerAddress: ":9096"
forcePodBindThreshold: 3
{TYPES}\
  physicalCells:
  - cellType: RACK
    cellChildren:
    - cellAddress: 10.0.0.2
    - cellAddress: 10.0.0.3
      cellChildren:
      - cellChildren: [{{cellAddress: 3}}, {{cellAddress: 1}}]
        pinnedCellId: OWN
      - cellChildren: [{{cellAddress: 0, pinnedCellId: FREE}}, {{cellAddress: 2}}]
virtualClusters:
  vc1:
    virtualCells:
    - {{cellType: RACK.NODE, cellNumber: 1}}
    - {{cellType: RACK.NODE.PAIR.K80, cellNumber: 1}}
    - {{cellType: RACK.NODE, cellNumber: 0}}
    pinnedCells: [{{pinnedCellId: OWN}}]
  vc2:
"""


def read(text: str) -> Imported:
    found = read_hived(text.encode(), source="h.yaml")
    again, warnings = read_config(
        config_text(found.written).encode(), source="c.yaml", machine=None
    )
    assert (again, warnings) == (found.config, ())
    return found


def problems(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_hived(text.encode(), source="h.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_every_field_gets_to_its_place_or_is_told() -> None:
    found = read(WHOLE)
    assert [str(warning) for warning in found.warnings] == [
        "line 1: kubeApiServerAddress: is ignored: Allotment asks no Kubernetes API server for "
        "its machines",
        "line 2: webServerAddress: is ignored: `allot up --port` says where the API listens",
        "line 3: forcePodBindThreshold: is ignored: a decision is carried out without "
        "another scheduler",
        "line 19: physicalCluster.physicalCells[0].cellChildren[1].cellChildren[1]."
        "cellChildren[0].pinnedCellId: FREE belongs to no virtual cluster: it becomes an "
        "ordinary cell",
    ]
    config = found.config
    assert config.topology.types[1] == CellType("NODE", "PAIR", 2, is_node=True)
    assert config.topology.roots == (
        RootCell("RACK", "0", (NodeId(0), NodeId(1)), ((0, 1, 2, 3), (3, 1, 0, 2))),
    )
    assert config.topology.pins == (PinnedCell("OWN", "PAIR", NodeId(1), 0),)
    first = config.nodes[0]
    assert (first.name, len(first.devices), first.cpu_milli) == ("10.0.0.2", 4, 24_000)
    assert first.memory == 128 * GIB
    one, two = config.tenants
    assert one.cells == (CellShare("NODE", 1), CellShare("K80", 1))
    assert (one.pins, two.cells) == (("OWN",), ())
    assert (one.queues, one.preempt) == ((Queue("default", QueueOrder.SKIP),), Preempt.EVICT)


def test_addresses_that_are_left_out_follow_from_the_place() -> None:
    text = f"""\
{TYPES}\
  physicalCells: [{{cellType: NODE, cellAddress: a}}, {{cellType: RACK}}]
virtualClusters: {{vc: {{virtualCells: [{{cellType: NODE, cellNumber: 1}}]}}}}
"""
    # The second top cell is at 1, so its nodes are at 1 × 2 + 0 and 1 × 2 + 1.
    found = read(text)
    assert [node.name for node in found.config.nodes] == ["a", "2", "3"]
    assert [root.name for root in found.config.topology.roots] == ["a", "1"]
    assert found.config.tenants[0].cells == (CellShare("NODE", 1, "NODE"),)


def test_a_large_cluster_is_written_so_that_it_can_be_read() -> None:
    names = [f"10.{at // 65536}.{at // 256 % 256}.{at % 256}" for at in range(4000)]
    children = "".join(f"    - cellAddress: {name}\n" for name in names)
    nodes = "childCellType: NODE, childCellNumber: "
    text = f"""\
{TYPES.replace(f"{nodes}2", f"{nodes}4000")}\
  physicalCells:
  - cellType: RACK
    cellChildren:
{children}\
virtualClusters: {{vc: {{virtualCells: [{{cellType: RACK.NODE, cellNumber: 4000}}]}}}}
"""
    assert [node.name for node in read(text).config.nodes] == names


def test_blocking_becomes_a_strict_queue() -> None:
    text = WHOLE + "waitingPodSchedulingBlockMilliSec: 50\n"
    assert read(text).config.tenants[0].queues == (Queue("default", QueueOrder.STRICT),)


def test_a_sku_without_devices_is_cores() -> None:
    text = """\
physicalCluster:
  cellTypes: {CPU-NODE: {childCellType: CPU, childCellNumber: 8, isNodeLevel: true}}
  skuTypes: {CPU: {gpu: 0, cpu: 2, memory: 4096Mi}}
  physicalCells: [{cellType: CPU-NODE, cellAddress: c1}]
virtualClusters: {vc: {virtualCells: [{cellType: CPU-NODE.CPU, cellNumber: 4}]}}
"""
    config = read(text).config
    assert (config.nodes[0].devices, config.nodes[0].cpu_milli) == ((), 16_000)
    assert config.tenants[0].cells == (CellShare("core", 4),)
    assert config.tenants[0].guaranteed.cpu_milli == 8_000


def test_earlier_versions_called_skus_gpu_types() -> None:
    old = read(WHOLE.replace("skuTypes", "gpuTypes"))
    assert old == read(WHOLE)


def test_leaves_that_no_machine_numbers_so_are_told() -> None:
    text = """\
physicalCluster:
  cellTypes:
    A-NODE: {childCellType: A, childCellNumber: 2, isNodeLevel: true}
    B-NODE: {childCellType: B, childCellNumber: 2, isNodeLevel: true}
  skuTypes: {A: {gpu: 1, cpu: 1, memory: 1Gi}, B: {gpu: 1, cpu: 1, memory: 1Gi}}
  physicalCells:
  - {cellType: A-NODE, cellAddress: n}
  - {cellType: B-NODE, cellAddress: n}
  - {cellType: A-NODE, cellAddress: m, cellChildren: [{cellAddress: 2}, {cellAddress: 3}]}
virtualClusters: {vc: {virtualCells: [{cellType: A-NODE, cellNumber: 1}]}}
"""
    found = read_hived(text.encode(), source="h.yaml")
    told = [warning.message for warning in found.warnings]
    assert "n has A and B of the same numbers: its devices are numbered one by one" in told
    assert "m has no leaf 0, 1: taken for devices that lie in no cell" in told
    assert [device.type for device in found.config.nodes[0].devices] == ["A", "A", "B", "B"]
    assert [root.devices for root in found.config.topology.roots] == [(), ((2, 3),), ((2, 3),)]


def test_names_that_cannot_be_ours_are_changed_and_told() -> None:
    text = """\
physicalCluster:
  cellTypes: {"a node": {childCellType: G, childCellNumber: 1, isNodeLevel: true}}
  skuTypes: {G: {gpu: 1, cpu: 1, memory: 1Gi}}
  physicalCells: [{cellType: a node, cellAddress: x/y_1}]
virtualClusters: {"team a": {virtualCells: [{cellType: a node, cellNumber: 1}]}, team-a: }
"""
    found = read(text)
    assert [tenant.name for tenant in found.config.tenants] == ["team-a", "team-a-2"]
    assert found.config.nodes[0].name == "y_1"
    assert [warning.message for warning in found.warnings] == [
        "the type a node is called a-node here",
        "the tenant team a is called team-a here",
        "the tenant team-a is called team-a-2 here",
    ]


def test_keys_that_hived_does_not_know_are_told() -> None:
    text = WHOLE.replace("cellNumber: 0}", "cellNumber: 0, cellNumbr: 1}")
    assert (
        "virtualClusters.vc1.virtualCells[2].cellNumbr: is ignored: HiveD has no such key"
        in [f"{warning.path}: {warning.message}" for warning in read(text).warnings]
    )


CELL = "physicalCluster.physicalCells[0]"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("childCellType: K80", "childCellType: RACK"),
         "physicalCluster.cellTypes.NODE.childCellType: is made of itself: PAIR of RACK "
         "of NODE of PAIR (end it with a device type)"),
        (("cellType: RACK\n", "cellType: ROW\n"), f"{CELL}.cellType: there is no cell type ROW "
         "(name one of `cellTypes`)"),
        (("cellType: RACK\n", "cellType: PAIR\n"), f"{CELL}.cellType: PAIR is not a machine"),
        ((", isNodeLevel: true", ""), f"{CELL}.cellType: RACK is not a machine, "
         "and is not made of any (a top cell is a node (isNodeLevel) or has nodes in it)"),
        (("    - cellAddress: 10.0.0.2\n", ""), f"{CELL}.cellChildren: has 1 cells, and there "
         "are 2 NODE (list all of them, or none)"),
        (("{cellAddress: 3}", "{cellAddress: x}"), f"{CELL}.cellChildren[1].cellChildren[0]."
         "cellChildren[0].cellAddress: x is not the index of a device on its node (leaves are "
         "numbered 0, 1, 2 …)"),
        (("{cellAddress: 3}", "{cellAddress: 1}"), f"{CELL}.cellChildren[1].cellChildren[0]."
         "cellChildren[1].cellAddress: 10.0.0.3 has two leaves 1 (number them apart)"),
        (("{cellAddress: 3}", "{cellAddress: 3, cellType: V100}"), f"{CELL}.cellChildren[1]."
         "cellChildren[0].cellChildren[0].cellType: is V100, and what lies here is a K80 (take "
         "it out)"),
        (("10.0.0.3", "10.0.0.2"), f"{CELL}.cellChildren[1]: 10.0.0.2 is listed twice (name "
         "each node once)"),
        (("cellType: RACK.NODE, cellNumber: 1", "cellType: ROW.NODE, cellNumber: 1"),
         "virtualClusters.vc1.virtualCells[0].cellType: there is no physical cell of type ROW "
         "(such as RACK)"),
        (("RACK.NODE.PAIR.K80", "RACK.NODE.V100"), "virtualClusters.vc1.virtualCells[1]."
         "cellType: there is no V100 in a RACK (a RACK is made of NODE, PAIR, K80)"),
        (("cellNumber: 1}", "cellNumber: 2}"), "virtualClusters.vc1.virtualCells[0].cellType: "
         "all shares of NODE of RACK add up to 2, with room for 1 beside larger cells: 1 too "
         "many (vc1 2) (lower a share, or add roots)"),
        (("[{pinnedCellId: OWN}]", "[{pinnedCellId: OWM}]"), "virtualClusters.vc1."
         "pinnedCells[0].pinnedCellId: there is no pinned cell OWM"),
        (("  vc2:", "  vc2: {pinnedCells: [{pinnedCellId: OWN}]}"), "virtualClusters.vc2."
         "pinnedCells[0].pinnedCellId: OWN is vc1's own already (give it to one tenant)"),
        (("cellNumber: 0", "cellNumber: few"), "virtualClusters.vc1.virtualCells[2]."
         "cellNumber: must be a whole number, not 'few'"),
    ],
)  # fmt: skip
def test_what_cannot_be_says_where_in_hiveds_file(
    change: tuple[str, str], problem: str
) -> None:
    found = problems(WHOLE.replace(*change, 1))
    assert any(line.partition(": ")[2].startswith(problem) for line in found), found
    assert all(line.startswith("line ") for line in found)


def test_a_cell_pinned_under_an_id_that_is_taken_is_refused() -> None:
    text = WHOLE.replace("pinnedCellId: FREE", "pinnedCellId: OWN")
    assert any("OWN is given twice" in line for line in problems(text))


@pytest.mark.parametrize(
    "text", ["physicalCluster: {}\nvirtualClusters: {}", "- x", "physicalCluster: 3", "x: 1"]
)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    assert problems(text)
