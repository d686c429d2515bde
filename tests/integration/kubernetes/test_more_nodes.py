"""Nodes that are missing on a real Kubernetes: which pods say so; what an autoscaler does."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import operators
from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS, Kubernetes, needs_newer
from tests.support.on_kubernetes import OnKubernetes

pytestmark = [*MARKS, pytest.mark.may_skip(operators.WHY)]

HERE, POOR = "grow-a", "grow-b"
POOL = "allotment.io/pool"
CONFIG = """\
engines:
  k8s: {{type: kubernetes, kubeconfig: {kubeconfig}, namespaces: {{grow-a: lab, grow-b: poor}}}}
pools: {{small: {{price: 1.5, most: 5}}}}
tenants:
  lab: {{guaranteed: {{gpu: 4, cpu: 1, memory: 1GiB}}}}
  poor: {{guaranteed: {{gpu: 1, cpu: 1, memory: 1GiB}}, borrow: false}}
"""
Tree = dict[str, Any]


class Growing(OnKubernetes):
    """A service on the nodes that there are, which are of one pool."""

    def __init__(self, state: Path, kubernetes: Kubernetes) -> None:
        super().__init__(state, kubernetes)
        self.config.write_text(CONFIG.format(kubeconfig=kubernetes.kubeconfig))

    def pod(self, name: str, namespace: str = HERE) -> Tree:
        return self.kubernetes.get("pod", name, "-n", namespace)

    def waits_for(self, name: str, namespace: str = HERE) -> str:
        """Return the reason on a pod that waits; '' where none is there yet."""
        conditions = self.pod(name, namespace)["status"].get("conditions", [])
        found = (each for each in conditions if each["type"] == "PodScheduled")
        return next((each.get("reason", "") for each in found), "")


def a_gang(name: str, count: int, gpus: int, namespace: str = HERE) -> Iterator[Tree]:
    """The pods of a gang."""
    amounts = {"nvidia.com/gpu": gpus, "cpu": "50m", "memory": "16Mi"}
    for number in range(count):
        yield {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}", "namespace": namespace,
                "labels": {"allotment.io/gang": name, "allotment.io/gang-size": str(count)},
            },
            "spec": {
                "schedulerName": "allotment", "restartPolicy": "Never", "hostNetwork": True,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["sleep", "600"],
                    "resources": {"limits": amounts},
                }],
            },
        }  # fmt: skip


def may_place(namespace: str) -> Iterator[Tree]:
    """A namespace, and the rights of the service there."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "allotment-foreign-pods"}
    whose = {"kind": "ServiceAccount", "name": "allotment", "namespace": "allotment"}
    yield {
        "apiVersion": f"{group}/v1", "kind": "RoleBinding",
        "roleRef": role, "subjects": [whose],
        "metadata": {"name": "allotment", "namespace": namespace},
    }  # fmt: skip


@pytest.fixture
def growing(kubernetes: Kubernetes) -> Iterator[Growing]:
    for node in kubernetes.nodes:
        kubernetes.kubectl("label", "node", node, f"{POOL}=small", "--overwrite")
    for namespace in (HERE, POOR):
        for document in may_place(namespace):
            kubernetes.apply(document)
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    service = Growing(made / "state", kubernetes)
    try:
        service.up()
        yield service
    finally:
        for namespace in (HERE, POOR):
            words = ("pods", "--all", "-n", namespace, "--force", "--grace-period=0")
            kubernetes.kubectl("delete", *words)
        service.down()
        kubernetes.kubectl("delete", "nodes", "-l", f"{POOL}=small,made=here")
        for node in kubernetes.nodes:
            kubernetes.kubectl("label", "node", node, f"{POOL}-")
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


def a_node(name: str) -> Tree:
    """A node of the pool, ready for as long as nobody misses its kubelet."""
    amounts = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi", "pods": "10",
               "nvidia.com/gpu": "4"}  # fmt: skip
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {POOL: "small", "made": "here"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }  # fmt: skip


def test_only_what_more_nodes_would_let_start_asks_for_them(growing: Growing) -> None:
    kubernetes = growing.kubernetes
    for pod in (*a_gang("large", 3, 4), *a_gang("owed", 2, 1, POOR)):
        kubernetes.apply(pod)
    until(lambda: growing.waits_for("large-2") == "Unschedulable", "nodes to be asked for")
    until(lambda: growing.waits_for("owed-0", POOR) != "", "the quota to be named")
    assert growing.waits_for("owed-0", POOR) != "Unschedulable"
    found = json.loads(growing.allot("pools", "--json").stdout)
    (pool,), (job,) = found["pools"], found["jobs"]
    assert (pool["name"], pool["nodes"], pool["wanted"]) == ("small", 2, 1)
    assert job["ways"] == [{"add": [{"pool": "small", "nodes": 1}], "price_milli": 1_500}]

    kubernetes.apply(a_node("grown-1"))
    until(lambda: growing.pod("large-2")["spec"].get("nodeName"), "the gang to be placed")
    nodes = {growing.pod(f"large-{at}")["spec"]["nodeName"] for at in range(3)}
    assert nodes == {*kubernetes.nodes, "grown-1"}


KWOK = """\
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: made}
nodes: {skipTaint: true}
configmap: {name: kwok-templates}
kwok: {}
"""


def test_an_autoscaler_adds_just_the_nodes_that_are_missing(
    growing: Growing, folder: Path
) -> None:
    needs_newer()
    operators.skip_without("cluster-autoscaler")
    kubernetes = growing.kubernetes
    group = "cluster-autoscaler.kwok.nodegroup"
    template = a_node("template")
    template["metadata"]["annotations"] = {
        f"{group}/min-count": "0", f"{group}/max-count": "5", f"{group}/name": "here",
    }  # fmt: skip
    templates = {"apiVersion": "v1", "kind": "List", "items": [template]}
    for name, key, text in (
        ("kwok-provider-config", "config", KWOK),
        ("kwok-templates", "templates", json.dumps(templates)),
    ):
        kubernetes.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {key: text},
             "metadata": {"name": name, "namespace": "kube-system"}}
        )  # fmt: skip
    options = (
        "--cloud-provider=kwok", f"--kubeconfig={kubernetes.admin}", "--scan-interval=2s",
        "--namespace=kube-system", "--leader-elect=false", "--v=4", "--address=127.0.0.1:0",
        "--scale-down-enabled=false",
    )  # fmt: skip
    env = {
        "KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(kubernetes.admin),
        "POD_NAMESPACE": "kube-system",
    }  # fmt: skip
    with operators.running(folder, "cluster-autoscaler", options, env):
        for pod in (*a_gang("owed", 2, 1, POOR), *a_gang("large", 4, 4)):
            kubernetes.apply(pod)
        until(lambda: growing.pod("large-3")["spec"].get("nodeName"), "the gang to be placed")
        names = {growing.pod(f"large-{at}")["spec"]["nodeName"] for at in range(4)}
        added = names - {*kubernetes.nodes}
        assert len(added) == 2
        assert all(name.startswith("here-") for name in added)
        nodes = kubernetes.get("nodes", "-l", "made=here")["items"]
        assert {node["metadata"]["name"] for node in nodes} == added
        assert not growing.pod("owed-0", POOR)["spec"].get("nodeName")
