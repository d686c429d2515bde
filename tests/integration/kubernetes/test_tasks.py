"""A service on a real Kubernetes of two nodes: its jobs, and what goes wrong with them."""

import json

import pytest

from allotment.model.quantity import MIB
from tests.support.cluster import until
from tests.support.kubernetes import MARKS, NAMESPACE
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS


def test_a_gang_runs_on_both_nodes_and_its_output_stays(cluster: OnKubernetes) -> None:
    script = "echo $ALLOT_NODE rank $RANK of $WORLD_SIZE at ${MASTER_PORT:+port}; echo $SECRET"
    spec = shell(script, count=2, resources={"gpu": 4}, secrets={"SECRET": "swordfish"})
    job = cluster.submit(spec)
    cluster.wait_for(job, "succeeded")
    until(lambda: not cluster.pods_of(job), "its pods to be gone")
    lines = sorted(line.partition("| ")[2] for line in cluster.output(job).splitlines())
    assert lines == [
        "***",
        "***",
        *(
            f"{name} rank {rank} of 2 at port"
            for rank, name in enumerate(cluster.kubernetes.nodes)
        ),
    ]
    tasks = cluster.job(job)["attempts"][0]["tasks"]
    assert [task["engine_job"].startswith("allot-") for task in tasks] == [True, True]
    until(
        lambda: (
            not [
                secret
                for secret in cluster.kubernetes.get("secrets", "-n", NAMESPACE)["items"]
                if secret["metadata"]["name"].startswith("allot-")
            ]
        ),
        "the Secrets to go with their pods",
    )


def test_a_pod_has_just_what_its_task_asked_for(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("sleep 1000", resources={"gpu": 3, "cpu": 1}))
    cluster.wait_for(job, "running")
    (pod,) = cluster.pods_of(job)
    (container,) = pod["spec"]["containers"]
    wanted = {"cpu": "1", "memory": str(64 * MIB), "nvidia.com/gpu": "3"}
    assert wanted.items() <= container["resources"]["limits"].items()
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert not pod["spec"].get("automountServiceAccountToken", True)


def test_how_a_job_ends_is_told(cluster: OnKubernetes) -> None:
    fails = cluster.submit(shell("echo no; exit 3"))
    missing = cluster.submit({**shell("x"), "command": ["/no/such/program"]})
    hungry = cluster.submit(shell("tail -c 1000000000 /dev/zero"))
    unnamed = cluster.submit(shell("true", image="Not//An:Image"))
    for job, code in ((fails, 3), (missing, 127)):
        cluster.wait_for(job, "failed")
        (task,) = cluster.job(job)["attempts"][0]["tasks"]
        assert task["exit"].get("code") == code, task
    assert "no" in cluster.output(fails)
    assert "no such file" in cluster.allot("logs", str(missing)).stderr.lower()
    cluster.wait_for(hungry, "failed")
    assert "out_of_memory" in str(cluster.job(hungry))
    cluster.wait_for(unnamed, "failed")
    assert "image_missing" in str(cluster.job(unnamed))


def test_a_running_job_is_cancelled_with_all_it_started(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("sleep 1000 & sleep 1000"))
    cluster.wait_for(job, "running")
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.pods_of(job), "its pod to be gone")


def test_a_job_is_warned_by_its_own_signal(cluster: OnKubernetes) -> None:
    script = 'trap "echo warned; exit 0" USR1; echo up; while :; do sleep 0.2; done'
    checkpoint = {"signal": "USR1", "grace": "30s"}
    job = cluster.submit(shell(script, checkpoint=checkpoint, max_run_time="4s"))
    cluster.wait_for(job, "timed_out")
    assert "warned" in cluster.output(job)


def test_a_command_runs_inside_a_task(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("sleep 1000"))
    cluster.wait_for(job, "running")
    words = ("exec", str(job), "--", "sh", "-c", "echo on $(hostname) in $ALLOT_NODE; exit 7")
    done = cluster.allot(*words)
    assert done.returncode == 7, done.stderr
    (pod,) = cluster.pods_of(job)
    assert f"in {pod['spec']['nodeName']}" in done.stdout


