"""Pods that others made on a real Kubernetes, placed by a service: what becomes of them."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, IS_NEWER, MARKS, Kubernetes, needs_newer
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS

HERE = "team-a"
MORE = ", namespaces: {team-a: [lab, lab/urgent], no-rights: lab}, schedulers: hivedscheduler"
BUDGETS = "policy/v1" if IS_NEWER else "policy/v1beta1"
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

    def remove(self, *names: str) -> None:
        """Have pods deleted, and do not wait for it: kubelets take ten seconds."""
        words = ("-n", HERE, "--wait=false")
        self.kubernetes.kubectl("delete", *(f"pod/{name}" for name in names), *words)

    def clear(self) -> None:
        for namespace in (HERE, "no-rights", "elsewhere"):
            words = ("--all", "-n", namespace, "--wait=false")
            self.kubernetes.kubectl("delete", "jobs,pods,poddisruptionbudgets", *words)
        super().clear()
        until(lambda: not self.there(), "pods of others to be gone")

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
        running.clear()
    finally:
        running.down()
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def cluster(service: Foreign) -> Foreign:
    """The service; each test leaves nothing behind that runs on."""
    return service


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


def test_a_pod_of_hived_is_placed_as_it_is(cluster: Foreign) -> None:
    spec = "{virtualCluster: lab, priority: 0, leafCellNumber: 1}"
    words = {"hivedscheduler.microsoft.com/pod-scheduling-spec": spec}
    cluster.make("hived", "true", annotations=words, spec={"schedulerName": "hivedscheduler"})
    cluster.until_phase("hived", "Succeeded")
    cluster.until_state("hived", "succeeded")


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
    assert {cluster.pod(f"duo-{i}")["spec"]["nodeName"] for i in (0, 1)} == {
        *cluster.kubernetes.nodes
    }


def test_pods_of_one_gang_that_disagree_on_its_size_say_so_and_wait(cluster: Foreign) -> None:
    words = {"allotment.io/gang": "odd", "allotment.io/gang-size": "2"}
    cluster.make("odd-0", "sleep 1", 1, annotations=words)
    cluster.make("odd-1", "sleep 1", 1, annotations={**words, "allotment.io/gang-size": "3"})
    said = cluster.waits_for("odd-1", "GangDisagrees")
    assert f"odd-0 claims 2 pods for lab at priority 100, {HERE}/odd-1 3 pods" in said
    told = cluster.allot("why", f"{HERE}/odd-0")
    assert "pods of gang team-a/odd do not agree" in " ".join(told.stderr.split())
    assert not any(cluster.pod(f"odd-{i}")["spec"].get("nodeName") for i in (0, 1))
    cluster.remove("odd-1")
    cluster.make("odd-2", "sleep 1", 1, annotations=words)
    cluster.until_state("odd", "succeeded")


def test_a_pod_says_what_it_waits_for_also_after_the_service_was_killed(
    cluster: Foreign,
) -> None:
    cluster.make("runs", "sleep 12", 4)
    cluster.make("fills", "sleep 1000", 4)
    cluster.until_phase("fills", "Running")
    cluster.make("waits", "sleep 1", 4)
    said = cluster.waits_for("waits", "Capacity")
    told = cluster.allot("why", f"{HERE}/waits").stdout
    assert said.partition(": ")[2] in " ".join(told.split())
    cluster.make("leaves", "sleep 1", 4)
    until(lambda: cluster.row("leaves").get("state") == "queued", "it to wait as well")
    for verb in ("show", "why", "events", "eta"):
        told = cluster.allot(verb, f"{HERE}/leaves")
        assert told.returncode == 0, (verb, told.stderr)
    before = {name: cluster.row(name)["id"] for name in ("runs", "fills", "waits", "leaves")}
    cluster.kill()
    cluster.remove("leaves")
    cluster.up()
    cluster.until_state("waits", "succeeded")
    cluster.until_state("leaves", "cancelled")
    assert {name: cluster.row(name)["id"] for name in before} == before
    assert cluster.row("runs")["state"] == "succeeded"
    assert cluster.row("fills")["state"] == "running"
    assert cluster.row("fills")["attempt"] == 1
    assert not any(node["others"] for node in cluster.get("/v1/nodes"))
    cluster.remove("fills")
    cluster.until_state("fills", "cancelled")


def a_job(name: str, script: str, gpus: int, **words: str) -> Tree:
    """Return a Job of two pods, as the batch API has it."""
    template = {"metadata": {"annotations": words, "labels": {"of": name}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": HERE},
        "spec": {
            "parallelism": 2, "completions": 2,
            "template": {**template, "spec": the_spec(script, gpus)},
        },
    }  # fmt: skip


def test_a_job_of_the_batch_api_is_a_gang_where_it_says_so(cluster: Foreign) -> None:
    words = {"allotment.io/gang-size": "2", "allotment.io/queue": "urgent"}
    cluster.kubernetes.apply(a_job("train", "sleep 1", 4, **words))

    def completed() -> bool:
        found = cluster.kubernetes.get("job", "train", "-n", HERE)["status"]
        return found.get("succeeded") == 2

    until(completed, "the Job to be complete")
    (row,) = [row for row in cluster.jobs() if row["name"].startswith(f"{HERE}/train.")]
    until(lambda: cluster.state_of(row["id"]) == "succeeded", "its job to have succeeded")
    assert (row["tasks"], row["queue"]) == (2, "urgent")


def test_pods_of_a_plain_job_are_placed_one_by_one(cluster: Foreign) -> None:
    """An indexed one where the cluster knows them: it says nothing of a gang."""
    made = a_job("plain", 'test "${JOB_COMPLETION_INDEX-0}" -lt 3', 4)
    made["spec"] |= {"parallelism": 3, "completions": 3}
    if IS_NEWER:
        made["spec"]["completionMode"] = "Indexed"
    cluster.kubernetes.apply(made)
    until(
        lambda: (
            cluster.kubernetes.get("job", "plain", "-n", HERE)["status"].get("succeeded") == 3
        ),
        "the Job to be complete",
    )
    rows = [row for row in cluster.jobs() if row["name"].startswith(f"{HERE}/plain-")]
    assert [row["tasks"] for row in rows] == [1, 1, 1]
    ids = {row["id"] for row in rows}
    until(lambda: {cluster.state_of(job) for job in ids} == {"succeeded"}, "their jobs to end")


def a_kind(group: str, version: str, kind: str) -> Tree:
    """Return the definition of a kind of objects in which anything may stand."""
    name = kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{name}s.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": f"{name}s", "kind": kind, "singular": name},
            "versions": [{
                "name": version, "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": True,
                }},
            }],
        },
    }  # fmt: skip


def test_pods_of_an_operator_wait_for_what_their_pod_group_says(cluster: Foreign) -> None:
    cluster.kubernetes.apply(a_kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup"))
    label = {"scheduling.x-k8s.io/pod-group": "mpi"}
    cluster.make("mpi-launcher", "sleep 2", 0, labels=label)
    cluster.make("mpi-worker-0", "sleep 1000", 3, labels=label)
    until(  # First it is said that it is looked for.
        lambda: "there is no podgroups mpi" in cluster.waits_for("mpi-launcher", "GangUnknown"),
        "it to be said what there is not",
    )
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "mpi", "namespace": HERE}, "spec": {"minMember": 3},
    }  # fmt: skip
    until(lambda: _made(cluster, group), "the kind of pod groups to be there")
    cluster.waits_for("mpi-launcher", "GangIncomplete")
    cluster.make("mpi-worker-1", "sleep 1000", 3, labels=label)
    cluster.until_phase("mpi-launcher", "Succeeded")
    cluster.remove("mpi-worker-0", "mpi-worker-1")  # as its operator does
    cluster.until_state("mpi", "succeeded")


def a_child(job: int, pods: int) -> Tree:
    """Return a Job as JobSet's controller makes it: of a set with a leader and two workers."""
    kind = "leader" if job == 0 else "workers"
    words = {
        f"jobset.sigs.k8s.io/{key}": value
        for key, value in (
            ("jobset-name", "ring"), ("jobset-uid", "0123456789"), ("restart-attempt", "0"),
            ("replicatedjob-name", kind), ("global-replicas", "2"),
            ("job-global-index", str(job)),
        )
    }  # fmt: skip
    made = a_job(f"ring-{kind}-0", "sleep 1", 2)
    made["spec"] |= {"parallelism": pods, "completions": pods}
    made["spec"]["template"]["metadata"] = {"labels": words, "annotations": words}
    return made


