"""Switches of Slurm → labels and cells."""

from collections.abc import Sequence

import pytest

from allotment.backends.groups import Group, topology_of
from allotment.backends.slurm.switches import labelled, names_of, switches_of
from allotment.model.cell_quota import shapes_of
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB

SAID = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]
"""


def a_node(number: int, *types: str, cpus: int = 8) -> Node:
    devices = tuple(Device(DeviceIndex(i), kind) for i, kind in enumerate(types))
    return Node(NodeId(number), f"n{number}", cpus * 1000, GIB, GIB, devices)


def roots(nodes: Sequence[Node], switches: Sequence[Group]) -> list[tuple[str, str, int]]:
    return [
        (root.type, root.name, len(root.nodes)) for root in topology_of(nodes, switches).roots
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7],m", ["n1", "n2", "n3", "n7", "m"]),
        ("gpu[08-10]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib"]),
    ],
)
def test_host_lists_are_written_out(text: str, names: list[str]) -> None:
    assert list(names_of(text)) == names


def test_a_host_list_without_end_is_cut() -> None:
    assert len(list(names_of("n[1-999999999]"))) == 100_000


def test_switches_are_read_and_other_lines_passed_over() -> None:
    s1, _, top = switches_of("slurm says:\n" + SAID)
    assert s1 == Group("s1", "switch", 0, ("n1", "n2"))
    assert top == Group("top", "switch-2", 1, ("n1", "n2", "n3", "n4"), ("s1", "s2"))
    assert switches_of("") == ()


def test_nodes_are_labelled_with_the_switches_above_them() -> None:
    (node,) = labelled([a_node(3)], switches_of(SAID))
    assert node.labels == (("switch", "s2"), ("switch-2", "top"))


def test_alike_nodes_become_cells_over_their_switches() -> None:
    nodes = [a_node(n, *["a100"] * 4) for n in (1, 2, 3, 4)]
    found = topology_of(nodes, switches_of(SAID))
    (shape,) = shapes_of(found).values()
    assert shape.types == ("a100-switch-2", "a100-switch", "a100-node", "a100")
    assert shape.counts == (2, 2, 4)
    assert [kind.name for kind in found.types if kind.is_node] == ["a100-node"]


def test_a_switch_above_unlike_cells_is_no_cell() -> None:
    nodes = [a_node(1, "a100"), a_node(2, "a100", "a100"), a_node(3, "a100"), a_node(4, "a100")]
    assert roots(nodes, switches_of(SAID)) == [
        ("a100-node", "n1", 1),
        ("a100-2-node", "n2", 1),
        ("a100-switch", "s2", 2),
    ]


def test_a_node_with_two_models_lies_in_two_chains() -> None:
    found = topology_of([a_node(1, "a100", "v100", "v100")], ())
    assert [(root.type, root.devices) for root in found.roots] == [
        ("a100-node", ()),
        ("v100-node", ((1, 2),)),
    ]


def test_nodes_without_devices_are_cells_of_cores() -> None:
    assert roots([a_node(1), a_node(2)], switches_of(SAID)) == [("core-switch-2", "top", 2)]
