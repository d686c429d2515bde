"""Devices by name: what slices, classes and claims say, and what a node has of it."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from allotment.backends.kubernetes import inventory as inventory_of
from allotment.backends.kubernetes.device_objects import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    id_of,
    parts_of,
)
from allotment.backends.kubernetes.discover import joined, nodes_of, others_of, report_of
from allotment.backends.kubernetes.inventory import Inventory
from allotment.backends.kubernetes.named import NodesByName, has_names
from allotment.backends.kubernetes.objects import KubeNode, read
from allotment.backends.kubernetes.usage import Use
from allotment.backends.kubernetes.visible import nowhere
from allotment.cli.doctor_kubernetes import mode_findings
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB
from tests.support.kube_devices import NVIDIA, a_device, a_slice

GPU = "gpu.nvidia.com/n1/gpu-{}"


def slices_of(*trees: dict[str, Any]) -> list[ResourceSlice]:
    found = [read(json.dumps(tree).encode(), ResourceSlice) for tree in trees]
    return [each for each in found if each is not None]


def classes_of(*trees: dict[str, Any]) -> list[DeviceClass]:
    return [msgspec.convert(tree, DeviceClass) for tree in trees]


def an_inventory(
    *trees: dict[str, Any], classes: tuple[dict[str, Any], ...] = (NVIDIA,)
) -> Inventory:
    found = Inventory()
    found.take_slices(slices_of(*trees))
    found.take_classes(classes_of(*classes))
    return found


def a_node(gpus: int = 0, ready: str = "True") -> KubeNode:
    counted = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    tree = {
        "metadata": {"name": "n1"},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", **counted},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(tree, KubeNode)


def ids(inventory: Inventory, node: str = "n1") -> list[str]:
    return [each.id for each in inventory.on(node)]


# ── what is offered ─────────────────────────────────────────────────────────────────────


def test_devices_of_a_node_are_known_by_name_type_and_memory() -> None:
    inventory = an_inventory(a_slice("n1", a_device("gpu-10"), a_device("gpu-2")))
    (node,) = nodes_of([a_node()], inventory.on)
    assert [each.uuid for each in node.devices] == [GPU.format(2), GPU.format(10)]
    assert {(each.type, each.memory) for each in node.devices} == {
        ("nvidia-a100-sxm4-80gb", 80 * GIB)
    }
    assert has_names(node)


def test_names_have_the_parts_that_a_claim_needs() -> None:
    device = id_of("gpu.nvidia.com", "a.b/c.d", "gpu-0")
    assert parts_of(device) == ("gpu.nvidia.com", "a.b/c.d", "gpu-0")


@pytest.mark.parametrize(
    ("slices", "found", "why"),
    [
        ([a_slice("n1", a_device("gpu-0"), resourceSliceCount=2)], [], "1 of its 2 slices"),
        (
            [
                a_slice("n1", a_device("gpu-0"), name="a", resourceSliceCount=2),
                a_slice("n1", a_device("gpu-1"), name="b", resourceSliceCount=2),
            ],
            ["0", "1"],
            "",
        ),
        (
            [
                a_slice("n1", a_device("gpu-0"), name="a"),
                a_slice("n1", a_device("gpu-1"), name="b", generation=2),
            ],
            ["1"],
            "",
        ),
        (
            [
                a_slice("n1", a_device("gpu-0"), name="a"),
                a_slice("n1", a_device("gpu-1"), name="b", generation=2, resourceSliceCount=2),
            ],
            [],
            "1 of its 2 slices",
        ),
        ([a_slice("n1", a_device("gpu-0"), a_device("gpu-0"))], [], "two of its devices"),
    ],
)
def test_only_whole_pools_of_the_newest_generation_are_used(
    slices: list[dict[str, Any]], found: list[str], why: str
) -> None:
    inventory = an_inventory(*slices)
    assert ids(inventory) == [GPU.format(each) for each in found]
    assert why in inventory.unused.get(("gpu.nvidia.com", "n1"), "")


def test_a_slice_that_cannot_be_read_leaves_its_pool_incomplete() -> None:
    good = a_slice("n1", a_device("gpu-0"), name="a", resourceSliceCount=2)
    odd = a_slice("n1", a_device("gpu-1"), name="b", resourceSliceCount=2)
    odd["spec"]["devices"] = "many"
    inventory = an_inventory(good, odd)
    assert ids(inventory) == []
    assert inventory.unused


@pytest.mark.parametrize(
    "device",
    [
        a_device("mig-1", consumesCounters=[{"counterSet": "c", "counters": {}}]),
        a_device("shared", allowMultipleAllocations=True),
        a_device("slow", bindingConditions=["Ready"]),
        a_device("cpus", nodeAllocatableResources={"memory": {}}),
        a_device("card") | {"attributes": {"type": {"string": "nic"}}},
        {"name": "bare"},
    ],
)
def test_what_is_no_whole_device_of_a_known_class_is_not_used(device: dict[str, Any]) -> None:
    assert ids(an_inventory(a_slice("n1", a_device("gpu-0"), device))) == [GPU.format(0)]


def test_devices_of_several_nodes_in_one_pool_are_of_the_node_that_each_names() -> None:
    shared = a_slice("n1", a_device("gpu-0", nodeName="n1"), a_device("gpu-1", nodeName="n2"))
    del shared["spec"]["nodeName"]
    shared["spec"]["perDeviceNodeSelection"] = True
    inventory = an_inventory(shared)
    assert (ids(inventory), ids(inventory, "n2")) == ([GPU.format(0)], [GPU.format(1)])


def test_a_class_of_anybody_is_used_where_it_is_marked() -> None:
    own = {
        "metadata": {"name": "npu", "labels": {"allotment.io/devices": "true"}},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'npu.example.org'"}}]},
    }
    npus = a_slice("n1", {"name": "npu-0"}, driver="npu.example.org")
    assert ids(an_inventory(npus)) == []
    (found,) = an_inventory(npus, classes=(NVIDIA, own)).on("n1")
    assert (found.of, found.type) == ("npu", "gpu")
    no = {
        **NVIDIA,
        "metadata": {**NVIDIA["metadata"], "labels": {"allotment.io/devices": "false"}},
    }
    assert ids(an_inventory(a_slice("n1", a_device("gpu-0")), classes=(no,))) == []


def test_a_class_that_is_not_understood_is_not_used_and_said_so() -> None:
    odd = {
        **NVIDIA,
        "spec": {"selectors": [{"cel": {"expression": "device.driver.matches('x')"}}]},
    }
    inventory = an_inventory(a_slice("n1", a_device("gpu-0")), classes=(odd,))
    assert ids(inventory) == []
    assert "gpu.nvidia.com" in inventory.unread
    (finding,) = mode_findings([a_node()], inventory, nowhere)
    assert "DeviceClass gpu.nvidia.com is not used" in finding.text


def test_a_class_that_means_the_same_as_before_has_no_device_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inventory = an_inventory(a_slice("n1", a_device("gpu-0")))
    with monkeypatch.context() as patched:
        patched.setattr(inventory_of, "devices_in", lambda slices, kinds: pytest.fail("again"))
        (same,) = classes_of(NVIDIA)
        inventory.take_class(same, False)
        inventory.take_class(msgspec.convert({"metadata": {"name": "nic"}}, DeviceClass), False)
    assert ids(inventory) == [GPU.format(0)]
    inventory.take_class(same, True)
    assert ids(inventory) == []


def test_a_node_is_found_by_its_name_while_the_same_nodes_are_in_force() -> None:
    asked: list[str] = []

    class Nodes(tuple[Node, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Node]:
            asked.append("all of them")
            return super().__iter__()

    nodes = Nodes([Node(NodeId(each), f"n{each}", 1, 1, 0, ()) for each in range(3)])
    in_force = [nodes]
    by_name = NodesByName(lambda: in_force[0])
    assert [by_name.find(name) for name in ("n2", "n0", "n3")] == [nodes[2], nodes[0], None]
    assert asked == ["all of them"]
    in_force[0] = Nodes(nodes[:1])
    assert by_name.find("n2") is None


def test_changes_are_told_of_the_nodes_that_they_are_of() -> None:
    told: list[set[str]] = []
    inventory = Inventory(lambda nodes: told.append(set(nodes)))
    inventory.take_classes(classes_of(NVIDIA))
    first, second = slices_of(
        a_slice("n1", a_device("gpu-0")), a_slice("n2", a_device("gpu-0"))
    )
    inventory.take_slice(first, False)
    inventory.take_slices([first, second])
    inventory.take_slice(first, True)
    inventory.take_slice(first, True)
    assert told == [{"n1"}, {"n2"}, {"n1"}]
    assert list(inventory.nodes()) == ["n2"]


# ── a node that is known ────────────────────────────────────────────────────────────────


def test_a_device_keeps_its_index_whatever_comes_and_goes() -> None:
    before = an_inventory(a_slice("n1", a_device("gpu-1"), a_device("gpu-2")))
    (known,) = nodes_of([a_node()], before.on)
    now = an_inventory(a_slice("n1", a_device("gpu-0"), a_device("gpu-2")))
    (node,) = joined([known], [a_node()], now.on)
    assert [each.uuid for each in node.devices] == [GPU.format(each) for each in (1, 2, 0)]
    assert [each.index for each in node.devices] == [0, 1, 2]
    assert others_of(node, a_node(), Use(), now.on("n1")).indexes == (0,), "it is not there"


def test_a_node_whose_devices_get_names_has_those_however_many() -> None:
    (counted,) = nodes_of([a_node(gpus=4)])
    inventory = an_inventory(a_slice("n1", a_device("gpu-0")))
    (named,) = joined([counted], [a_node()], inventory.on)
    assert [each.uuid for each in named.devices] == [GPU.format(0)]
    assert joined([named], [a_node(gpus=4)])[0].devices == counted.devices


def test_a_node_whose_driver_is_away_keeps_its_devices_and_gives_none() -> None:
    there = an_inventory(a_slice("n1", a_device("gpu-0")))
    (known,) = nodes_of([a_node()], there.on)
    assert joined([known], [a_node()]) == (known,)
    assert others_of(known, a_node(), Use()).indexes == (0,)


def test_a_device_that_is_tainted_or_held_by_a_claim_of_others_is_not_to_be_had() -> None:
    taint = {"key": "broken", "value": "yes", "effect": "NoExecute"}
    told = {"key": "told", "effect": "None"}
    inventory = an_inventory(
        a_slice("n1", a_device("gpu-0", taints=[taint]), a_device("gpu-1"),
                a_device("gpu-2", taints=[told]), a_device("gpu-3"))
    )  # fmt: skip
    (node,) = nodes_of([a_node()], inventory.on)
    held = {GPU.format(3)}
    others = others_of(node, a_node(), Use(), inventory.on("n1"), held.__contains__)
    assert others.indexes == (0, 3)
    assert others.total.gpu_milli == 2000
    found = list(mode_findings([a_node()], inventory, nowhere))
    assert [each.level for each in found] == ["ok", "warn"]
    assert found[0].text == "DRA, each by its name: n1 (4 of gpu.nvidia.com)"
    assert "gpu-0 is given to no task: it is tainted broken=yes:NoExecute" in found[1].text


def test_what_pods_take_of_a_device_plugin_beside_it_is_counted_on_top() -> None:
    inventory = an_inventory(a_slice("n1", a_device("gpu-0"), a_device("gpu-1")))
    (node,) = nodes_of([a_node()], inventory.on)
    asked = Use(devices=1)
    assert others_of(node, a_node(), asked, inventory.on("n1")).devices == ()
    beside = others_of(node, a_node(gpus=2), asked, inventory.on("n1"))
    assert beside.devices == (("nvidia-a100-sxm4-80gb", 1),)


def test_a_node_that_is_listed_without_the_names_of_its_devices_is_closed() -> None:
    (listed,) = nodes_of([a_node(gpus=1)])
    inventory = an_inventory(a_slice("n1", a_device("gpu-0")))
    assert "without their `uuids`" in report_of(listed, a_node(), inventory.on("n1")).closed
    (found,) = nodes_of([a_node()], inventory.on)
    assert not report_of(found, a_node(), inventory.on("n1")).closed


def test_uuids_of_other_makers_are_no_names() -> None:
    (listed,) = nodes_of([a_node(gpus=1)])
    own = (Device(DeviceIndex(0), "gpu", uuid="GPU-1", virtual=False),)
    assert not has_names(msgspec.structs.replace(listed, devices=own))


def test_the_mode_of_each_node_is_told() -> None:
    other = msgspec.convert({"metadata": {"name": "n2"}}, KubeNode)
    status = a_node(gpus=4).status
    nodes = [a_node(), msgspec.structs.replace(other, status=status)]
    inventory = an_inventory(a_slice("n1", a_device("gpu-0")))
    assert [each.text for each in mode_findings(nodes, inventory, nowhere)] == [
        "DRA, each by its name: n1 (1 of gpu.nvidia.com)",
        "counted, and picked by the kubelet: n2 (4 of nvidia.com/gpu)",
    ]


# ── claims ──────────────────────────────────────────────────────────────────────────────


def a_claim(name: str, *devices: int, admin: bool = False) -> ResourceClaim:
    results = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "n1", "device": f"gpu-{each}"}
        | ({"adminAccess": True} if admin else {})
        for each in devices
    ]
    tree = {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "status": {"allocation": {"devices": {"results": results}}} if devices else {},
    }
    return msgspec.convert(tree, ResourceClaim)


def test_claims_hold_devices_until_they_are_gone_or_given_nothing() -> None:
    told: list[set[str]] = []
    inventory = Inventory(on_use=lambda nodes: told.append(set(nodes)))
    inventory.take_classes(classes_of(NVIDIA))
    inventory.take_slices(slices_of(a_slice("n1", a_device("gpu-0"), a_device("gpu-1"))))

    def holders(number: int) -> list[str]:
        return [each.name for each in inventory.held_by(GPU.format(number))]

    inventory.take_claims([a_claim("a", 0), a_claim("b"), a_claim("c", 1, admin=True)])
    assert (holders(0), holders(1)) == (["team/a"], [])
    inventory.take_claim(a_claim("b", 1), False)
    assert holders(1) == ["team/b"]
    inventory.take_claim(a_claim("a"), False)
    assert holders(0) == []
    inventory.take_claim(a_claim("b", 1), True)
    assert holders(1) == []
    inventory.take_claim(a_claim("d"), False)
    assert told == [{"n1"}] * 4, "what holds nothing is no news"
