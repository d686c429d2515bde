"""Labels of Kubernetes' nodes: which are kept, and which cell types fit them."""

from collections.abc import Mapping

import msgspec

from allotment.backends.kubernetes.cells import labels_of, proposed
from allotment.backends.kubernetes.discover import nodes_of
from allotment.backends.kubernetes.objects import KubeNode, read
from allotment.model.cells import CellType
from allotment.model.cluster import Node

BLOCK, RACK = "network.topology.nvidia.com/block", "example.com/rack"


def found(name: str, labels: Mapping[str, str], gpus: int = 8) -> KubeNode:
    raw = {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "H100", **labels}},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)}},
    }
    node = read(msgspec.json.encode(raw), KubeNode)
    assert node is not None
    return node


def nodes(*paths: tuple[str, str], gpus: int = 8) -> tuple[Node, ...]:
    """Nodes in a block and a rack each."""
    return nodes_of(
        [
            found(f"n{number}", {BLOCK: block, RACK: rack}, gpus)
            for number, (block, rack) in enumerate(paths, 1)
        ],
        own=(RACK,),
    )


EVEN = nodes(*[("b1", "r1")] * 2, *[("b1", "r2")] * 2, *[("b2", "r3")] * 2, *[("b2", "r4")] * 2)


def test_labels_that_say_where_a_node_stands_are_kept_by_the_last_part_of_their_key() -> None:
    said = {
        "topology.kubernetes.io/zone": "a", BLOCK: "b1", RACK: "r1", "team": "x",
        "cloud.google.com/gce-topology-block": "g", "node.kubernetes.io/instance-type": "t",
        "other.org/zone": "z",
    }  # fmt: skip
    (node,) = nodes_of([found("n1", said)])
    assert dict(node.labels) == {
        "zone": "a", "block": "b1", "gce-topology-block": "g", "pool": "t"
    }  # fmt: skip
    (node,) = nodes_of([found("n1", said)], own=(RACK, "other.org/zone"))
    assert dict(node.labels)["rack"] == "r1"
    assert dict(node.labels)["zone"] == "z"  # what an administrator names comes first


def test_labels_are_levels_where_they_tell_nodes_apart() -> None:
    assert labels_of(EVEN) == ("block", "rack")
    assert labels_of(nodes(("b1", "r1"), ("b1", "r2"))) == ()


def test_types_fit_the_labels_from_the_device_up() -> None:
    assert proposed(EVEN).types == (
        CellType("h100-node", "h100", 8, is_node=True),
        CellType("h100-rack", "h100-node", 2, label="rack"),
        CellType("h100-block", "h100-rack", 2, label="block"),
    )


def test_a_label_above_unlike_groups_is_left_out_unless_it_is_given() -> None:
    uneven = nodes(*[("b1", "r1")] * 2, *[("b1", "r2")] * 2, *[("b2", "r3")] * 3)
    what = proposed(uneven)
    assert [(kind.name, kind.count, kind.label) for kind in what.types] == [
        ("h100-node", 8, ""),
        ("h100-rack", 2, "rack"),
        ("h100-3-rack", 3, "rack"),
    ]
    (note,) = what.notes
    assert note == "label `block` is left out for h100: its groups of nodes are not alike"
    assert "h100-block" in [kind.name for kind in proposed(uneven, ("block", "rack")).types]


def test_without_labels_each_node_is_a_cell() -> None:
    same = nodes(("b1", "r1"), ("b1", "r1"))
    assert proposed(same).types == (
        CellType("h100-node", "h100", 8, is_node=True, label="node"),
    )
    assert [kind.name for kind in proposed(nodes(("b", "r"), gpus=0)).types] == ["core-node"]
