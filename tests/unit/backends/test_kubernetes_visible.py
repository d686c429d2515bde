"""Nodes whose pods are told their devices: what a pod gets, and what others have."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from allotment.backends.kubernetes import client
from allotment.backends.kubernetes.discover import nodes_of, others_of
from allotment.backends.kubernetes.objects import KubeNode
from allotment.backends.kubernetes.request import Names, Place, binding_of, pod_of
from allotment.backends.kubernetes.usage import Use
from allotment.backends.kubernetes.visible import (
    notes_of,
    nowhere,
    picked_in,
    taken,
    value_of,
    visible_in,
)
from allotment.cli.doctor_finding import Level
from allotment.cli.doctor_kubernetes import mode_findings
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.service.ports import Binding, TaskLaunch
from allotment.wiring.kubernetes import counted, pins_on
from tests.support.kube_world import GANG, TASK, World, a_node, until
from tests.unit.backends.test_kubernetes_named import an_inventory

PLACE = Place("allot-1", "image:1", "nvidia.com/gpu", visible="2,3")
NAMES = Names("p", "token")


def env_of(place: Place, env: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    task = replace(TASK, env=env)
    (container,) = pod_of(GANG, task, NAMES, place)["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def with_uuids(node: Node) -> Node:
    devices = (replace(each, uuid=f"GPU-{each.index}") for each in node.devices)
    return replace(node, devices=tuple(devices))


def test_nodes_are_named_by_patterns() -> None:
    is_visible = visible_in(["dgx-*", "n1"])
    assert [is_visible(name) for name in ("dgx-7", "n1", "n10", "x-dgx-7")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert visible_in([]) is nowhere
    assert not nowhere("n1")


def test_a_pod_is_told_its_devices_and_asks_its_kubelet_for_none() -> None:
    pod = pod_of(GANG, TASK, NAMES, PLACE)
    (container,) = pod["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert pod["metadata"]["annotations"] == {"allotment.io/devices": "2,3"}
    assert env_of(PLACE)["NVIDIA_VISIBLE_DEVICES"] == "2,3"
    assert "nvidia.com/gpu" in {each["key"] for each in pod["spec"]["tolerations"]}


@pytest.mark.parametrize("named", [frozenset[str](), frozenset({"NVIDIA_VISIBLE_DEVICES"})])
def test_what_a_job_says_of_its_devices_does_not_count(named: frozenset[str]) -> None:
    gang = replace(GANG, named=named)
    task = replace(TASK, env=(("NVIDIA_VISIBLE_DEVICES", "all"), ("A", "b")))
    (container,) = pod_of(gang, task, NAMES, PLACE)["spec"]["containers"]
    said = [each["value"] for each in container["env"] if each["name"].startswith("NVIDIA")]
    assert said == ["2,3"]


def test_a_task_without_devices_is_told_that_it_has_none() -> None:
    pod = pod_of(GANG, TASK, NAMES, replace(PLACE, visible=""))
    assert "annotations" not in pod["metadata"]
    assert env_of(replace(PLACE, visible=""))["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_devices_are_named_by_uuid_where_each_has_one() -> None:
    node = a_node()
    assert value_of(node, (1, 3)) == "1,3"
    assert value_of(with_uuids(node), (1, 3)) == "GPU-1,GPU-3"


def test_what_others_have_is_known_one_by_one_unless_a_kubelet_picked_it() -> None:
    node = with_uuids(a_node())
    assert taken(node, 0, {"0", "GPU-2", "all", ""}) == (0, 2)
    assert taken(node, 1, {"0"}) == (0, 1, 2, 3), "it may be each of them"
    others = others_of(a_node(), kube_node({}), Use(cpu_milli=500), picked={"3"})
    assert (others.indexes, others.devices, others.cpu_milli) == ((3,), (), 500)
    assert others_of(a_node(), kube_node({}), Use(), picked=()).indexes == ()


def test_an_annotation_of_anybody_is_read_with_a_bound() -> None:
    assert picked_in({"allotment.io/devices": "0,1"}) == ("0", "1")
    assert picked_in({"hivedscheduler.microsoft.com/pod-leaf-cell-isolation": "5"}) == ("5",)
    assert picked_in(None) == picked_in({"allotment.io/devices": ","})[2:] == ()
    assert picked_in({"allotment.io/devices": "1," * 5000}) == ()


def test_a_binding_writes_over_what_a_pod_says_of_itself() -> None:
    both = {"allotment.io/devices", "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"}
    assert notes_of("0,1") == dict.fromkeys(both, "0,1")
    assert notes_of("") == dict.fromkeys(both, "void")
    assert binding_of("p", "u", "n", notes_of("0"))["metadata"]["annotations"] == notes_of("0")


def kube_node(labels: dict[str, str], gpus: int = 0) -> KubeNode:
    amounts = {"cpu": "8", "memory": "32Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    ready = [{"type": "Ready", "status": "True"}]
    tree = {
        "metadata": {"name": "n1", "labels": labels},
        "status": {"allocatable": amounts, "conditions": ready},
    }
    return msgspec.convert(tree, KubeNode)


def test_how_many_devices_there_are_a_label_says_or_a_device_plugin() -> None:
    labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"}

    def found(node: KubeNode, patterns: tuple[str, ...] = ("*",)) -> int:
        (mine,) = nodes_of([node], is_visible=visible_in(patterns))
        return len(mine.devices)

    assert found(kube_node(labels)) == 8
    assert found(kube_node(labels, gpus=7)) == 8, "one of eight is not offered: not the last"
    assert found(kube_node({}, gpus=7)) == 7
    assert found(kube_node(labels), ()) == 0


def test_tasks_get_the_devices_that_were_planned_where_they_are_told_them() -> None:
    setup = EngineSetup("k", EngineType.KUBERNETES, visible=("n1",))
    pins = pins_on(setup)
    assert [pins(a_node(name)) for name in ("n1", "n2")] == [True, False]
    assert [len(each.devices) for each in counted(setup, [a_node("n1"), a_node("n2")])] == [
        0,
        4,
    ]


def test_doctor_tells_the_mode_of_each_node() -> None:
    def said(node: KubeNode) -> list[tuple[Level, str]]:
        findings = mode_findings([node], an_inventory(), visible_in(["n1"]))
        return [(each.level, each.text) for each in findings]

    told = "visible, told to each pod by NVIDIA_VISIBLE_DEVICES: n1"
    assert said(kube_node({"nvidia.com/gpu.count": "8"})) == [(Level.OK, f"{told} (8)")]
    assert said(kube_node({})) == [(Level.OK, f"{told} (as `nodes` lists)")]
    (_, (level, text)) = said(kube_node({}, gpus=4))
    assert (level, text) == (
        Level.WARN,
        "a device plugin gives the same devices away: n1 (nvidia.com/gpu)",
    )


def test_the_very_devices_that_were_planned_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, visible=("n*",))
    monkeypatch.setattr(client, "Http", world.api.opened)

    async def story() -> None:
        async with world.service() as backend:
            await backend.launch(replace(GANG, tasks=(told(1, 3),)))
            await until(world.api.our_pod)
        pod = world.api.our_pod()
        assert pod["metadata"]["annotations"] == {"allotment.io/devices": "1,3"}

    asyncio.run(story())


def told(*devices: int) -> TaskLaunch:
    return replace(TASK, binding=Binding("n1", devices))
