"""Cells of one machine, from how far its devices are apart."""

import pytest

from allotment.backends.local.topology import MACHINE, topology_of
from allotment.model.cell_quota import shapes_of
from allotment.model.cells import RootCell
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB

INTERNAL, SINGLE, MULTIPLE, BRIDGE, SOCKET = 0, 10, 20, 30, 40


def machine(*types: str) -> Node:
    devices = tuple(Device(DeviceIndex(at), kind) for at, kind in enumerate(types))
    return Node(NodeId(0), "here", 32_000, 64 * GIB, 0, devices)


def cells(node: Node, *parts: tuple[int, list[set[int]]]) -> tuple[list[str], list[int]]:
    """Return the chain of a machine whose devices share what is listed, closest first."""

    def distance(one: int, other: int) -> int:
        for level, groups in parts:
            if any({one, other} <= group for group in groups):
                return level
        return MACHINE

    topology = topology_of(node, distance)
    (shape,) = shapes_of(topology).values()
    root = topology.roots[0]
    order = list(root.devices[0]) if root.devices else list(range(len(node.devices)))
    chain = [f"{n} {count}" for n, count in zip(shape.types, shape.counts, strict=False)]
    return [word.partition("-")[2] for word in chain], order


PAIRS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
HALVES = [{0, 1, 2, 3}, {4, 5, 6, 7}]
EIGHT = machine(*["A100"] * 8)


def test_pairs_at_switches_of_two_sockets() -> None:
    found = cells(EIGHT, (SINGLE, PAIRS), (SOCKET, HALVES))
    assert found == (["node 2", "socket 2", "switch 2"], list(range(8)))


def test_devices_of_a_switch_are_brought_together() -> None:
    crossed = [{0, 4}, {1, 5}, {2, 6}, {3, 7}]
    found = cells(EIGHT, (MULTIPLE, crossed), (SOCKET, [{0, 4, 1, 5}, {2, 6, 3, 7}]))
    assert found == (["node 2", "socket 2", "switches 2"], [0, 4, 1, 5, 2, 6, 3, 7])


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [(SINGLE, [set(range(8))])],
        [(SINGLE, [{0, 1}])],
        [(SOCKET, [{0, 1, 2}, {3, 4, 5, 6, 7}])],
    ],
)
def test_a_level_of_one_cell_or_of_unequal_ones_is_none(
    parts: list[tuple[int, list[set[int]]]],
) -> None:
    assert cells(EIGHT, *parts) == (["node 8"], list(range(8)))


def test_boards_within_sockets() -> None:
    found = cells(machine(*["K80"] * 4), (INTERNAL, [{0, 1}, {2, 3}]), (BRIDGE, [{0, 1}]))
    assert found == (["node 2", "board 2"], [0, 1, 2, 3])


def test_two_types_are_two_chains() -> None:
    topology = topology_of(machine("V100", "T4", "V100", "T4"), lambda *_: MACHINE)
    assert [kind.name for kind in topology.types] == ["2xV100-node", "2xT4-node"]
    assert topology.roots == (
        RootCell("2xV100-node", "here", (NodeId(0),), ((0, 2),)),
        RootCell("2xT4-node", "here.2xT4-node", (NodeId(0),), ((1, 3),)),
    )


def test_a_machine_without_devices_is_its_cores() -> None:
    (kind,) = topology_of(machine(), lambda *_: MACHINE).types
    assert (kind.name, kind.child, kind.count, kind.is_node) == (
        "cpu-32-node",
        "core",
        32,
        True,
    )


def test_one_device_is_a_node() -> None:
    assert cells(machine("H200")) == (["node 1"], [0])
