"""Names as long as they may be, and longer, through a real API server."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kubernetes.test_foreign_pods import a_pod
from tests.support.cluster import RealCluster, until
from tests.support.kubernetes import IMAGE, MARKS, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS

START = "x" * 115
TENANTS = f"{START}.tenant-1", f"{START}.tenant-2"
QUEUES = f"{START}.queue-1", f"{START}.queue-2"
SPACE = f"jobs-{'y' * 57}z"
"""As long as a namespace may be."""
TEAM = f"team-{'t' * 58}"
MORE = f", tenant_namespaces: {{far: {SPACE}}}, namespaces: {{{TEAM}: far}}"
CONFIG = f"""\
tenants:
  {TENANTS[0]}: {{queues: {{{QUEUES[0]}: {{}}, {QUEUES[1]}: {{}}}}}}
  {TENANTS[1]}: {{queues: {{{QUEUES[0]}: {{}}}}}}
  far: {{}}
"""


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[OnKubernetes]:
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    words = ("kubernetes", "manifests", "--jobs-of", f"far={SPACE}", "--tenant", f"{TEAM}=far")
    printed = RealCluster(made / "none", "").allot(*words)
    kubernetes.kubectl("apply", "-f", "-", text=printed.stdout)
    running = OnKubernetes(made / "state", kubernetes, MORE)
    text = running.config.read_text()
    running.config.write_text(text.replace("tenants: {lab: {}}\n", CONFIG))
    running.up()
    try:
        yield running
    finally:
        running.down()
        kubernetes.kubectl("delete", "namespace", TEAM, SPACE, "--wait=false")
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


def test_long_names_are_labels_that_stay_different(cluster: OnKubernetes) -> None:
    name = f"{START}.job-1..."[:128]
    of = [(TENANTS[0], QUEUES[0]), (TENANTS[0], QUEUES[1]), (TENANTS[1], QUEUES[0])]
    script = "sleep 1000"
    jobs = [
        cluster.submit({**shell(script), "name": name, "tenant": tenant, "queue": queue})
        for tenant, queue in of[:2]
    ]
    for job in jobs:
        cluster.wait_for(job, "running")
    cluster.allot("cancel", *map(str, jobs))
    labels = [cluster.pods_of(job)[0]["metadata"]["labels"] for job in jobs]
    assert {each["allotment.io/tenant"] for each in labels} == {
        labels[0]["allotment.io/tenant"]
    }
    assert labels[0]["allotment.io/queue"] != labels[1]["allotment.io/queue"]
    last = cluster.submit({**shell("true"), "tenant": of[2][0], "queue": of[2][1]})
    until(lambda: bool(cluster.pods_of(last)), "its pod")
    (pod,) = cluster.pods_of(last)
    assert pod["metadata"]["labels"]["allotment.io/tenant"] != labels[0]["allotment.io/tenant"]
    cluster.wait_for(last, "succeeded")


def test_names_beyond_what_is_accepted_are_refused_in_words(cluster: OnKubernetes) -> None:
    status, said = cluster.ask("POST", "/v1/jobs", {**shell("true"), "name": "n" * 129})
    assert status == 422
    assert "at most 128" in str(said)
    text = cluster.config.read_text()
    long = cluster.config.with_name("long.yaml")
    long.write_text(text.replace(f"{{far: {SPACE}}}", "'jobs-{tenant}'"))
    checked = cluster.allot("config", "check", str(long))
    assert checked.returncode != 0
    assert f"jobs-{TENANTS[0]} cannot be the name of a namespace" in checked.stderr
    assert "tenant_namespaces: {" in checked.stderr


def test_a_namespace_may_have_the_longest_name(cluster: OnKubernetes) -> None:
    job = cluster.submit({**shell("echo there", secrets={"KEY": "swordfish"}), "tenant": "far"})
    cluster.wait_for(job, "succeeded")
    assert cluster.output(job) == "there\n"
    assert not [pod for pod in cluster.kubernetes.pods() if "far" in str(pod["metadata"])]


def test_a_pod_of_others_may_have_the_longest_name(cluster: OnKubernetes) -> None:
    """A kubelet runs no pod of such a name: the folder of its logs would have a longer one."""
    name = f"{'p' * 199}-{'q' * 53}"
    words = {"allotment.io/gang-size": "2", "allotment.io/gang": "g" * 253}
    cluster.kubernetes.apply(a_pod(name, "true", 1, TEAM, annotations=words))

    def told() -> list[str]:
        events = cluster.kubernetes.get("events", "-n", TEAM)["items"]
        return [each["message"] for each in events if each["involvedObject"]["name"] == name]

    until(lambda: any("has 1 of its 2 pods" in words for words in told()), "the event")
    why = cluster.allot("why", f"{TEAM}/{name}")
    assert "has 1 of its 2 pods" in " ".join(why.stderr.split())
    runs = f"{'r' * 153}1"
    cluster.kubernetes.apply(a_pod(runs, "true", 1, TEAM))
    until(
        lambda: "succeeded" in cluster.allot("show", f"{TEAM}/{runs}").stdout,
        "one of the longest name that runs",
    )
    cluster.kubernetes.kubectl("delete", "pods", "--all", "-n", TEAM, "--wait=false")


def test_a_node_may_have_the_longest_name(kubernetes: Kubernetes, folder: Path) -> None:
    node = f"n{'o' * 251}1"
    kubernetes.add_node(node)
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    try:
        done = cluster.allot("up", "--kubernetes", str(kubernetes.kubeconfig))
        assert done.returncode == 0, done.stderr
        assert node in {each["name"] for each in cluster.get("/v1/nodes")}
        assert cluster.allot("drain", node, "--reason", "long").returncode == 0

        def is_cordoned() -> bool:
            return bool(kubernetes.get("node", node)["spec"].get("unschedulable"))

        until(is_cordoned, "the drain to be seen in Kubernetes")
        cluster.allot("down")
        done = cluster.allot("up")
        assert done.returncode == 0, done.stderr
        job = cluster.submit(shell("true", image=IMAGE))
        cluster.wait_for(job, "succeeded")
    finally:
        cluster.down()
        kubernetes.kubectl("delete", "node", node, "--ignore-not-found")
        kubernetes.clear()