def test_the_pods_of_a_job_set_are_one_gang(cluster: Foreign) -> None:
    cluster.kubernetes.apply(a_kind("jobset.x-k8s.io", "v1alpha2", "JobSet"))
    parts = [
        {"name": "leader", "template": {"spec": {"parallelism": 1, "completions": 1}}},
        {"name": "workers", "template": {"spec": {"parallelism": 2, "completions": 2}}},
    ]
    the_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "ring", "namespace": HERE}, "spec": {"replicatedJobs": parts},
    }  # fmt: skip
    until(lambda: _made(cluster, the_set), "the kind of job sets to be there")
    cluster.kubernetes.apply(a_child(0, 1))
    own = ("pods", "-n", HERE, "-l", "job-name=ring-leader-0")
    until(lambda: bool(cluster.kubernetes.get(*own)["items"]), "the leader's pod")
    (leader,) = cluster.kubernetes.get(*own)["items"]
    said = cluster.waits_for(leader["metadata"]["name"], "GangIncomplete")
    assert "has 1 of its 3 pods" in said
    cluster.kubernetes.apply(a_child(1, 2))
    cluster.until_state("ring.01234567.0", "succeeded")
    assert cluster.row("ring.01234567.0")["tasks"] == 3


def _made(cluster: Foreign, document: Tree) -> bool:
    try:
        cluster.kubernetes.apply(document)
    except RuntimeError:
        return False
    return True


