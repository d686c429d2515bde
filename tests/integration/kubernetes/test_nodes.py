"""Nodes of a real Kubernetes: closed on either side, used by others, silent, and gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, until
from tests.support.device_plugin import a_plugin
from tests.support.kubernetes import GPUS, MARKS, SILENT_S, Kubernetes
from tests.support.night import AT_NIGHT, at_night
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell
from tests.support.patience import PATIENCE_S

pytestmark = MARKS


def test_nodes_are_closed_on_either_side(cluster: OnKubernetes) -> None:
    kubernetes = cluster.kubernetes
    first, second = kubernetes.nodes
    kubernetes.kubectl("cordon", first)
    until(lambda: cluster.node(first)["state"] == "drained", "the cordon to be heard of")
    assert "cordoned in Kubernetes" in str(cluster.node(first))
    kubernetes.kubectl("uncordon", first)
    until(lambda: cluster.node(first)["state"] == "ready", "the end of the cordon")
    cluster.allot("drain", second, "--reason", "bad fan")

    def is_cordoned() -> bool:
        return bool(kubernetes.get("node", second)["spec"].get("unschedulable"))

    until(is_cordoned, "the drain to be seen in Kubernetes")
    cluster.allot("undrain", second)
    until(lambda: not is_cordoned(), "the end of the drain")
    until(lambda: cluster.node(second)["state"] == "ready", "the node to be ready")


def test_a_taint_closes_a_node_and_a_job_that_waits_for_it_says_so(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    first = kubernetes.nodes[0]
    with kubernetes.tainted(first, "theirs=x:NoSchedule"):
        said = "tainted in Kubernetes: theirs=x:NoSchedule"
        until(lambda: said in cluster.allot("nodes").stdout, "the taint to be heard of")
        both = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
        until(
            lambda: f"{first}: engine: {said}" in cluster.said("why", str(both)),
            "the job to say it",
        )
    cluster.wait_for(both, "succeeded")


def test_a_node_that_is_not_ready_takes_nothing_new_and_goes_on_with_what_runs(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    first = kubernetes.nodes[0]
    runs = cluster.submit(shell("sleep 1000", count=2, resources={"memory": "1200MiB"}))
    cluster.wait_for(runs, "running")
    with kubernetes.without_network(first):
        until(lambda: "not ready in Kubernetes" in str(cluster.node(first)), "it to be told")
        waits = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
        until(
            lambda: (
                f"{first}: engine: not ready in Kubernetes" in cluster.said("why", str(waits))
            ),
            "the reason",
        )
        assert "NetworkPluginNotReady" in cluster.said("why", str(waits))
        assert cluster.state_of(runs) == "running"
    cluster.wait_for(waits, "succeeded")
    assert len(cluster.job(runs)["attempts"]) == 1


def test_a_device_that_its_node_calls_unhealthy_is_given_to_nobody(
    cluster: OnKubernetes,
) -> None:
    kubernetes = cluster.kubernetes
    first = kubernetes.nodes[0]
    kubernetes.offer(first, 0)
    try:
        with a_plugin(kubernetes, first) as plugin:
            runs = cluster.submit(shell("echo $HAS", count=2, resources={"gpu": 4}))
            cluster.wait_for(runs, "succeeded")
            assert len(plugin.given) == 4
            plugin.say(unhealthy=1)
            used = lambda: (cluster.node(first).get("others") or {}).get("devices")  # noqa: E731
            until(lambda: used() == [["gpu", 1]], "the device to be counted out")
            assert "1 of them not offered there now" in cluster.allot("nodes").stdout
            fits = cluster.submit(shell("true", count=2, resources={"gpu": 3}))
            cluster.wait_for(fits, "succeeded")
            waits = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
            assert cluster.state_of(waits) == "queued"
            assert f"{first} (1 GPU)" in cluster.said("why", str(waits))
            plugin.say(unhealthy=0)
            cluster.wait_for(waits, "succeeded")
    finally:
        kubernetes.offer(first, GPUS)


def test_a_job_whose_node_was_rebooted_is_tried_again(cluster: OnKubernetes) -> None:
    kubernetes = cluster.kubernetes
    job = cluster.submit(shell("[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000", resources={"gpu": 1}))
    cluster.wait_for(job, "running")
    (pod,) = cluster.pods_of(job)
    kubernetes.reboot(pod["spec"]["nodeName"])
    cluster.wait_for(job, "succeeded")
    shown = cluster.allot("show", str(job)).stdout
    assert "its node was restarted" in shown
    assert "1 more for faults of the platform" in shown


def test_what_others_use_is_counted(cluster: OnKubernetes) -> None:
    first = cluster.kubernetes.nodes[0]
    cluster.occupy("theirs", first, 3)
    until(lambda: "others" in str(cluster.node(first)), "their pod to be heard of")
    small = cluster.submit(shell("true", resources={"gpu": 1}))
    both = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
    cluster.wait_for(small, "succeeded")
    assert cluster.state_of(both) == "queued"
    assert "others" in cluster.allot("why", str(both)).stdout
    cluster.kubernetes.kubectl("delete", "pod", "theirs", "-n", "default", "--grace-period=1")
    cluster.wait_for(both, "succeeded")


def test_nodes_join_and_leave_where_none_are_listed(
    kubernetes: Kubernetes, folder: Path
) -> None:
    (folder / "state").mkdir()
    text = f"engines: {{k8s: {{type: kubernetes, kubeconfig: {kubernetes.kubeconfig}}}}}\n"
    cluster = RealCluster(folder / "state", f"{text}tenants: {{lab: {{}}}}\n")

    def names() -> set[str]:
        return {node["name"] for node in cluster.get("/v1/nodes")}

    cluster.up()
    try:
        before = names()
        assert before >= {*kubernetes.nodes}
        kubernetes.add_node("n3")
        until(lambda: names() == before | {"n3"}, "the new node to join")
        kubernetes.kubectl("delete", "node", "n3")
        until(lambda: names() == before, "the node to leave")
    finally:
        cluster.down()
        kubernetes.kubectl("delete", "node", "n3", "--ignore-not-found")


@pytest.fixture
def silenced(cluster: OnKubernetes) -> Iterator[tuple[OnKubernetes, int, str]]:
    """A gang over both nodes, one of which went silent while it runs, and that node."""
    kubernetes = cluster.kubernetes
    script = "[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000"
    job = cluster.submit(shell(script, count=2, resources={"gpu": 3}))
    cluster.wait_for(job, "running")
    node = kubernetes.nodes[1]
    assert {pod["spec"]["nodeName"] for pod in cluster.pods_of(job)} == {*kubernetes.nodes}
    kubernetes.kill(f"{node}-kubelet")
    try:
        until(
            lambda: "silent" in str(cluster.node(node)),
            "the node to be called silent",
            PATIENCE_S + SILENT_S,
        )
        yield cluster, job, node
    finally:
        bring_back(kubernetes, node)


def bring_back(kubernetes: Kubernetes, node: str) -> None:
    if f"{node}-kubelet" not in kubernetes.running:
        kubernetes.again(f"{node}-kubelet")
    kubernetes.until(lambda: kubernetes.is_ready(node), f"{node} to be ready")
    kubernetes.offer(node, 4)


def test_a_gang_with_a_silent_node_is_not_run_twice_and_ends_as_a_whole(
    silenced: tuple[OnKubernetes, int, str],
) -> None:
    cluster, job, node = silenced
    other = cluster.submit(shell("echo on $ALLOT_NODE"))
    cluster.wait_for(other, "succeeded")
    assert node not in cluster.output(other)
    # Forgotten by the API, its pod is not known to be dead.
    pods = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in cluster.pods_of(job)}
    cluster.kubernetes.kubectl(
        "delete", "pod", pods[node], "-n", "allotment", "--force", "--grace-period=0"
    )
    until(lambda: len(cluster.pods_of(job)) == 1, "its pod to be forgotten")
    shown = cluster.job(job)
    assert shown["row"]["state"] == "running"
    assert len(shown["attempts"]) == 1
    assert "does not report" in str(shown["row"]["unheard"])
    # Its node is taken out of the cluster: what it did is over, and so is the whole gang.
    cluster.kubernetes.kubectl("delete", "node", node)
    cluster.wait_for(job, "queued")
    until(lambda: not cluster.pods_of(job), "the rest of the gang to be ended")
    assert "no such node" in cluster.allot("show", str(job)).stdout
    assert node in cluster.allot("why", str(job)).stdout
    bring_back(cluster.kubernetes, node)
    cluster.wait_for(job, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 2


def test_a_gang_with_a_node_that_comes_back_goes_on(
    silenced: tuple[OnKubernetes, int, str],
) -> None:
    cluster, job, node = silenced
    cluster.kubernetes.again(f"{node}-kubelet")
    until(lambda: cluster.node(node)["state"] == "ready", "the node to be back")
    shown = cluster.job(job)
    assert (shown["row"]["state"], len(shown["attempts"])) == ("running", 1)
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")


@pytest.mark.may_skip(AT_NIGHT)
@at_night
def test_a_gang_with_a_node_that_counts_as_dead_is_queued_again(
    kubernetes: Kubernetes, folder: Path
) -> None:
    (folder / "state").mkdir()
    cluster = OnKubernetes(folder / "state", kubernetes, ", force_after: 2s")
    node = kubernetes.nodes[1]
    cluster.up()
    try:
        script = "[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000"
        job = cluster.submit(shell(script, count=2, resources={"gpu": 3}))
        cluster.wait_for(job, "running")
        kubernetes.kill(f"{node}-kubelet")
        cluster.wait_for(job, "queued", seconds=PATIENCE_S + SILENT_S)
        shown = cluster.allot("show", str(job)).stdout
        assert f"node {node} was silent for longer than `force_after`" in shown
        bring_back(kubernetes, node)
        cluster.wait_for(job, "succeeded")
        assert len(cluster.job(job)["attempts"]) == 2
    finally:
        bring_back(kubernetes, node)
        cluster.down()
        kubernetes.clear()
