"""Cells that the labels of nodes make, and labels that contradict them."""

from collections.abc import Sequence

from msgspec.structs import replace

from allotment.model.cells import CellType
from allotment.model.cells_by_label import Settled, made_of, settled
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB
from allotment.model.spec import Arch

NODE = CellType("node", "H100", 2, is_node=True)
RACK = CellType("rack", "node", 2, label="rack")
ZONE = CellType("zone", "rack", 2, label="topology.kubernetes.io/zone")
TYPES = (NODE, RACK, ZONE)


def a_node(number: int, *path: str, gpus: int = 2) -> Node:
    """A node in a zone and a rack, or in a rack alone."""
    devices = tuple(Device(DeviceIndex(index), "H100") for index in range(gpus))
    labels = sorted(zip(("zone", "rack")[-len(path) :], path, strict=True)) if path else ()
    return Node(NodeId(number), f"n{number}", 8000, GIB, GIB, devices, labels=tuple(labels))


FULL = [a_node(n, "a" if n < 5 else "b", f"r{(n + 1) // 2}") for n in range(1, 9)]
"""Two zones of two racks of two nodes."""


def cells(nodes: Sequence[Node], *types: CellType) -> dict[str, tuple[str, ...]]:
    return {cell.name: cell.nodes for cell in made_of(by_name(types or TYPES), nodes).cells}


def odd(nodes: Sequence[Node], *types: CellType) -> list[str]:
    return [each.why for each in made_of(by_name(types or TYPES), nodes).odd]


def by_name(types: Sequence[CellType]) -> dict[str, CellType]:
    return {kind.name: kind for kind in types}


def relabelled(number: int, *path: str) -> list[Node]:
    return [a_node(number, *path) if node.name == f"n{number}" else node for node in FULL]


def settle(found: Sequence[Node], before: Sequence[Node] = FULL) -> Settled:
    return settled(TYPES, before, found)


# ── which cells there are ───────────────────────────────────────────────────────────────


def test_each_value_of_a_label_is_a_cell_within_the_cell_above() -> None:
    assert cells(FULL) == {"a": ("n1", "n2", "n3", "n4"), "b": ("n5", "n6", "n7", "n8")}
    assert cells(FULL[::-1]) == cells(FULL)
    assert not odd(FULL)


def test_racks_of_one_name_in_two_zones_are_two_racks() -> None:
    zones = [a_node(n, zone, f"r{(n + 1) // 2 % 2}") for zone, start in (("a", 1), ("b", 5))
             for n in range(start, start + 4)]  # fmt: skip
    assert [len(nodes) for nodes in cells(zones).values()] == [4, 4]


def test_a_group_of_another_size_is_no_cell_and_the_reason_says_where() -> None:
    assert cells(FULL[1:], NODE, RACK).keys() == {"r2", "r3", "r4"}
    assert odd(FULL[1:], NODE, RACK) == ["rack r1 has 1 node (n2), not 2"]
    assert odd(FULL[1:]) == ["rack r1 of zone a has 1 node (n2), not 2"]
    more = [*FULL, a_node(9, "b", "r5"), a_node(10, "b", "r5")]
    assert odd(more) == ["zone b has 3 of `rack` (r3, r4, r5), not 2"]
    assert odd(relabelled(4, "b", "r2"))[0].endswith("; there is rack r2 of zone b, too (n4)")


def test_a_size_of_its_own_is_a_type_of_its_own() -> None:
    small = CellType("small", "node", 1, label="rack")
    assert cells(FULL[1:], NODE, RACK, small)["r1"] == ("n2",)
    assert not odd(FULL[1:], NODE, RACK, small)


def test_nodes_without_a_label_and_other_nodes_are_in_no_cell() -> None:
    bare, other = [a_node(9), a_node(10)], a_node(11, "b", "r4", gpus=4)
    assert cells([*FULL, *bare, other]) == cells(FULL)
    assert odd([*FULL, *bare, other]) == ["n9, n10 have no label `zone` and `rack`"]
    assert odd([*FULL, bare[0]], NODE, RACK) == ["n9 has no label `rack`"]


def test_nodes_that_no_other_cell_has_are_cells_of_their_own() -> None:
    loose = CellType("loose", "H100", 2, is_node=True, label="node")
    made = made_of(by_name([loose, *TYPES]), [*FULL[1:], a_node(9)])
    assert [cell.nodes for cell in made.cells if cell.type == "loose"] == [
        ("n2",), ("n3",), ("n4",), ("n9",)
    ]  # fmt: skip


