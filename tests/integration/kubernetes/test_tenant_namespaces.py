"""Tenants whose pods are in namespaces of their own, on a real Kubernetes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, until
from tests.support.kubernetes import MARKS, NAMESPACE, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS

MORE = ", tenant_namespaces: {vision: jobs-vision, lost: jobs-lost}"
TENANTS = "tenants: {lab: {}, vision: {}, lost: {}}\n"
VISION, LOST = "jobs-vision", "jobs-lost"


class Apart(OnKubernetes):
    """A service with a namespace for one tenant; that of another is missing."""

    def __init__(self, state: Path, kubernetes: Kubernetes) -> None:
        super().__init__(state, kubernetes, MORE)
        text = self.config.read_text()
        self.config.write_text(text.replace("tenants: {lab: {}}\n", TENANTS))

    def clear(self) -> None:
        super().clear()
        self.kubernetes.kubectl("delete", "pods,quota", "--all", "-n", VISION, "--wait=false")
        until(lambda: not self.there(), "its pods to be gone")

    def there(self) -> list[dict[str, Any]]:
        return self.kubernetes.get("pods", "-n", VISION)["items"]


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[Apart]:
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    words = ("kubernetes", "manifests", "--jobs-of", f"vision={VISION}")
    printed = RealCluster(made / "none", "").allot(*words)
    kubernetes.kubectl("apply", "-f", "-", text=printed.stdout)
    running = Apart(made / "state", kubernetes)
    running.up()
    try:
        yield running
    finally:
        running.down()
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


def of(tenant: str, script: str, **more: Any) -> dict[str, Any]:
    return {**shell(script, **more), "tenant": tenant}


def test_a_gang_runs_in_the_namespace_of_its_tenant_through_a_restart(cluster: Apart) -> None:
    secret = {"name": "pulls"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": "default", "namespace": VISION},
               "imagePullSecrets": [secret]}  # fmt: skip
    cluster.kubernetes.apply(account)
    gang = of("vision", "echo $SECRET; sleep 1000", count=2, secrets={"SECRET": "swordfish"})
    job, other = cluster.submit(gang), cluster.submit(of("lab", "sleep 1000"))
    for each in (job, other):
        cluster.wait_for(each, "running")
    pods = cluster.there()
    assert len(pods) == 2
    assert all(pod["spec"]["imagePullSecrets"] == [secret] for pod in pods)
    assert len(cluster.kubernetes.get("pods", "-n", NAMESPACE)["items"]) == 1
    assert not any(cluster.node(name)["others"] for name in cluster.kubernetes.nodes)
    until(lambda: cluster.output(job).count("***") == 2, "its output")
    done = cluster.allot("exec", str(job), "--", "sh", "-c", "echo $RANK; exit 7")
    assert (done.returncode, done.stdout) == (7, "0\n"), done.stderr
    cluster.kill()
    cluster.up()
    assert [cluster.state_of(each) for each in (job, other)] == ["running", "running"]
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.there(), "its pods to be gone")
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_quota_of_a_namespace_is_said_to_whom_it_refuses(cluster: Apart) -> None:
    meta, hard = {"name": "few", "namespace": VISION}, {"hard": {"pods": "1"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": hard}
    cluster.kubernetes.apply(quota)
    cluster.kubernetes.until(
        lambda: "used" in cluster.kubernetes.get("quota", "few", "-n", VISION)["status"],
        "the quota to be counted",
    )
    job = cluster.submit(of("vision", "true", count=2))
    until(lambda: "exceeded quota: few" in str(cluster.job(job)), "it to say so")
    cluster.kubernetes.kubectl("delete", "quota", "few", "-n", VISION)
    cluster.wait_for(job, "succeeded", seconds=180)


def test_a_namespace_that_is_missing_is_named(cluster: Apart) -> None:
    job = cluster.submit(of("lost", "true"))
    until(lambda: f"no namespace {LOST}" in str(cluster.job(job)), "it to say so")
    found = cluster.allot("doctor").stdout
    assert f"there is no namespace {LOST}, for tasks of lost" in found, found
    assert f"that are needed, namespace {VISION}" in found
