"""Images of a private registry on real kubelets: with a login they run, else it is told why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.kubernetes.status import IMAGE_S
from tests.support.cluster import until
from tests.support.kubernetes import MARKS, NAMED, NAMESPACE
from tests.support.night import AT_NIGHT, at_night
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell
from tests.support.patience import PATIENCE_S
from tests.support.registry import PASSWORD, Registry, a_file, a_registry, busybox, layer

ELSEWHERE = "nodes elsewhere do not reach a registry here"
pytestmark = [
    *MARKS,
    pytest.mark.may_skip(f"{ELSEWHERE}; {AT_NIGHT}"),
    pytest.mark.skipif(bool(NAMED), reason=ELSEWHERE),
    pytest.mark.needs_tool("docker-registry", "htpasswd", "busybox"),
]
WEIGHTS = layer(a_file("weights", "the weights\n"))


@pytest.fixture
def private(folder: Path) -> Iterator[Registry]:
    with a_registry(folder / "registry", users=["ann"]) as made:
        made.push("model", [busybox(), WEIGHTS])
        yield made


@pytest.fixture
def cluster(cluster: OnKubernetes) -> Iterator[OnKubernetes]:
    yield cluster
    let_pull(cluster, [])
    words = ("delete", "secret", "-n", NAMESPACE, "registry", "--ignore-not-found")
    cluster.kubernetes.kubectl(*words)
    # A kubelet of 1.20 lets go of pods that never began only after a minute.
    words = ("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    cluster.kubernetes.kubectl(*words)


def log_in(cluster: OnKubernetes, registry: Registry, password: str) -> None:
    """Give the pods of the namespace a login, as the page on Kubernetes says."""
    auths = {registry.host: {"username": "ann", "password": password}}
    cluster.kubernetes.apply({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry", "namespace": NAMESPACE},
        "stringData": {".dockerconfigjson": json.dumps({"auths": auths})},
    })  # fmt: skip
    let_pull(cluster, [{"name": "registry"}])


def let_pull(cluster: OnKubernetes, secrets: list[dict[str, str]]) -> None:
    patch = json.dumps({"imagePullSecrets": secrets})
    words = ("patch", "serviceaccount", "default", "-n", NAMESPACE, "-p", patch)
    cluster.kubernetes.kubectl(*words)


def told(cluster: OnKubernetes, job: dict[str, object]) -> str:
    """Run a job that fails; return what is shown of it, in one line."""
    number = cluster.submit(job)
    cluster.wait_for(number, "failed")
    assert f"Job {number} (test) is not waiting: it failed" in cluster.said("why", str(number))
    return cluster.said("show", str(number))


def test_a_private_image_runs_with_the_login_of_its_namespace_and_else_says_why(
    cluster: OnKubernetes, private: Registry
) -> None:
    job = shell("cat /weights", image=f"{private.host}/model:1")
    without = told(cluster, job)
    log_in(cluster, private, "wrong")
    for shown in (without, told(cluster, job)):
        assert "no login for the registry of its image, or a wrong one. [image_denied]" in shown
        assert "owner platform" in shown
        assert "401 Unauthorized" in shown or "no basic auth credentials" in shown
        assert "`default` of the pods' namespace a login (`imagePullSecrets`)" in shown
        assert "Attempt 2" not in shown
    log_in(cluster, private, PASSWORD)
    works = cluster.submit(job)
    cluster.wait_for(works, "succeeded")
    assert cluster.output(works) == "the weights\n"
    for name in ("model:2", "nothing:1"):
        shown = told(cluster, {**job, "image": f"{private.host}/{name}"})
        assert "Its image cannot be pulled. [image_missing]" in shown
        assert "owner user" in shown
        assert f"{name}: not found" in shown
        assert "Attempt 2" not in shown


def test_a_pod_without_a_command_runs_that_of_its_image(
    cluster: OnKubernetes, private: Registry
) -> None:
    log_in(cluster, private, PASSWORD)
    own = {"Entrypoint": ["/bin/sh", "-c", "echo entry $0 of $WORLD_SIZE"], "Cmd": ["one"]}
    private.push("entry", [busybox()], config=own)
    job = {**shell(""), "image": f"{private.host}/entry:1", "count": 2}
    del job["command"]
    number = cluster.submit(job)
    cluster.wait_for(number, "succeeded", "failed")
    assert cluster.output(number).count("entry one of 2") == 2
    status, refused = cluster.ask("POST", "/v1/jobs", {**job, "hold_on_failure": "1m"})
    assert status >= 400, refused
    assert "only its cluster can read it" in json.dumps(refused)


def test_a_job_starts_once_its_registry_is_back(
    cluster: OnKubernetes, private: Registry
) -> None:
    log_in(cluster, private, PASSWORD)
    private.push("model", [busybox(), WEIGHTS], "away")
    private.stop()
    job = cluster.submit(shell("cat /weights", image=f"{private.host}/model:away"))
    until(lambda: "connection refused" in cluster.said("show", str(job)), "the pull to fail")
    said = cluster.said("why", str(job))
    assert "could not pull its image, and tries again:" in said
    assert "connection refused" in said
    assert cluster.state_of(job) == "starting"
    private.start()
    cluster.wait_for(job, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_job_says_that_its_node_pulls_its_image(
    cluster: OnKubernetes, private: Registry
) -> None:
    log_in(cluster, private, PASSWORD)
    image = f"{private.host}/model:1"
    private.hang()
    try:
        job = cluster.submit(shell("cat /weights", image=image, count=2))
        words = f"pulls its image {image}"
        until(lambda: words in cluster.said("show", str(job)), "it to be told")
        assert words in cluster.said("why", str(job))
        assert "keeps its place" not in cluster.allot("nodes").stdout
    finally:
        private.go_on()
    cluster.wait_for(job, "succeeded")
    assert words not in cluster.said("show", str(job))


@at_night
def test_a_registry_that_stays_away_is_a_fault_of_the_platform(
    cluster: OnKubernetes, private: Registry
) -> None:
    private.stop()
    job = cluster.submit(shell("cat /weights", image=f"{private.host}/model:none"))
    until(
        lambda: len(cluster.job(job)["attempts"]) == 2, "another attempt", PATIENCE_S + IMAGE_S
    )
    shown = cluster.allot("show", str(job)).stdout
    assert "The registry of its image did not answer its node. [image_pull]" in shown
    assert "connection refused" in shown
