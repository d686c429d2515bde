"""Pods that are told their devices, on real kubelets that count none: what containers see."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.integration.kubernetes.test_foreign_pods import TENANTS, a_pod
from tests.integration.kubernetes.test_operators import GONE, apply_surely
from tests.support import operators
from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, IS_NEWER, MARKS, NAMED, WHY, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS

HERE = "team-hived"
MORE = f', visible: "*", namespaces: {{{HERE}: lab}}, schedulers: hivedscheduler'
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
NOTE = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
SAYS = f"echo has ${VARIABLE}; sleep 1000"


class Told(OnKubernetes):
    """A service whose nodes offer nothing that a kubelet could count."""

    def __init__(self, state: Path, kubernetes: Kubernetes) -> None:
        super().__init__(state, kubernetes, MORE)
        text = self.config.read_text()
        self.config.write_text(text.replace("tenants: {lab: {}}\n", TENANTS))

    def has(self, job: int) -> set[str]:
        """Return what a running job says it has."""
        until(lambda: "has" in self.output(job), f"job {job} to say what it has")
        return set(self.output(job).split()[-1].split(","))

    def clear(self) -> None:
        self.kubernetes.kubectl("delete", "pods", "--all", "-n", HERE, "--wait=false")
        super().clear()
        until(lambda: not self.kubernetes.get("pods", "-n", HERE)["items"], "pods to be gone")


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[Told]:
    if NAMED:
        pytest.skip(f"{WHY}: the nodes of the cluster that is named may have a device plugin")
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}})
    kubernetes.kubectl(
        "create", "rolebinding", "allotment", "-n", HERE,
        "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
    )  # fmt: skip
    for node in kubernetes.nodes:
        kubernetes.offer(node, 0)
    running = Told(made / "state", kubernetes)
    running.up()
    try:
        yield running
    finally:
        running.down()
        kubernetes.clear()
        for node in kubernetes.nodes:
            kubernetes.offer(node, 4)
        shutil.rmtree(made, ignore_errors=True)


def of_hived(name: str, script: str, **more: Any) -> dict[str, Any]:
    """Return a pod of HiveD's clients that is to have two devices."""
    spec = '{"virtualCluster": "lab", "priority": 1, "leafCellNumber": 2}'
    pod = a_pod(name, script, 0, HERE, annotations={SPEC: spec} | more)
    (container,) = pod["spec"]["containers"]
    told = {"fieldRef": {"fieldPath": f"metadata.annotations['{NOTE}']"}}
    container["env"] = [{"name": VARIABLE, "valueFrom": told}]
    container["resources"]["limits"].pop("nvidia.com/gpu")
    pod["spec"]["schedulerName"] = "hivedscheduler"
    return pod


def has(cluster: Told, pod: str) -> set[str]:
    """Return what a pod of others says it has."""
    said = cluster.kubernetes.kubectl("logs", pod, "-n", HERE)
    return set(said.split()[-1].split(","))


def test_pods_of_one_node_get_disjoint_devices_whatever_their_jobs_say(cluster: Told) -> None:
    hostile = shell(SAYS, resources={"gpu": 2, "cpu": "100m"}, env={VARIABLE: "all"})
    plain = shell(SAYS, resources={"gpu": 2, "cpu": "100m"})
    jobs = [cluster.submit(each) for each in (hostile, plain, plain, hostile)]
    for job in jobs:
        cluster.wait_for(job, "running")
    on: dict[str, list[str]] = {}
    for job in jobs:
        (pod,) = cluster.pods_of(job)
        devices = cluster.has(job)
        assert set(pod["metadata"]["annotations"]["allotment.io/devices"].split(",")) == devices
        on.setdefault(pod["spec"]["nodeName"], []).extend(devices)
    assert on.keys() == set(cluster.kubernetes.nodes)
    assert all(sorted(devices) == ["0", "1", "2", "3"] for devices in on.values())
    none = cluster.submit(shell(SAYS, resources={"gpu": 0, "cpu": "100m"}))
    cluster.wait_for(none, "running")
    assert cluster.has(none) == {"void"}
    assert "visible, told to each pod by" in cluster.allot("doctor").stdout


