"""What real kubelets and Kubernetes' own scheduler end of our tasks: told, and tried again."""

from typing import Any

import pytest

from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS, NAMED, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

THEIRS = "its kubelets and its scheduler are not the tests' own"
pytestmark = [
    *MARKS,
    pytest.mark.may_skip(THEIRS),
    pytest.mark.skipif(bool(NAMED), reason=THEIRS),
]
ONCE = "[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000"
SHORT = {
    "evictionSoft": {"memory.available": "1Pi"},
    "evictionSoftGracePeriod": {"memory.available": "0s"},
    "evictionPressureTransitionPeriod": "1s",
}
"""More memory has to be free than there is. Hard, it would be kept from all pods as well."""


def node_of(cluster: OnKubernetes, job: int) -> str:
    cluster.wait_for(job, "running")
    (pod,) = cluster.pods_of(job)
    return pod["spec"]["nodeName"]


def test_a_node_that_is_short_of_memory_evicts_a_task_which_runs_elsewhere(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    job = cluster.submit(shell(ONCE, resources={"gpu": 4}))
    node = node_of(cluster, job)
    with kubernetes.kubelet_with(node, **SHORT):
        cluster.wait_for(job, "succeeded")
        said = cluster.said("show", str(job))
        assert "Its node was short of memory, and evicted it. [node_evicted]" in said
        assert "owner platform" in said
        assert "The node was low on resource: memory" in said
        assert "1 more for faults of the platform" in said
        first, second = cluster.job(job)["attempts"]
        assert first["tasks"][0]["node"] == node != second["tasks"][0]["node"]
        waits = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
        why = "short of memory, so its kubelet evicts pods (Kubernetes: MemoryPressure)"
        until(lambda: why in cluster.allot("nodes").stdout, "the node to say it itself")
        assert f"{node}: engine: {why}" in cluster.said("why", str(waits))
    cluster.wait_for(waits, "succeeded")


def test_a_task_that_fills_its_nodes_disk_is_ended_for_its_own_limit(
    cluster: OnKubernetes,
) -> None:
    fills = "head -c 40000000 /dev/zero >/tmp/full; sleep 1000"
    job = cluster.submit(shell(fills, resources={"disk": "8MiB"}, retry=2))
    cluster.wait_for(job, "failed")
    said = cluster.said("show", str(job))
    assert "It wrote more scratch data than its limit. [disk_limit]" in said
    assert "limit 8 MiB" in said
    assert "Attempt 2" not in said


def a_class(kubernetes: Kubernetes) -> None:
    kubernetes.apply({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "urgent"}, "value": 1000,
    })  # fmt: skip


def an_urgent_pod() -> dict[str, Any]:
    container = {
        "name": "c", "image": IMAGE, "command": ["sleep", "1000"],
        "resources": {"limits": {"nvidia.com/gpu": 4, "cpu": "100m", "memory": "16Mi"}},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "urgent", "namespace": "default"},
        "spec": {"priorityClassName": "urgent", "hostNetwork": True, "containers": [container],
                 "terminationGracePeriodSeconds": 1},
    }  # fmt: skip


def test_a_task_makes_room_for_an_urgent_pod_of_others_and_comes_again(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    a_class(kubernetes)
    jobs = [cluster.submit(shell(ONCE, resources={"gpu": 4})) for _ in kubernetes.nodes]
    for job in jobs:
        cluster.wait_for(job, "running")
    with kubernetes.a_scheduler():
        kubernetes.apply(an_urgent_pod())
        until(lambda: {"queued"} <= set(map(cluster.state_of, jobs)), "a task to make room")
        (job,) = (job for job in jobs if cluster.state_of(job) == "queued")
        until(
            lambda: kubernetes.get("pod", "urgent")["status"]["phase"] == "Running",
            "the pod that it made room for",
        )
    said = cluster.said("show", str(job))
    assert "[pod_preempted]" in said
    assert "owner platform" in said
    assert "others" in cluster.allot("why", str(job)).stdout
    assert len(cluster.job(job)["attempts"]) == 1, "it is not put in the place it made"
    kubernetes.kubectl("delete", "pod", "urgent", "-n", "default")
    cluster.wait_for(job, "succeeded")
    assert "1 more for faults of the platform" in cluster.said("show", str(job))
