"""The service in a pod of a real Kubernetes, as the manifests make it."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.cluster import RealCluster
from tests.support.kubernetes import IMAGE, MARKS, NAMED, NAMESPACE, WHY, Kubernetes

pytestmark = MARKS
Tree = dict[str, Any]

ROOT = Path(__file__).parents[3]
START_S = 240.0
"""A pod of the service begins, on a busy machine."""


def in_container(paths: dict[str, Path]) -> tuple[list[Tree], list[Tree]]:
    """Return volumes and mounts for folders of the node, such as this Python."""
    volumes = [
        {"name": f"h{number}", "hostPath": {"path": str(path.resolve())}}
        for number, path in enumerate(paths.values())
    ]
    mounts = [
        {"name": f"h{number}", "mountPath": at, "readOnly": True}
        for number, at in enumerate(paths)
    ]
    return volumes, mounts


def as_here(found: Tree, kubernetes: Kubernetes) -> Tree:
    """Return the Deployment for a cluster without kube-proxy, scheduler and registry: its image
    is made of what the node has."""
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {"/usr": Path("/usr"), "/lib": Path("/lib"), "/lib64": Path("/lib64")}
    for each in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):
        if not any(each == Path(at) or Path(at) in each.parents for at in paths):
            paths[str(each)] = each
    volumes, mounts = in_container(paths)
    pod["volumes"] += volumes
    container["volumeMounts"] += mounts
    container["env"] += [
        {"name": "PATH", "value": f"{sys.prefix}/bin:/usr/bin:/bin"},
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(kubernetes.port)},
    ]
    container["imagePullPolicy"] = "Never"
    pod |= {"hostNetwork": True, "nodeName": kubernetes.nodes[0]}
    return found


class InPod:
    """A service in a pod, asked as its administrator would."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes

    def allot(self, *words: str) -> str:
        return self.kubernetes.kubectl(
            "exec", "deploy/allotment", "-n", NAMESPACE, "--", "allot", *words
        )

    def names(self) -> list[str]:
        found = self.kubernetes.get(
            "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=allotment"
        )
        return [pod["metadata"]["name"] for pod in found["items"]]

    def is_ready(self) -> bool:
        found = self.kubernetes.get("deploy", "allotment", "-n", NAMESPACE)
        return found["status"].get("readyReplicas", 0) == 1


@pytest.fixture
def in_pod(kubernetes: Kubernetes) -> Iterator[InPod]:
    if NAMED:
        pytest.skip(f"{WHY}: the cluster that is named has no image with this Python")
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    made.chmod(0o777)  # a disk of the node is not given to the group of a pod
    words = ("kubernetes", "manifests", "--service", IMAGE, "--image", IMAGE)
    printed = RealCluster(made / "none", "").allot(*words)
    assert printed.returncode == 0, printed.stderr
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "allot-disk"},
        "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"],
                 "hostPath": {"path": str(made)}},
    }  # fmt: skip
    try:
        kubernetes.apply(volume)
        for each in YAML(typ="safe", pure=True).load_all(printed.stdout):
            is_it = each["kind"] == "Deployment"
            kubernetes.apply(as_here(each, kubernetes) if is_it else each)
        yield InPod(kubernetes)
    finally:
        for kind in ("deploy/allotment", "pvc/allotment", "configmap/allotment"):
            kubernetes.kubectl("delete", kind, "-n", NAMESPACE, "--ignore-not-found")
        kubernetes.clear()
        kubernetes.kubectl("delete", "pv", "allot-disk", "--ignore-not-found")
        shutil.rmtree(made, ignore_errors=True)


def test_a_service_in_a_pod_runs_jobs_and_finds_them_again_in_the_next(in_pod: InPod) -> None:
    kubernetes = in_pod.kubernetes
    kubernetes.until(in_pod.is_ready, "the service to be ready", START_S)
    in_pod.allot("run", "--detach", "--gpus", "1", "--", "sleep", "1000")
    kubernetes.until(lambda: "running" in in_pod.allot("ps"), "the job to run")
    assert "all" in in_pod.allot("doctor")
    before = in_pod.names()
    kubernetes.kubectl("delete", "pod", *before, "-n", NAMESPACE)
    kubernetes.until(
        lambda: in_pod.is_ready() and in_pod.names() != before, "the next one", START_S
    )
    assert "running" in in_pod.allot("ps")
    in_pod.allot("cancel", "last")
    kubernetes.until(lambda: "cancelled" in in_pod.allot("ps", "--all"), "the job to end")
