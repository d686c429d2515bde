"""Files written for operators, submitted without them to a real Kubernetes."""

import json
from pathlib import Path

from tests.support.kubernetes import IMAGE, MARKS
from tests.support.on_kubernetes import OnKubernetes

pytestmark = MARKS
EXAMPLES = Path(__file__).parents[2] / "fixtures" / "foreign"


def submit(cluster: OnKubernetes, name: str) -> int:
    file = EXAMPLES / f"{name}.yaml"
    done = cluster.allot("submit", str(file), "--set", f"image={IMAGE}")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


def said(cluster: OnKubernetes, job: int) -> list[str]:
    """Return the lines of all tasks, without whose they are."""
    return sorted(line.rpartition("| ")[2] for line in cluster.output(job).splitlines())


def test_a_pytorch_job_runs_with_the_variables_of_its_operator(cluster: OnKubernetes) -> None:
    job = submit(cluster, "pytorch")
    cluster.wait_for(job, "succeeded")
    assert said(cluster, job) == [
        "0 of 4 at address:port, 0/2 x 2, lr 0.1",
        "1 of 4 at address:port, 1/2 x 2, lr 0.1",
    ]


def test_a_tf_job_ends_with_its_workers(cluster: OnKubernetes) -> None:
    job = submit(cluster, "tf")
    cluster.wait_for(job, "succeeded")
    told = [json.loads(line) for line in said(cluster, job)]
    assert {each["task"]["type"] for each in told} == {"worker", "ps"}
    assert {len(each["cluster"]["worker"]) for each in told} == {2}


def test_each_pod_of_an_indexed_job_has_its_index(cluster: OnKubernetes) -> None:
    first = submit(cluster, "job")
    jobs = [first, first + 1, first + 2]
    assert {cluster.state_of(job) for job in jobs} == {"held"}
    assert cluster.allot("release", str(first)).returncode == 0
    for job in jobs:
        cluster.wait_for(job, "succeeded")
    assert said(cluster, first) == ["shard 0", "shard 1", "shard 2"]


def test_the_pods_of_a_job_set_have_the_addresses_of_their_hosts(
    cluster: OnKubernetes,
) -> None:
    job = submit(cluster, "jobset")
    cluster.wait_for(job, "succeeded")
    at = "127.0.0.1"  # as the configuration says of nodes, if it says nothing
    leader = f"leader 0.0 of 3, 0, from {at}, ring-leader-0-0, address, {at}"
    assert said(cluster, job)[0] == leader


def test_the_nodes_of_a_train_job_are_told_of_each_other(cluster: OnKubernetes) -> None:
    job = submit(cluster, "runtime")
    cluster.wait_for(job, "succeeded")
    assert said(cluster, job) == ["0 of 2 at address, seed 7", "1 of 2 at address, seed 7"]