def test_a_pod_of_hived_gets_what_is_free_over_what_it_says_itself(cluster: Told) -> None:
    cluster.kubernetes.apply(of_hived("first", SAYS, **{NOTE: "0,1,2,3"}))
    cluster.kubernetes.apply(of_hived("second", SAYS))

    def are_told() -> bool:
        return all("has" in cluster.kubernetes.kubectl("logs", each, "-n", HERE) for each in
                   ("first", "second"))  # fmt: skip

    def phases() -> list[str]:
        pods = cluster.kubernetes.get("pods", "-n", HERE)["items"]
        return [pod["status"]["phase"] for pod in pods]

    until(lambda: phases() == ["Running", "Running"], "both to run")
    until(are_told, "both to say what they have")
    pods = cluster.kubernetes.get("pods", "-n", HERE)["items"]
    both = [(pod["spec"]["nodeName"], each) for pod in pods
            for each in has(cluster, pod["metadata"]["name"])]  # fmt: skip
    assert len(both) == len(set(both)) == 4


def test_what_pods_of_others_were_told_is_not_given_again(cluster: Told) -> None:
    first, second = cluster.kubernetes.nodes
    theirs = a_pod("theirs", "sleep 1000", 0, "default", annotations={NOTE: "0,2"})
    theirs["spec"] |= {"nodeName": first, "schedulerName": "theirs"}
    theirs["spec"]["containers"][0]["resources"]["limits"].pop("nvidia.com/gpu")
    cluster.kubernetes.apply(theirs)
    until(lambda: cluster.node(first)["others"], "what others have to be counted")
    jobs = [cluster.submit(shell(SAYS, resources={"gpu": 1, "cpu": "100m"})) for _ in range(6)]
    for job in jobs:
        cluster.wait_for(job, "running")
    placed = [(cluster.pods_of(job)[0]["spec"]["nodeName"], cluster.has(job)) for job in jobs]
    mine = {(node, device) for node, devices in placed for device in devices}
    assert mine == {(first, "1"), (first, "3"), *((second, str(each)) for each in range(4))}


def test_a_pod_that_asks_its_kubelet_for_devices_is_refused_there(cluster: Told) -> None:
    cluster.kubernetes.apply(a_pod("counted", "true", 1, HERE))

    def said() -> str:
        pod = cluster.kubernetes.get("pod", "counted", "-n", HERE)
        return str(pod["status"].get("conditions", ""))

    until(lambda: "are told their devices, as those of HiveD are" in said(), "it to say why")


FRAMEWORK = Path(__file__).parents[2] / "fixtures" / "foreign" / "framework.yaml"
WORKERS = [f"worker {index} of hives sees devices" for index in range(3)]


def framework() -> str:
    """Return a file as HiveD's clients write it for FrameworkController."""
    text = FRAMEWORK.read_text().replace("localhost/busybox:1", IMAGE)
    return text.replace("virtualCluster: us", "virtualCluster: lab")


def test_a_framework_runs_without_its_controller(cluster: Told) -> None:
    done = cluster.allot("submit", "-", input=framework())
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[0])
    cluster.wait_for(job, "succeeded")
    lines = {line.rpartition("| ")[2] for line in cluster.output(job).splitlines()}
    # The watcher may still be at work when all workers have succeeded.
    assert sorted(lines - {"watch 0 of hives sees devices"}) == WORKERS


@pytest.mark.may_skip(f"{operators.WHY}; {GONE}")
@pytest.mark.skipif(IS_NEWER, reason=GONE)
def test_the_pods_that_its_controller_makes_of_a_framework_say_the_same(
    cluster: Told, folder: Path
) -> None:
    operators.skip_without("frameworkcontroller")
    kubernetes = cluster.kubernetes
    (folder / "frameworkcontroller.yaml").write_text("{}\n")
    text = framework().replace('devices}"', 'devices}"; sleep 1000')
    (document,) = YAML(typ="safe").load_all(text)  # pyright: ignore[reportUnknownMemberType]
    document["metadata"]["namespace"] = HERE
    for role in document["spec"]["taskRoles"]:
        # Refused here, where no PriorityClass says it.
        role["task"]["pod"]["spec"].pop("priority", None)
        more = {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
        role["task"]["pod"]["spec"] |= more
    env = {"KUBECONFIG": str(kubernetes.admin)}
    names = [f"hives-worker-{index}" for index in range(3)]

    def said() -> list[str]:
        with contextlib.suppress(RuntimeError):
            return [kubernetes.kubectl("logs", pod, "-n", HERE).strip() for pod in names]
        return []

    try:
        with operators.running(folder, "frameworkcontroller", (), env):
            apply_surely(kubernetes, document)
            until(lambda: said() == WORKERS, "its pods to say what they see")
            jobs = {row["name"] for row in cluster.jobs()}
            assert {f"{HERE}/{name}" for name in names} <= jobs
    finally:
        definition = "frameworks.frameworkcontroller.microsoft.com"
        kubernetes.kubectl("delete", "crd", definition, "--wait=false", "--ignore-not-found")
