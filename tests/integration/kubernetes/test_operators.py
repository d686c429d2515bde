"""Operators on a real Kubernetes: what they make of their own example files is placed as one
gang."""

import base64
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.integration.kubernetes.test_foreign_pods import a_kind
from tests.integration.kubernetes.test_more_nodes import may_place
from tests.support import operators
from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, IS_NEWER, MARKS, Kubernetes, needs_newer
from tests.support.on_kubernetes import OnKubernetes
from tests.support.served import free_ports

pytestmark = [*MARKS, pytest.mark.may_skip(operators.WHY)]

HERE = "kubeflow-jobs"
SCHEDULER = {"schedulerName": "allotment"}
GONE = "the operator's definition is of apiextensions/v1beta1, gone since 1.22"
Tree = dict[str, Any]


@pytest.fixture
def service(kubernetes: Kubernetes) -> Iterator[OnKubernetes]:
    for document in may_place(HERE):
        kubernetes.apply(document)
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    running = OnKubernetes(made / "state", kubernetes, f", namespaces: {{{HERE}: lab}}")
    # What an operator adds to a pod may need more than tests do.
    text = running.config.read_text().replace("disk: 1GiB", "disk: 20GiB")
    running.config.write_text(text)
    try:
        running.up()
        yield running
    finally:
        running.down()
        words = ("--all", "-n", HERE, "--force", "--grace-period=0")
        kubernetes.kubectl("delete", "pods", *words)
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


def loaded(path: Path) -> list[Tree]:
    found = YAML(typ="safe").load_all(path)  # pyright: ignore[reportUnknownMemberType]
    return [document for document in found if document]


def example(program: str, name: str) -> Tree:
    """Return an example file of an operator, in the namespace of these tests."""
    (job,) = loaded(operators.shared(program, name))
    job["metadata"]["namespace"] = HERE
    return job


def definition_in(program: str, name: str) -> Tree:
    """Return the definition of an operator's kind."""
    found = loaded(operators.shared(program, name))
    return next(each for each in found if each["kind"] == "CustomResourceDefinition")


def apply_surely(kubernetes: Kubernetes, document: Tree) -> None:
    """Make an object of a kind that may be about to come up."""

    refused: list[str] = []

    def is_made() -> bool:
        try:
            kubernetes.apply(document)
        except RuntimeError as error:
            refused[:] = [str(error)]
            return False
        return True

    try:
        until(is_made, f"{document['kind']} to be taken")
    except AssertionError as error:
        error.add_note("".join(refused))
        raise


def until_placed(kubernetes: Kubernetes, pods: int) -> None:
    """Wait until so many pods are there, and all are on nodes."""

    def are_placed() -> bool:
        found = kubernetes.get("pods", "-n", HERE)["items"]
        return len(found) == pods and all(pod["spec"].get("nodeName") for pod in found)

    until(are_placed, f"the {pods} pods of the example to be placed")


def is_one_gang(service: OnKubernetes, name: str, pods: int) -> None:
    """Wait until all pods of a job are placed, which are one gang here."""
    until_placed(service.kubernetes, pods)
    (row,) = [row for row in service.jobs() if row["tasks"] == pods]
    assert row["name"].startswith(f"{HERE}/{name}"), row
    assert row["user"] == f"kubernetes/{HERE}"


def env_of(kubernetes: Kubernetes) -> dict[str, str]:
    return {"KUBEFLOW_NAMESPACE": HERE, "KUBECONFIG": str(kubernetes.admin)}


@pytest.mark.skipif(IS_NEWER, reason=GONE)
def test_the_pods_of_a_pytorch_job_are_placed_together(
    service: OnKubernetes, kubernetes: Kubernetes, folder: Path
) -> None:
    operators.skip_without("pytorch-operator")
    definition = definition_in("pytorch-operator", "crd.yaml")
    job = example("pytorch-operator", "pytorch_job_sendrecv.yaml")
    options = (
        f"-kubeconfig={kubernetes.admin}", "-monitoring-port=0", "-json-log-format=false",
        f"-namespace={HERE}", f"-init-container-image={IMAGE}",
    )  # fmt: skip
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        template = role["template"]
        template["metadata"] = {"annotations": {"allotment.io/gang-size": "4"}}
        template["spec"] |= {**SCHEDULER, "hostNetwork": True}
    kubernetes.apply(definition)
    try:
        with operators.running(folder, "pytorch-operator", options, env_of(kubernetes)):
            apply_surely(kubernetes, job)
            is_one_gang(service, f"{job['metadata']['name']}.", 4)
    finally:
        kubernetes.kubectl("delete", "crd", definition["metadata"]["name"], "--wait=false")


