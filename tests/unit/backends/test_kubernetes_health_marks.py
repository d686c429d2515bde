"""Which marks hardware that is out of use has in Kubernetes, and how they are written."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from allotment.backends.contact import Contact
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.device_objects import RULES
from allotment.backends.kubernetes.discover import UNHEALTHY, report_of
from allotment.backends.kubernetes.health_marks import (
    AGAIN_S,
    HealthMarks,
    Mark,
    name_of,
    patch_of,
    rule_of,
    wanted,
)
from allotment.backends.kubernetes.kubeconfig import access_of
from allotment.backends.kubernetes.objects import Condition as Heard
from allotment.backends.kubernetes.objects import KubeNode, Meta, NodeSpec, Taint
from allotment.model.cluster import Device
from allotment.model.health import Condition, HardwareHealth, Part, Source
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import Instant
from tests.support.kube_api import KubeApi
from tests.support.kube_world import a_kubeconfig, a_node

PLAIN = a_node("n1", 0)
NAMED = replace(
    a_node("n2", 1),
    devices=tuple(Device(DeviceIndex(at), "gpu", uuid=f"d/n2/gpu-{at}") for at in range(2)),
)
BAD = Mark("PreferNoSchedule", "device 1 bad (gpu_ecc)")
THEIRS = Taint("theirs", "x", "NoExecute")


def out(*parts: tuple[int, int | None]) -> dict[Part, Condition]:
    found = [
        Condition(
            NodeId(node), HardwareHealth.BAD, Source.DRIVER, Instant(1), Instant(1),
            None if device is None else DeviceIndex(device), "gpu_ecc",
        )
        for node, device in parts
    ]  # fmt: skip
    return {each.part: each for each in found}


def kube(*taints: Taint, **notes: str) -> KubeNode:
    meta = Meta("n1", resource_version="7", annotations=notes or None)
    return KubeNode(metadata=meta, spec=NodeSpec(taints=taints or None))


def test_a_device_marks_its_node_softly_and_a_node_as_a_whole() -> None:
    assert wanted([PLAIN], out((0, 1)), has_rules=True).nodes == {"n1": BAD}
    whole = wanted([PLAIN], out((0, 1), (0, None)), has_rules=True).nodes["n1"]
    assert whole == Mark("NoSchedule", "node bad (gpu_ecc), device 1 bad (gpu_ecc)")
    assert not wanted([PLAIN], {}, has_rules=True).nodes


def test_a_device_with_a_name_has_a_rule_where_there_are_rules() -> None:
    with_rules = wanted([PLAIN, NAMED], out((1, 1)), has_rules=True)
    assert (with_rules.nodes, with_rules.devices) == ({}, {"d/n2/gpu-1"})
    without = wanted([PLAIN, NAMED], out((1, 1)), has_rules=False)
    assert (without.nodes, without.devices) == ({"n2": BAD}, set())


def test_a_rule_means_one_device_and_has_the_name_of_its_service() -> None:
    rule = rule_of("allot-1", "d/pool/a/gpu-1")
    spec = rule["spec"]
    assert isinstance(spec, dict)
    assert spec["deviceSelector"] == {"driver": "d", "pool": "pool/a", "device": "gpu-1"}
    assert name_of("allot-1", "d/p/x") != name_of("allot-2", "d/p/x")
    assert name_of("allot-1", "d/p/x").startswith("allot-1-")


def test_a_mark_changes_nothing_else_of_a_node() -> None:
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    ours = {"key": UNHEALTHY, "value": "me", "effect": "PreferNoSchedule"}
    mine = Taint(UNHEALTHY, "me", "PreferNoSchedule")
    first = patch_of(kube(), "me", BAD)
    assert first[:2] == [test, {"op": "add", "path": "/spec/taints", "value": [ours]}]
    beside = patch_of(kube(THEIRS), "me", BAD)
    assert beside[1] == {"op": "add", "path": "/spec/taints/-", "value": ours}
    again = patch_of(kube(THEIRS, mine), "me", BAD)
    assert again[1] == {"op": "replace", "path": "/spec/taints/1", "value": ours}
    gone = patch_of(kube(THEIRS, mine, **{UNHEALTHY: "x"}), "me", None)
    note = {"op": "remove", "path": "/metadata/annotations/allotment.io~1unhealthy"}
    assert gone == [test, {"op": "remove", "path": "/spec/taints/1"}, note]
    # Somebody took the taint off, and left the note.
    assert patch_of(kube(THEIRS, **{UNHEALTHY: "x"}), "me", None) == [test, note]


def test_what_others_set_or_took_off_stays_so() -> None:
    other = kube(Taint(UNHEALTHY, "you", "NoSchedule"))
    assert patch_of(other, "me", BAD) == patch_of(other, "me", None) == []
    assert patch_of(kube(THEIRS), "me", None) == []


def test_only_a_mark_of_another_service_closes_a_node() -> None:
    found = kube(Taint(UNHEALTHY, "me", "NoSchedule"))
    assert "tainted" in report_of(PLAIN, _ready(found), service="you").closed
    assert not report_of(PLAIN, _ready(found), service="me").closed


def test_a_mark_is_written_once_there_is_room_for_it_and_again_on_a_node_that_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, node = KubeApi(), "/api/v1/nodes/n1"
    monkeypatch.setattr(client_of, "Http", api.opened)
    client = Client(access_of(str(a_kubeconfig(tmp_path))), "ns", Contact("it", "pods"))
    marks = HealthMarks(client, "me", lambda: [PLAIN], lambda: out((0, 1)), lambda: 1.0)

    def is_marked(*there: KubeNode) -> bool:
        """Look at the nodes that are there; return whether one was marked."""
        api.patched.clear()
        if there:
            api.objects[node] = msgspec.to_builtins(there[0])
        asyncio.run(marks.look({each.metadata.name: each for each in there}))
        return node in api.patched

    taken, mine = kube(Taint(UNHEALTHY, "you", "NoSchedule")), kube(Taint(UNHEALTHY, "me"))
    assert not is_marked(taken)
    assert is_marked(kube())
    assert not is_marked(mine)
    assert not is_marked(kube())  # Somebody took it off.
    assert not is_marked()
    assert is_marked(kube())


def test_where_rules_may_not_be_made_a_device_is_marked_by_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, now = KubeApi(), [1.0]
    api.objects[RULES] = {"metadata": {}, "items": []}
    api.objects["/api/v1/nodes/n2"] = msgspec.to_builtins(kube())
    api.forbids = {("POST", RULES)}
    monkeypatch.setattr(client_of, "Http", api.opened)
    client = Client(access_of(str(a_kubeconfig(tmp_path))), "ns", Contact("it", "pods"))
    marks = HealthMarks(client, "me", lambda: [NAMED], lambda: out((1, 1)), lambda: now[0])

    def tried() -> int:
        """Look at the node, and return how often a rule was to be made."""
        api.asked.clear()
        asyncio.run(marks.look({"n2": kube()}))
        return api.asked.count(("POST", RULES))

    assert tried() == 1
    assert "/api/v1/nodes/n2" in api.patched
    assert tried() == 0
    now[0] += AGAIN_S
    assert tried() == 1


def _ready(found: KubeNode) -> KubeNode:
    ready = Heard(type="Ready", status="True")
    return replace(found, status=replace(found.status, conditions=(ready,)))