def test_what_may_not_be_is_said_and_harms_nobody(cluster: Foreign) -> None:
    first = cluster.kubernetes.nodes[0]
    cluster.make("thief", "sleep 1", 1, annotations={"allotment.io/tenant": "own"})
    cluster.make("picky", "sleep 1", 1, spec={"nodeSelector": {"disk": "fast"}})
    cluster.make("giant", "sleep 1", 64)
    cluster.kubernetes.apply(a_pod("foreign", "sleep 1", 1, "no-rights"))
    assert "may be for lab" in cluster.waits_for("thief", "NotAllowed")
    assert "nodeSelector names disk" in cluster.waits_for("picky", "NodeSelector")
    assert "can never start" in cluster.waits_for("giant", "NeverFits")
    cluster.make("pushy", "sleep 10", 2, spec={"nodeName": first})
    used = lambda: (cluster.node(first).get("others") or {}).get("devices")  # noqa: E731
    until(lambda: used() == [["gpu", 2]], "what it took to be counted as used by others")
    told = cluster.allot("why", "no-rights/foreign")
    for right in ("create pods/binding", "create pods/eviction"):
        assert right in " ".join((told.stdout + told.stderr).split())
    said = cluster.allot("doctor").stdout
    assert "no right to create pods/binding in namespace no-rights" in said
    assert "create rolebinding allotment -n no-rights" in said
    assert f"that are needed, namespace {HERE}" in said
    cluster.kubernetes.apply(a_pod("unasked", "sleep 1", 1, "elsewhere"))
    until(
        lambda: (
            "takes no pods of namespace" in cluster.allot("why", "elsewhere/unasked").stderr
        ),
        "it to be known",
    )
    assert not cluster.scheduled("unasked", "elsewhere")
    cluster.make("fine", "sleep 1")
    cluster.until_state("fine", "succeeded")
    assert not any(cluster.row(name) for name in ("thief", "picky", "giant", "pushy"))


def test_who_has_a_guarantee_gets_it_back_as_budgets_allow(cluster: Foreign) -> None:
    cluster.kubernetes.apply(a_job("greedy", "sleep 1000", 4))

    def pods() -> list[Tree]:
        return cluster.kubernetes.get("pods", "-n", HERE, "-l", "of=greedy")["items"]

    def running() -> int:
        there = [pod for pod in pods() if "deletionTimestamp" not in pod["metadata"]]
        return sum(pod["status"]["phase"] == "Running" for pod in there)

    def is_counted() -> bool:
        budget = cluster.kubernetes.get("pdb", "keep", "-n", HERE)
        return budget["status"].get("currentHealthy") == 2

    def is_told() -> bool:
        told = [each for pod in pods() for each in pod["status"]["conditions"]]
        return any(each["type"] == "DisruptionTarget" for each in told)

    until(lambda: running() == 2, "both pods to run")
    budget = {
        "apiVersion": BUDGETS, "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": HERE},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"of": "greedy"}}},
    }  # fmt: skip
    cluster.kubernetes.apply(budget)
    until(is_counted, "the budget to be counted")
    owner = cluster.submit({**shell("sleep 1", resources={"gpu": 4}), "tenant": "own"})
    until(is_told, "a pod to be told that it has to go")
    assert running() == 2
    cluster.kubernetes.kubectl("delete", "pdb", "keep", "-n", HERE)
    cluster.wait_for(owner, "succeeded")
    until(lambda: running() == 2, "a new pod to run in its place")
    rows = [row for row in cluster.jobs() if row["name"].startswith(f"{HERE}/greedy")]
    assert sorted(row["state"] for row in rows) == ["cancelled", "running", "running"]
    cluster.kubernetes.kubectl("delete", "job", "greedy", "-n", HERE, "--wait=false")


GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{HERE}/podgroups"


def test_pods_of_the_workload_api_are_placed_when_as_many_are_there_as_it_says(
    cluster: Foreign,
) -> None:
    needs_newer()
    of_group = {"schedulingGroup": {"podGroupName": "trio"}}
    for number in range(2):
        cluster.make(f"trio-{number}", "sleep 3", 2, spec=of_group)
    until(
        lambda: "there is no podgroups trio" in cluster.waits_for("trio-0", "GangUnknown"),
        "it to be said what there is not",
    )
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "trio"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }  # fmt: skip
    cluster.kubernetes.ask("POST", GROUPS, group)
    assert "has 2 of its 3 pods" in cluster.waits_for("trio-1", "GangIncomplete")
    assert not any(cluster.pod(f"trio-{number}")["spec"].get("nodeName") for number in range(2))
    cluster.make("trio-2", "sleep 3", 2, spec=of_group)
    cluster.until_state("trio", "succeeded")
    assert cluster.row("trio")["tasks"] == 3
    group["metadata"], group["spec"] = {"name": "loose"}, {"schedulingPolicy": {"basic": {}}}
    cluster.kubernetes.ask("POST", GROUPS, group)
    cluster.make("loose-0", "true", 1, spec={"schedulingGroup": {"podGroupName": "loose"}})
    cluster.until_phase("loose-0", "Succeeded")


def test_a_pod_with_gates_waits_until_others_lift_them(cluster: Foreign) -> None:
    needs_newer()
    cluster.make("gated", "sleep 1", 1, spec={"schedulingGates": [{"name": "example.com/ok"}]})
    until(
        lambda: "example.com/ok" in cluster.allot("why", f"{HERE}/gated").stderr,
        "it to be said who has to lift what",
    )
    assert cluster.scheduled("gated")["reason"] == "SchedulingGated"
    assert not cluster.row("gated")
    lift = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    cluster.kubernetes.kubectl("patch", "pod", "gated", "-n", HERE, "--type=json", "-p", lift)
    cluster.until_state("gated", "succeeded")


def test_a_job_that_is_suspended_gives_its_devices_back_and_comes_again(
    cluster: Foreign,
) -> None:
    needs_newer()
    words = {"allotment.io/gang-size": "2"}
    made = a_job("indexed", "[ $JOB_COMPLETION_INDEX -lt 2 ] && sleep 1000", 4, **words)
    made["spec"] |= {"completionMode": "Indexed", "suspend": True}
    beside = {"name": "beside", "image": IMAGE, "command": ["sleep", "1000"],
              "restartPolicy": "Always",
              "resources": {"limits": {"cpu": "50m", "memory": "16Mi"}}}  # fmt: skip
    made["spec"]["template"]["spec"]["initContainers"] = [beside]
    cluster.kubernetes.apply(made)

    def there() -> list[Tree]:
        return cluster.kubernetes.get("pods", "-n", HERE, "-l", "of=indexed")["items"]

    def running() -> list[Tree]:
        return [pod for pod in there() if pod["status"].get("phase") == "Running"]

    def suspend(is_so: bool) -> None:
        change = f'{{"spec": {{"suspend": {str(is_so).lower()}}}}}'
        cluster.kubernetes.kubectl("patch", "job", "indexed", "-n", HERE, "-p", change)

    for _ in range(2):
        suspend(False)
        until(lambda: len(running()) == 2, "both pods to run")
        indices = [
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
            for pod in running()
        ]
        assert sorted(indices) == ["0", "1"]
        suspend(True)
        until(lambda: not there(), "its pods to be gone")
    rows = [row for row in cluster.jobs() if row["name"].startswith(f"{HERE}/indexed")]
    until(
        lambda: {cluster.state_of(row["id"]) for row in rows} == {"cancelled"},
        "its jobs to be over",
    )
    assert len(rows) == 2
