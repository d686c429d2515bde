"""Pods that others made on a real Kubernetes, placed by a service: what becomes of them."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS, Kubernetes
from tests.support.on_kubernetes import OnKubernetes

pytestmark = MARKS

HERE = "team-a"
MORE = ", namespaces: {team-a: [lab, lab/urgent], no-rights: lab}"
TENANTS = """\
tenants:
  lab: {guaranteed: {gpu: 4, cpu: 1, memory: 900MiB}, queues: {default: {}, urgent: {}}}
  own: {guaranteed: {gpu: 4, cpu: 1, memory: 900MiB}}
"""
Tree = dict[str, Any]


class Foreign(OnKubernetes):
    """A service that places the pods of a namespace."""

    def __init__(self, state: Path, kubernetes: Kubernetes) -> None:
        super().__init__(state, kubernetes, MORE)
        text = self.config.read_text()
        self.config.write_text(text.replace("tenants: {lab: {}}\n", TENANTS))

    def clear(self) -> None:
        everything = "jobs,pods,poddisruptionbudgets"
        for namespace in (HERE, "no-rights", "elsewhere"):
            self.kubernetes.kubectl(
                "delete", everything, "--all", "-n", namespace, "--wait=false"
            )
        until(lambda: not self.there(), "pods of others to be gone")
        super().clear()

    def there(self) -> list[Tree]:
        return self.kubernetes.get("pods", "-n", HERE)["items"]

    def make(self, name: str, script: str, gpus: int = 1, **more: Any) -> None:
        self.kubernetes.apply(a_pod(name, script, gpus, **more))

    def pod(self, name: str) -> Tree:
        return self.kubernetes.get("pod", name, "-n", HERE)

    def phase(self, name: str) -> str:
        return self.pod(name)["status"].get("phase", "")

    def scheduled(self, name: str, namespace: str = HERE) -> Tree:
        """Return the condition that says whether a pod has its place."""
        pod = self.kubernetes.get("pod", name, "-n", namespace)
        found = pod["status"].get("conditions", [])
        return next((each for each in found if each["type"] == "PodScheduled"), {})

    def waits_for(self, name: str, reason: str) -> str:
        """Wait until a pod says why it waits; return the sentence."""
        until(lambda: self.scheduled(name).get("reason") == reason, f"{name} to say {reason}")
        return self.scheduled(name)["message"]

    def row(self, name: str) -> Tree:
        """Return the newest job of that name."""
        found = [row for row in self.jobs() if row["name"] == f"{HERE}/{name}"]
        return max(found, key=lambda row: row["id"], default={})

    def until_phase(self, name: str, phase: str) -> None:
        until(lambda: self.phase(name) == phase, f"{name} to be {phase}")

    def until_state(self, name: str, state: str) -> None:
        until(lambda: self.row(name).get("state") == state, f"{name} to be {state}")


def a_pod(name: str, script: str, gpus: int = 1, namespace: str = HERE, **more: Any) -> Tree:
    """Return a pod for Allotment to place."""
    meta = {key: more[key] for key in ("labels", "annotations") if key in more}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": the_spec(script, gpus) | more.get("spec", {}),
    }


def the_spec(script: str, gpus: int) -> Tree:
    amounts = {"nvidia.com/gpu": gpus, "cpu": "50m", "memory": "16Mi"}
    return {
        "schedulerName": "allotment", "restartPolicy": "Never", "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
            "resources": {"limits": amounts},
        }],
    }  # fmt: skip


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[Foreign]:
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    for namespace in (HERE, "no-rights", "elsewhere"):
        kubernetes.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
    kubernetes.kubectl(
        "create", "rolebinding", "allotment", "-n", HERE,
        "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
    )  # fmt: skip
    running = Foreign(made / "state", kubernetes)
    running.up()
    try:
        yield running
    finally:
        running.down()
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def cluster(service: Foreign) -> Iterator[Foreign]:
    yield service
    service.clear()


def test_a_pod_is_placed_and_its_end_is_told(cluster: Foreign) -> None:
    cluster.make("one", "sleep 1")
    cluster.make("bad", "exit 3")
    cluster.until_phase("one", "Succeeded")
    cluster.until_state("one", "succeeded")
    cluster.until_state("bad", "failed")
    job = cluster.job(cluster.row("bad")["id"])
    assert job["diagnosis"]["code"] == "exit_code"
    assert job["row"]["tenant"] == "lab"
    assert job["row"]["user"] == "kubernetes/team-a"
    assert cluster.scheduled("one")["status"] == "True"


def test_a_gang_starts_when_all_its_pods_are_there(cluster: Foreign) -> None:
    words = {"allotment.io/gang": "duo", "allotment.io/gang-size": "2"}
    cluster.make("duo-0", "sleep 2", 4, annotations=words)
    said = cluster.waits_for("duo-0", "GangIncomplete")
    assert "has 1 of its 2 pods" in said
    told = cluster.allot("why", f"{HERE}/duo-0")
    assert "has 1 of its 2 pods" in told.stdout + told.stderr
    events = cluster.kubernetes.get("events", "-n", HERE)["items"]
    assert [e["reason"] for e in events if e["involvedObject"]["name"] == "duo-0"] == [
        "GangIncomplete"
    ]
    cluster.make("duo-1", "sleep 2", 4, annotations=words)
    cluster.until_state("duo", "succeeded")
    assert {cluster.pod(f"duo-{i}")["spec"]["nodeName"] for i in (0, 1)} == {"n1", "n2"}


def test_a_pod_says_what_it_waits_for_and_so_does_why(cluster: Foreign) -> None:
    cluster.make("large", "sleep 1000", 4)
    cluster.make("other", "sleep 1000", 4)
    cluster.until_phase("large", "Running")
    cluster.until_phase("other", "Running")
    cluster.make("late", "sleep 1", 3)
    said = cluster.waits_for("late", "Capacity")
    told = cluster.allot("why", f"{HERE}/late").stdout
    assert said.partition(": ")[2] in " ".join(told.split())
    cluster.kubernetes.kubectl("delete", "pod", "large", "-n", HERE)
    cluster.until_state("late", "succeeded")
    assert cluster.row("large")["state"] == "cancelled"


def test_a_service_that_was_killed_finds_all_again(cluster: Foreign) -> None:
    cluster.make("runs", "sleep 4", 4)
    cluster.make("fills", "sleep 1000", 4)
    cluster.until_phase("runs", "Running")
    cluster.until_phase("fills", "Running")
    cluster.make("waits", "sleep 1", 4)
    cluster.make("leaves", "sleep 1", 4)
    until(lambda: cluster.row("leaves").get("state") == "queued", "it to wait")
    before = {name: cluster.row(name)["id"] for name in ("runs", "fills", "waits", "leaves")}
    cluster.kill()
    cluster.kubernetes.kubectl("delete", "pod", "leaves", "-n", HERE)
    cluster.up()
    cluster.until_state("waits", "succeeded")
    cluster.until_state("leaves", "cancelled")
    after = {name: cluster.row(name)["id"] for name in before}
    assert after == before
    assert cluster.row("runs")["state"] == "succeeded"
    assert cluster.row("fills")["state"] == "running"
    assert cluster.row("fills")["attempt"] == 1
    assert not any(node["others"] for node in cluster.get("/v1/nodes"))
