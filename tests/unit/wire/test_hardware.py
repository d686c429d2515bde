"""Hardware in a line: nodes, cell types and roots from a short description."""

from pathlib import Path

import pytest

from allotment.model.cell_quota import shapes_of
from allotment.model.cells import CellType
from allotment.model.cluster import Device, Node
from allotment.model.errors import BadInput
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB, TIB, Resources
from allotment.model.spec import Arch
from allotment.model.tenancy import Config
from allotment.wire.cells_machines import CATALOGUE
from allotment.wire.config import read_config


def read(*lines: str, more: str = "", tenants: str = "{a: }") -> Config:
    quoted = ", ".join(f'"{line}"' for line in lines)
    text = f"hardware: [{quoted}]\n{more}tenants: {tenants}\n"
    config, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    assert warnings == ()
    return config


def test_a_cluster_in_two_lines() -> None:
    config = read("64 × dgx-a100 in racks of 4", "20 x cpu-32")
    assert len(config.nodes) == 84
    assert [node.name for node in config.nodes] == [f"n{at}" for at in range(1, 85)]
    assert [node.id for node in config.nodes] == list(range(84))
    first, last = config.nodes[0], config.nodes[-1]
    assert first.total() == Resources(8000, 128_000, 2 * TIB, 8 * 3840 * 10**9, 640 * GIB)
    assert (last.cpu_milli, last.memory, last.devices) == (32_000, 128 * GIB, ())
    assert dict(config.nodes[4].labels) == {"rack": "r2"}
    assert [root.name for root in config.topology.roots[:16]] == [
        f"r{at}" for at in range(1, 17)
    ]
    assert [root.name for root in config.topology.roots[16:18]] == ["n65", "n66"]
    assert list(shapes_of(config.topology)) == ["dgx-a100-rack", "cpu-32-node"]
    assert shapes_of(config.topology)["dgx-a100-rack"].counts == (4, 2, 2, 2)


def test_levels_lie_in_each_other_and_are_labels() -> None:
    config = read("16 x 8xV100 in racks of 4 in pods of 2")
    assert dict(config.nodes[9].labels) == {"rack": "r3", "pod": "pod2"}
    assert config.topology.types == (
        CellType("8xV100-node", "V100", 8, is_node=True),
        CellType("8xV100-rack", "8xV100-node", 4),
        CellType("8xV100-pod", "8xV100-rack", 2),
    )
    assert [root.name for root in config.topology.roots] == ["pod1", "pod2"]


def test_racks_of_other_sizes_are_other_types() -> None:
    config = read("8 x dgx-v100 in racks of 4", "6 x dgx-v100 in racks of 3", "2 x dgx-v100")
    assert list(shapes_of(config.topology)) == [
        "dgx-v100-rack", "dgx-v100-3-rack", "dgx-v100-node",
    ]  # fmt: skip
    assert [root.name for root in config.topology.roots] == [
        "r1",
        "r2",
        "r3",
        "r4",
        "n15",
        "n16",
    ]


def test_names_cpus_and_memory_can_be_given() -> None:
    config = read("2 x 4xT4 with 48 cpus and 192GiB named gpu-", "1 x arm64-64")
    assert [node.name for node in config.nodes] == ["gpu-1", "gpu-2", "n1"]
    assert (config.nodes[0].cpu_milli, config.nodes[0].memory) == (48_000, 192 * GIB)
    assert (config.nodes[2].cpu_milli, config.nodes[2].arch) == (64_000, Arch.ARM64)


def test_it_goes_with_nodes_pins_and_shares() -> None:
    config = read(
        "4 x mi100-8",
        more="nodes: [{name: login, cpu: 8, memory: 8GiB}]\n"
        "cells: {types: {login: {of: core, count: 8, node: true}},"
        " roots: [{type: login, nodes: [login]}],"
        " pins: [{id: p, type: mi100-8-hive, node: n2, device: 4}]}\n",
        tenants="{a: {cells: {mi100-8-node: 3, core: 8}, pins: [p]}}",
    )
    assert [node.name for node in config.nodes] == ["login", "n1", "n2", "n3", "n4"]
    assert config.topology.pins[0].node == 2
    assert config.tenants[0].guaranteed.gpu_milli == 28_000


def test_a_machine_of_hardware_that_is_this_one_has_its_real_devices() -> None:
    real = Device(DeviceIndex(0), "NVIDIA A100", 40 * GIB, "GPU-a", virtual=False)
    here = Node(NodeId(0), "gpu-1", 8000, 8 * GIB, 0, (real,))
    text = b'hardware: ["2 x 2xA100 named gpu-"]\ntenants: {a: }'
    config, _ = read_config(text, source="c.yaml", machine=here)
    assert config.nodes[0].devices == (
        Device(DeviceIndex(0), "A100", 40 * GIB, "GPU-a", virtual=False),
        Device(DeviceIndex(1), "A100"),
    )
    assert all(device.virtual for device in config.nodes[1].devices)


@pytest.mark.parametrize("model", CATALOGUE)
def test_every_model_is_in_the_guide(model: str) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guide" / "cells.md"
    assert f"`{model}`" in guide.read_text(encoding="utf-8")


@pytest.mark.parametrize("model", CATALOGUE)
def test_every_model_makes_cells(model: str) -> None:
    config = read(f"2 x {model}", tenants=f"{{a: {{cells: {{{model}-node: 2}}}}}}")
    assert config.tenants[0].guaranteed == config.nodes[0].total() * 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("dgx-a100", "'dgx-a100' describes no hardware (write it like 64 x dgx-a100 in racks "
         "of 4, 20 x cpu-32, or 16 x 8xV100)"),
        ("4 x dgx-a10", "there is no model of machine 'dgx-a10' (did you mean `dgx-a100`?)"),
        ("6 x dgx-a100 in racks of 4", "6 nodes do not fill racks of 4 (write 4, and 2 on a "
         "line of its own)"),
        ("3 x dgx-a100 in racks of 4", "3 nodes do not fill racks of 4 (write at least 4)"),
        ("8 x dgx-a100 in racks of 2 in racks of 2", "rack is a level already (give each level "
         "a name of its own)"),
        ("8 x dgx-a100 in sockets of 2", "socket is a level already (give each level a name of "
         "its own)"),
        ("20000 x dgx-a100", "is too much: 100,000 nodes and 100,000 devices are accepted "
         "(check the counts)"),
        ("0 x dgx-a100", "'0 x dgx-a100' describes no hardware (write it like 64 x dgx-a100 in "
         "racks of 4, 20 x cpu-32, or 16 x 8xV100)"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be(line: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(line, tenants="{a: {cells: {dgx-a100-node: 1}}}")
    assert [str(each) for each in caught.value.problems] == [f"line 1: hardware[0]: {problem}"]


def test_names_that_are_taken_are_told() -> None:
    with pytest.raises(BadInput, match=r"makes a node n1, which is a name already taken"):
        read("1 x cpu-4", more="nodes: [{name: n1, cpu: 8, memory: 8GiB}]\n")