@pytest.mark.skipif(IS_NEWER, reason=GONE)
def test_the_pods_of_a_tf_job_wait_for_the_group_that_its_operator_makes(
    service: OnKubernetes, kubernetes: Kubernetes, folder: Path
) -> None:
    operators.skip_without("tf-operator")
    definition = definition_in("tf-operator", "crd.yaml")
    job = example("tf-operator", "tf_job_mnist.yaml")
    for role in job["spec"]["tfReplicaSpecs"].values():
        role["template"]["spec"] |= SCHEDULER
    options = (
        f"-kubeconfig={kubernetes.admin}", "-monitoring-port=0", "-json-log-format=false",
        f"-namespace={HERE}", "-enable-gang-scheduling=true",
    )  # fmt: skip
    group = a_kind("scheduling.volcano.sh", "v1beta1", "PodGroup")
    kubernetes.apply(definition)
    kubernetes.apply(group)
    try:
        with operators.running(folder, "tf-operator", options, env_of(kubernetes)):
            apply_surely(kubernetes, job)
            is_one_gang(service, job["metadata"]["name"], 6)
    finally:
        for each in (definition, group):
            kubernetes.kubectl("delete", "crd", each["metadata"]["name"], "--wait=false")


@pytest.mark.skipif(IS_NEWER, reason=GONE)
def test_launcher_and_workers_of_an_mpi_job_are_placed_together(
    service: OnKubernetes, kubernetes: Kubernetes, folder: Path
) -> None:
    operators.skip_without("mpi-operator")
    definition = definition_in("mpi-operator", "mpi-operator.yaml")
    job = example("mpi-operator", "tensorflow-benchmarks.yaml")
    for role in job["spec"]["mpiReplicaSpecs"].values():
        words = {"allotment.io/gang": "benchmarks", "allotment.io/gang-size": "3"}
        role["template"]["metadata"] = {"annotations": words}
        role["template"]["spec"] |= SCHEDULER
    options = (
        f"-kubeConfig={kubernetes.admin}", f"-namespace={HERE}", f"-lock-namespace={HERE}",
        f"-kubectl-delivery-image={IMAGE}", "-alsologtostderr",
    )  # fmt: skip
    kubernetes.apply(definition)
    try:
        with operators.running(folder, "mpi-operator", options, env_of(kubernetes)):
            apply_surely(kubernetes, job)
            is_one_gang(service, "benchmarks", 3)
    finally:
        kubernetes.kubectl("delete", "crd", definition["metadata"]["name"], "--wait=false")


def hooks_at(kubernetes: Kubernetes, program: str, port: int) -> list[Tree]:
    """Return the webhooks of an operator that runs on this machine."""
    ca = base64.b64encode((kubernetes.folder / "ca.crt").read_bytes()).decode()
    found = loaded(operators.shared(program, "webhooks.yaml"))
    for each in found:
        each["metadata"]["name"] = f"{program}-{each['metadata']['name']}"
        for hook in each["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": ca}
            space = {"matchLabels": {"kubernetes.io/metadata.name": HERE}}
            hook["namespaceSelector"] = space
    return found


def is_established(kubernetes: Kubernetes, definition: str) -> bool:
    found = kubernetes.get("crd", definition).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


@contextlib.contextmanager
def hooked(
    kubernetes: Kubernetes, folder: Path, program: str, kinds: Sequence[str], settings: Tree
) -> Iterator[None]:
    """Have an operator run that has webhooks, and definitions in files called as `kinds`."""
    needs_newer()
    operators.skip_without(program)
    definitions = [definition_in(program, name) for name in kinds]
    port, health = free_ports(2)
    hooks = hooks_at(kubernetes, program, port)
    certs = folder / "k8s-webhook-server" / "serving-certs"  # where it looks by itself
    certs.mkdir(parents=True, exist_ok=True)
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copy(kubernetes.folder / ours, certs / theirs)
    config = folder / f"{program}.yaml"
    common = {
        "kind": "Configuration", "leaderElection": {"leaderElect": False},
        "webhook": {"port": port, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
    }  # fmt: skip
    YAML().dump(common | settings, config)  # pyright: ignore[reportUnknownMemberType]
    for each in definitions:
        kubernetes.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(each))
        is_there = partial(is_established, kubernetes, each["metadata"]["name"])
        until(is_there, "a kind to be there: without, its operator ends")
    env = {**env_of(kubernetes), "TMPDIR": str(folder)}
    try:
        with operators.running(folder, program, (f"--config={config}",), env):
            for hook in hooks:
                kubernetes.apply(hook)
            yield
    finally:
        for hook in hooks:
            kind, name = hook["kind"].lower(), hook["metadata"]["name"]
            kubernetes.kubectl("delete", kind, name, "--ignore-not-found")
        for each in definitions:
            kubernetes.kubectl("delete", "crd", each["metadata"]["name"], "--wait=false")


