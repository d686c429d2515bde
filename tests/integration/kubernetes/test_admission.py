"""What a real Kubernetes does not let in: nothing half of it runs, and the reason is told."""

from typing import Any

from tests.support.cluster import until
from tests.support.kubernetes import MARKS, NAMESPACE
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell
from tests.support.webhook import BROKEN, a_webhook

pytestmark = MARKS


def says(cluster: OnKubernetes, job: int, word: str) -> None:
    """Wait until `allot why` says something of a job, and its page too."""
    until(lambda: word in cluster.allot("why", str(job)).stdout, f"why to say {word!r}")
    assert word in str(cluster.job(job)["attempts"][0])


def ran(cluster: OnKubernetes, job: int) -> list[str]:
    """Return the tasks that were ever put on a node."""
    attempts = cluster.job(job)["attempts"]
    started = [task for each in attempts for task in each["tasks"] if task.get("started")]
    pods = [pod for pod in cluster.pods_of(job) if pod["spec"].get("nodeName")]
    return [str(each) for each in (*started, *pods)]


def test_a_gang_beyond_a_quota_waits_whole_and_says_so(cluster: OnKubernetes) -> None:
    kubernetes = cluster.kubernetes
    kubernetes.apply({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": NAMESPACE}, "spec": {"hard": {"pods": "1"}},
    })  # fmt: skip

    def is_counted() -> bool:
        found = kubernetes.get("resourcequota", "few", "-n", NAMESPACE)
        return "pods" in found.get("status", {}).get("used", {})

    try:
        until(is_counted, "the quota to be in force")
        job = cluster.submit(shell("echo ran", count=2, resources={"gpu": 1}))
        says(cluster, job, "exceeded quota")
        assert not ran(cluster, job)
        assert cluster.state_of(job) in {"queued", "starting", "stopping"}
    finally:
        kubernetes.kubectl("delete", "resourcequota", "few", "-n", NAMESPACE)
    cluster.wait_for(job, "succeeded")
    assert len(cluster.output(job).splitlines()) == 2


def test_what_a_webhook_refuses_is_told_in_its_words(cluster: OnKubernetes) -> None:
    def refuses(pod: dict[str, Any]) -> str:
        labels = pod["metadata"].get("labels") or {}
        is_second = labels.get("allotment.io/task") == "main.1"
        return "images of that registry are not signed" if is_second else ""

    with a_webhook(cluster.kubernetes, refuses):
        gang = cluster.submit(shell("echo ran", count=2, resources={"gpu": 1}))
        says(cluster, gang, "images of that registry are not signed")
        assert not ran(cluster, gang)
        alone = cluster.submit(shell("echo fine"))
        cluster.wait_for(alone, "succeeded")
    cluster.wait_for(gang, "succeeded")


def test_a_webhook_that_is_broken_is_told_and_keeps_nothing_else(cluster: OnKubernetes) -> None:
    def refuses(pod: dict[str, Any]) -> str:
        labels = pod["metadata"].get("labels") or {}
        return BROKEN if labels.get("allotment.io/task") == "main.1" else ""

    with a_webhook(cluster.kubernetes, refuses):
        gang = cluster.submit(shell("echo ran", count=2, resources={"gpu": 1}))
        says(cluster, gang, "failed calling webhook")
        assert not ran(cluster, gang)
        alone = cluster.submit(shell("echo fine"))
        cluster.wait_for(alone, "succeeded")
    cluster.wait_for(gang, "succeeded")