def test_a_failed_task_is_kept_for_a_look_also_over_a_restart(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("echo clue >/tmp/clue; exit 3", retry=1, hold_on_failure="1h"))

    def is_kept() -> bool:
        tasks = cluster.job(job)["attempts"][0].get("tasks", [])
        return [task["state"] for task in tasks] == ["holding"]

    until(is_kept, "the task to be kept")
    cluster.kill()
    cluster.up()
    until(is_kept, "it to be kept still")
    found = cluster.allot("exec", str(job), "--", "cat", "/tmp/clue")
    assert (found.returncode, found.stdout) == (0, "clue\n"), found.stderr
    assert "failed with 3 and is kept" in cluster.output(job)
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "failed")
    assert cluster.job(job)["row"]["attempt"] == 1
    until(lambda: not cluster.pods_of(job), "its pod to be gone")


def test_what_is_told_to_end_is_not_kept(cluster: OnKubernetes) -> None:
    saves = "trap 'echo saved; exit 85' TERM; echo begun; sleep 1000 & wait"
    checkpoint = {"signal": "TERM", "grace": "20s"}
    job = cluster.submit(shell(saves, hold_on_failure="1h", checkpoint=checkpoint))
    until(lambda: "begun" in cluster.output(job), "the task to begin")
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")
    assert "saved" in cluster.output(job)
    assert "is kept" not in cluster.output(job)


def test_what_is_deleted_in_kubernetes_is_tried_again(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000"))
    cluster.wait_for(job, "running")
    (pod,) = cluster.pods_of(job)
    name = pod["metadata"]["name"]
    cluster.kubernetes.kubectl("delete", "pod", name, "-n", NAMESPACE, "--grace-period=1")
    cluster.wait_for(job, "succeeded")
    first, second = cluster.job(job)["attempts"]
    assert "kubectl delete" in str(first)
    assert second["state"] == "ended"


def test_jobs_run_on_while_api_server_and_service_are_away(cluster: OnKubernetes) -> None:
    script = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.15; done"
    job = cluster.submit(shell(script))
    cluster.wait_for(job, "running")
    cluster.kubernetes.kill("apiserver")
    cluster.kill()
    cluster.up()
    waits = cluster.submit(shell("echo later"))
    until(lambda: cluster.job(job)["row"].get("unheard"), "Kubernetes to be known as away")
    assert cluster.state_of(job) == "running"
    cluster.kubernetes.again("apiserver")
    cluster.wait_for(job, "succeeded", seconds=120)
    cluster.wait_for(waits, "succeeded", seconds=120)
    lines = [line for line in cluster.output(job).splitlines() if line.startswith("line")]
    assert lines == [f"line {i}" for i in range(100)]
    assert len(cluster.job(job)["attempts"]) == 1


def test_folders_that_a_pod_would_not_see_are_named(cluster: OnKubernetes) -> None:
    job = cluster.submit(shell("true", data="/usr/share"))
    cluster.wait_for(job, "failed")
    assert "path_not_in_pod" in str(cluster.job(job))
    assert not cluster.pods_of(job)


@pytest.mark.parametrize("labels", ["null", '{"allotment.io/service": "allot-0"}'])
def test_odd_pods_of_others_do_no_harm(cluster: OnKubernetes, labels: str) -> None:
    container = {
        "name": "task", "image": "localhost/none:1",
        "resources": {"limits": {"example.com/x": "1"}},
    }  # fmt: skip
    cluster.kubernetes.apply({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "odd", "labels": json.loads(labels)},
        "spec": {"nodeName": cluster.kubernetes.nodes[0], "hostNetwork": True,
                 "containers": [container]},
    })  # fmt: skip
    job = cluster.submit(shell("echo fine"))
    cluster.wait_for(job, "succeeded")
