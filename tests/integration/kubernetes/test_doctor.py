"""The first start of a service on a real Kubernetes, and what `allot doctor` says of it."""

from pathlib import Path

from tests.support.cluster import RealCluster
from tests.support.kubernetes import IMAGE, MARKS, NAMESPACE, Kubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS


def test_a_cluster_is_taken_as_it_is_and_its_rights_are_looked_at(
    kubernetes: Kubernetes, folder: Path
) -> None:
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    try:
        done = cluster.allot("up", "--kubernetes", str(kubernetes.kubeconfig))
        assert done.returncode == 0, done.stderr
        nodes = {node["name"]: node for node in cluster.get("/v1/nodes")}
        assert {name: len(node["devices"]) for name, node in nodes.items()} == {
            "n1": 4,
            "n2": 4,
        }
        refused = cluster.allot("run", "--", "true")
        assert "names no image" in refused.stderr
        job = cluster.submit(shell("echo hello", image=IMAGE))
        cluster.wait_for(job, "succeeded")
        said = cluster.allot("doctor").stdout
        assert "version 1.20" in said
        assert "that are needed, namespace allotment" in said
        kubernetes.kubectl("delete", "rolebinding", "allotment", "-n", NAMESPACE)
        said = cluster.allot("doctor").stdout
        for right in ("create pods/binding", "get pods/log", "create secrets"):
            assert f"no right to {right} in namespace allotment" in said
        assert "no right to list nodes" not in said
    finally:
        cluster.down()
        kubernetes.apply_manifests()
        kubernetes.clear()


def test_without_the_right_to_see_others_jobs_run_all_the_same(
    kubernetes: Kubernetes, folder: Path
) -> None:
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    rule = '[{"op": "remove", "path": "/rules/1"}]'
    kubernetes.kubectl("patch", "clusterrole", "allotment", "--type=json", "-p", rule)
    try:
        done = cluster.allot("up", "--kubernetes", str(kubernetes.kubeconfig))
        assert done.returncode == 0, done.stderr
        job = cluster.submit(shell("echo hello", image=IMAGE))
        cluster.wait_for(job, "succeeded")
        said = cluster.allot("doctor").stdout
        assert "no right to list pods in all namespaces: what others use is not counted" in said
    finally:
        cluster.down()
        kubernetes.apply_manifests()
        kubernetes.clear()
