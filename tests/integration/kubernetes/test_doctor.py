"""The first start of a service on a real Kubernetes, and what `allot doctor` says of it."""

import json
from pathlib import Path
from typing import Any

from allotment.backends.kubernetes.rights import NAMED, RIGHTS
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
        assert [len(nodes[name]["devices"]) for name in kubernetes.nodes] == [4, 4]
        refused = cluster.allot("run", "--", "true")
        assert "names no image" in refused.stderr
        job = cluster.submit(shell("echo hello", image=IMAGE))
        cluster.wait_for(job, "succeeded")
        said = cluster.allot("doctor").stdout
        assert "version 1." in said
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


def test_printed_manifests_are_enough_rights_and_no_more(
    kubernetes: Kubernetes, folder: Path
) -> None:
    (folder / "state").mkdir()
    allot = RealCluster(folder / "state", "").allot
    printed = allot("kubernetes", "manifests", "-n", "jobs", "--tenant", "default=lab").stdout
    try:
        kubernetes.kubectl("apply", "-f", "-", text=printed)
        nobody, account = folder / "nobody", folder / "account"
        kubernetes.kubectl("create", "serviceaccount", "nobody", "-n", "jobs")
        for path, name in ((nobody, "nobody"), (account, "allotment")):
            kubernetes.until(
                lambda path=path, name=name: kubernetes.write_account(path, "jobs", name),
                f"the token of {name}",
            )
        words = ("--kubeconfig", str(account), "-n", "jobs", "--tenant", "default=lab")
        said = allot("kubernetes", "doctor", *words)
        assert said.returncode == 0, said.stdout
        for namespace in ("jobs", "default"):
            assert "that are needed, namespace " + namespace in said.stdout
        lost = allot("kubernetes", "doctor", "--kubeconfig", str(nobody), "-n", "jobs")
        assert lost.returncode == 1
        for right in RIGHTS:
            assert f"no right to {right}" in lost.stdout
        anyone = allowed(kubernetes, nobody, "jobs")
        wanted = {(each.group, each.resource, each.verb) for each in (*RIGHTS, *NAMED)}
        assert allowed(kubernetes, account, "jobs") - anyone == wanted
    finally:
        kubernetes.kubectl("delete", "--ignore-not-found", "-f", "-", text=printed)
        kubernetes.apply_manifests()


def allowed(kubernetes: Kubernetes, who: Path, namespace: str) -> set[tuple[str, str, str]]:
    """Return what an account may do in a namespace, as the API server says it."""
    asked: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    words = (f"--kubeconfig={who}", "create", "--validate=false", "-o", "json", "-f", "-")
    said = json.loads(kubernetes.kubectl(*words, text=json.dumps(asked)))
    return {
        (group, resource, verb)
        for rule in said["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