def test_a_cell_is_of_one_architecture() -> None:
    arm = [replace(node, arch=Arch.ARM64) if node.name == "n1" else node for node in FULL]
    assert cells(arm).keys() == {"b"}
    assert "several engines or architectures" in odd(arm)[0]


def test_a_cell_with_the_name_of_a_node_is_called_otherwise() -> None:
    named = [a_node(1, "n1"), a_node(2, "n1")]
    assert cells(named, NODE, RACK) == {"n1.rack": ("n1", "n2")}


# ── labels that change ──────────────────────────────────────────────────────────────────


def test_a_node_that_says_another_rack_stays_in_its_cell_and_is_told_of() -> None:
    found = settle(relabelled(4, "a", "r1"))
    assert found.nodes == tuple(FULL)
    assert found.contradict == {
        "n4": "its labels say rack r1 of zone a, and the cells have it in rack r2 of zone a "
        "with n3: correct its labels, or `cells.types`"
    }
    assert not settle(FULL, found.nodes).contradict


def test_labels_that_make_other_whole_cells_are_taken() -> None:
    swapped = [a_node(4, "b", "r4") if each.name == "n4" else each for each in FULL]
    assert settle(swapped).contradict.keys() == {"n4"}
    found = settle([*swapped[:7], a_node(8, "a", "r2")])
    assert not found.contradict
    assert cells(found.nodes)["a"] == ("n1", "n2", "n3", "n8")
    renamed = [replace(node, labels=(("rack", f"x{node.labels[0][1]}"), ("zone", "z")))
               for node in FULL[:4]]  # fmt: skip
    assert cells(settle([*renamed, *FULL[4:]]).nodes).keys() == {"b", "z"}


def test_a_node_that_joins_a_whole_cell_is_in_none() -> None:
    found = settle([*FULL, a_node(9, "b", "r4")])
    assert cells(found.nodes) == cells(FULL)
    assert [node.labels for node in found.nodes if node.name == "n9"] == [()]
    assert found.contradict["n9"].startswith(
        "its labels say rack r4 of zone b, and b is whole with n7, n8"
    )


def test_a_node_that_is_gone_leaves_its_place_in_the_cell_to_another() -> None:
    gone = settle(FULL[1:])
    assert gone.nodes == tuple(FULL)
    assert gone.contradict == {
        "n1": "rack r1 of zone a keeps its place: add a node with its labels, or change "
        "`cells.types`"
    }
    there = settle([*FULL[1:], a_node(9, "a", "r1")], gone.nodes)
    assert cells(there.nodes)["a"] == ("n2", "n9", "n3", "n4")
    assert not settle(FULL[4:]).contradict
    assert cells(settle(FULL[4:]).nodes).keys() == {"b"}


def test_labels_that_are_changed_one_by_one_make_no_other_cells_meanwhile() -> None:
    """Half of a rack is a whole cell of another type, before the other half follows."""
    types = (NODE, CellType("four", "node", 4, label="rack"), RACK)
    before = [a_node(n, "r1") for n in range(1, 5)]
    half = [a_node(n, "r2" if n < 3 else "r1") for n in range(1, 5)]
    found = settled(types, before, half, {"n1", "n2"})
    assert found.nodes == tuple(before)
    assert found.contradict.keys() == {"n1", "n2"}
    all_ = [a_node(n, "r2") for n in range(1, 5)]
    assert cells(settled(types, before, all_).nodes, *types) == {"r2": ("n1", "n2", "n3", "n4")}
    assert cells(settled(types, before, half).nodes, *types).keys() == {"r1", "r2"}


def test_a_label_that_is_gone_contradicts_nothing() -> None:
    found = settle(relabelled(4))
    assert cells(found.nodes) == cells(FULL)
    assert not found.contradict


def test_other_labels_of_a_node_in_a_cell_change() -> None:
    (node,) = [each for each in relabelled(4, "a", "r1") if each.name == "n4"]
    priced = replace(node, labels=(*node.labels, ("price", "3")))
    found = settle([priced if each.name == "n4" else each for each in FULL])
    (now,) = [each for each in found.nodes if each.name == "n4"]
    assert now.labels == (("price", "3"), ("rack", "r2"), ("zone", "a"))


def test_without_labels_in_types_nodes_are_as_they_are() -> None:
    assert settled((NODE,), FULL, FULL[1:]) == Settled(tuple(FULL[1:]), {})