@pytest.fixture
def job_sets(kubernetes: Kubernetes, folder: Path) -> Iterator[None]:
    """Have JobSet's operator run."""
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "internalCertManagement": {"enable": False},
    }
    with hooked(kubernetes, folder, "jobset", ("crd.yaml",), settings):
        yield


@pytest.fixture
def train_jobs(kubernetes: Kubernetes, folder: Path, job_sets: None) -> Iterator[None]:  # noqa: ARG001 - it makes sets
    """Have the operator of TrainJobs run."""
    settings = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "certManagement": {"enable": False},
    }
    kinds = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    names = [f"trainer.kubeflow.org_{kind}.yaml" for kind in kinds]
    with hooked(kubernetes, folder, "trainer", names, settings):
        yield


@pytest.mark.usefixtures("job_sets")
@pytest.mark.parametrize(
    ("name", "pods"), [("paralleljobs", 5), ("coordinator", 5), ("success-policy", 3)]
)
def test_the_pods_of_a_job_set_are_placed_together(
    service: OnKubernetes, kubernetes: Kubernetes, name: str, pods: int
) -> None:
    job = example("jobset", f"{name}.yaml")
    for part in job["spec"]["replicatedJobs"]:
        part["template"]["spec"]["template"]["spec"] |= SCHEDULER
    apply_surely(kubernetes, job)
    is_one_gang(service, job["metadata"]["name"], pods)


def small(name: str, seconds: int) -> Tree:
    """Return an example whose pods can run here: with an image and a network that there are."""
    job = example("jobset", f"{name}.yaml")
    for part in job["spec"]["replicatedJobs"]:
        spec = part["template"]["spec"]["template"]["spec"]
        spec |= {**SCHEDULER, "hostNetwork": True}
        spec["containers"][0] |= {"image": IMAGE, "args": [f"{seconds}s"]}
        if probe := spec["containers"][0].get("readinessProbe"):
            probe["initialDelaySeconds"] = 1
    return job


@pytest.mark.usefixtures("job_sets")
def test_a_job_set_that_is_done_has_succeeded(
    service: OnKubernetes, kubernetes: Kubernetes
) -> None:
    job = small("paralleljobs", 2)
    apply_surely(kubernetes, job)
    done = [("succeeded", 5)]
    until(
        lambda: [(row["state"], row["tasks"]) for row in service.jobs()] == done,
        "the set to be over here",
    )
    name = job["metadata"]["name"]
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{HERE}/jobsets/{name}"
    until(
        lambda: kubernetes.ask("GET", path)["status"].get("terminalState") == "Completed",
        "the set to be over there",
    )


@pytest.mark.usefixtures("job_sets")
def test_jobs_of_a_set_that_wait_for_others_are_placed_as_they_come(
    service: OnKubernetes, kubernetes: Kubernetes
) -> None:
    apply_surely(kubernetes, small("startup-driver-ready", 1000))
    until_placed(kubernetes, 5)
    assert len(service.jobs()) > 1


@pytest.mark.usefixtures("train_jobs")
def test_the_nodes_of_a_train_job_are_placed_together(
    service: OnKubernetes, kubernetes: Kubernetes
) -> None:
    (runtime,) = loaded(operators.shared("trainer", "torch_distributed.yaml"))
    (part,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    part["template"]["spec"]["template"]["spec"] |= SCHEDULER
    apply_surely(kubernetes, runtime)
    trainer = {"numNodes": 3, "image": IMAGE, "command": ["sleep", "1000"]}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": HERE},
        "spec": {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": trainer},
    }  # fmt: skip
    apply_surely(kubernetes, job)
    is_one_gang(service, "digits", 3)
