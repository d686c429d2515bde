"""Hardware that is out of use here is marked in a real Kubernetes, with our rights alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, until
from tests.support.kube_devices import NVIDIA, a_device, a_slice
from tests.support.kubernetes import MARKS, Kubernetes, needs_newer
from tests.support.on_kubernetes import OnKubernetes

pytestmark = MARKS

KEY = "allotment.io/unhealthy"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"


def taints(kubernetes: Kubernetes, node: str) -> dict[str, str]:
    """Return the effect of each taint of a node."""
    found = kubernetes.get("node", node)["spec"].get("taints") or ()
    return {taint["key"]: taint["effect"] for taint in found}


def test_a_node_is_tainted_for_what_is_out_of_use_and_for_no_longer(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    node = kubernetes.nodes[0]
    with kubernetes.tainted(node, "theirs=x:PreferNoSchedule"):
        cluster.allot("health", "bad", f"{node}:1", "--because", "ECC")
        soft = {"theirs": "PreferNoSchedule", KEY: "PreferNoSchedule"}
        until(lambda: taints(kubernetes, node) == soft, "the mark of a device")
        note = kubernetes.get("node", node)["metadata"]["annotations"][KEY]
        assert note == "device 1 bad (declared)"
        assert cluster.node(node)["state"] == "ready"

        cluster.allot("health", "bad", node)
        until(lambda: taints(kubernetes, node)[KEY] == "NoSchedule", "the mark of the node")
        assert "tainted in Kubernetes" not in str(cluster.node(node))

        cluster.allot("down")
        cluster.up()
        cluster.allot("health", "ok", node)
        mine = {"theirs": "PreferNoSchedule"}
        until(lambda: taints(kubernetes, node) == mine, "the mark to be taken off")
        assert KEY not in kubernetes.get("node", node)["metadata"]["annotations"]


@pytest.fixture
def named(kubernetes: Kubernetes, folder: Path) -> Iterator[RealCluster]:
    """A service on nodes of which the first has devices with names."""
    needs_newer()
    head = {"apiVersion": "resource.k8s.io/v1"}
    node = kubernetes.nodes[0]
    plain = [a_slice(node, a_device("gpu-0"), a_device("gpu-1")), NVIDIA]
    for kind, found in zip(("ResourceSlice", "DeviceClass"), plain, strict=True):
        meta = {"name": found["metadata"]["name"]}
        spec = _qualified(found["spec"]) if kind == "ResourceSlice" else found["spec"]
        kubernetes.apply({**head, "kind": kind, "metadata": meta, "spec": spec})
    (folder / "state").mkdir()
    text = f"engines: {{k8s: {{type: kubernetes, kubeconfig: {kubernetes.kubeconfig}}}}}\n"
    cluster = RealCluster(folder / "state", f"{text}tenants: {{lab: {{}}}}\n")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        kubernetes.kubectl("delete", "resourceslice,deviceclass", "--all")
        kubernetes.clear()


def _qualified(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a slice as it is published: without what its API server refuses."""
    root = "resource.kubernetes.io/pcieRoot"
    devices = [
        {**each, "attributes": {k: v for k, v in each["attributes"].items() if k != root}}
        for each in spec["devices"]
    ]
    return {**spec, "devices": devices}


def test_a_device_with_a_name_is_tainted_by_a_rule(
    kubernetes: Kubernetes, named: RealCluster
) -> None:
    node = kubernetes.nodes[0]

    def rules() -> list[dict[str, Any]]:
        return kubernetes.ask("GET", RULES)["items"]

    named.allot("health", "bad", f"{node}:1")
    until(lambda: len(rules()) == 1, "the rule to be made")
    (rule,) = rules()
    assert rule["spec"]["deviceSelector"] == {
        "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-1"
    }  # fmt: skip
    taint = rule["spec"]["taint"]
    assert (taint["key"], taint["effect"]) == (KEY, "NoSchedule")
    assert KEY not in taints(kubernetes, node)

    named.allot("down")
    named.up()
    named.allot("health", "ok", f"{node}:1")
    until(lambda: not rules(), "the rule to be taken off")


def test_without_the_right_to_rules_a_device_is_marked_by_its_node(
    kubernetes: Kubernetes, named: RealCluster
) -> None:
    node = kubernetes.nodes[0]
    rules = kubernetes.get("clusterrole", "allotment")["rules"]
    (at,) = (at for at, each in enumerate(rules) if "devicetaintrules" in each["resources"])
    may = [{"op": "replace", "path": f"/rules/{at}/verbs", "value": ["list"]}]
    words = ("patch", "clusterrole", "allotment", "--type=json", "-p", json.dumps(may))
    kubernetes.kubectl(*words)
    try:
        named.allot("health", "bad", f"{node}:1")
        soft = {KEY: "PreferNoSchedule"}
        until(lambda: taints(kubernetes, node) == soft, "the mark of the node")
        assert not kubernetes.ask("GET", RULES)["items"]
        said = named.allot("doctor").stdout
        for verb in ("create", "delete"):
            why = "devices that are out of use here are marked by their nodes"
            assert f"no right to {verb} devicetaintrules: {why}" in said
        named.allot("health", "ok", f"{node}:1")
        until(lambda: not taints(kubernetes, node), "the mark to be taken off")
    finally:
        kubernetes.apply_manifests()
