"""Jobs of others on nodes of a real Slurm: seen, counted as used, and never fought over."""

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, a_shared_folder, shell
from tests.support.slurm import TOOLS

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]


def foreign(cluster: OnSlurm, node: str, gpus: int, *words: str) -> str:
    """Give Slurm a job that is not ours; return its number, once it runs."""
    say = cluster.slurm.say
    job = say(
        "sbatch", "--parsable", f"--nodelist={node}", f"--gres=gpu:a100:{gpus}", "--mem=64M",
        "--output=/dev/null", "--chdir=/", *words, "--wrap=sleep 1000",
    )  # fmt: skip
    until(lambda: say("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", "the other's job")
    return job


def used(cluster: OnSlurm) -> dict[str, tuple[int, int]]:
    """Return how many devices and CPUs others use, by node."""
    found = {node["name"]: node["others"] for node in cluster.get("/v1/nodes")}
    return {
        name: (sum(count for _, count in use["devices"]), use.get("cpu_milli", 0) // 1000)
        for name, use in found.items()
        if use is not None
    }


def test_what_others_have_is_seen_and_gone_when_they_end(cluster: OnSlurm) -> None:
    ours = cluster.submit(shell("sleep 1000", resources={"gpu": 1}))
    cluster.wait_for(ours, "running")
    (node,) = cluster.job(ours)["row"]["nodes"]
    first = foreign(cluster, node, 1, "--cpus-per-task=2")
    until(lambda: used(cluster) == {node: (1, 2)}, "the other's job to be seen")
    shown = cluster.allot("nodes").stdout
    assert "1 GPU, 2 CPU, 64 MiB memory used by others on Slurm" in " ".join(shown.split())
    assert "2/4" in shown
    cluster.slurm.say("scancel", first)
    until(lambda: not used(cluster), "its end to be seen")
    assert "used by others on Slurm" in cluster.allot("events").stdout
    assert cluster.state_of(ours) == "running"


def test_a_job_goes_where_no_others_are_or_waits_for_them_and_says_so(
    cluster: OnSlurm,
) -> None:
    other = foreign(cluster, "n1", 1)
    until(lambda: used(cluster) == {"n1": (1, 1)}, "the other's job to be seen")
    first = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    cluster.wait_for(first, "running")
    assert cluster.job(first)["row"]["nodes"] == ["n2"]
    second = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    until(lambda: "did not use" in cluster.allot("why", str(second)).stdout, "a reason")
    why = cluster.allot("why", str(second)).stdout
    assert "n1 (1 GPU, 1 CPU, 64 MiB memory)" in " ".join(why.split())
    assert cluster.slurm.say("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING"
    cluster.slurm.say("scancel", other)
    cluster.wait_for(second, "running")
    assert cluster.job(second)["row"]["nodes"] == ["n1"]
    assert len(cluster.job(second)["attempts"]) == 1, "it never stood in Slurm's queue"


def test_one_whose_devices_others_took_first_is_taken_back_soon(cluster: OnSlurm) -> None:
    """As where theirs starts between our look and our submission."""
    say = cluster.slurm.say
    say("scontrol", "update", "nodename=n1", "state=drain", "reason=ours goes to n2")
    until(lambda: _state(cluster, "n1") == "drained", "the drain to be seen")
    other = foreign(cluster, "n2", 2)
    job = cluster.submit(
        shell("sleep 1000", resources={"gpu": 4})
    )  # Perhaps before it is seen.
    until(lambda: used(cluster).get("n2") == (2, 1), "the other's job to be seen")
    say("scontrol", "update", "nodename=n1", "state=resume")
    cluster.wait_for(job, "running")
    assert cluster.job(job)["row"]["nodes"] == ["n1"]
    assert say("squeue", "-h", "-j", other, "-o", "%T") == "RUNNING"


def _state(cluster: OnSlurm, name: str) -> str:
    (node,) = (node for node in cluster.get("/v1/nodes") if node["name"] == name)
    return str(node["state"])


def test_two_services_on_a_partition_are_others_to_each_other(cluster: OnSlurm) -> None:
    """Neither takes the jobs of the other back, nor places any where they are."""
    first = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    cluster.wait_for(first, "running")
    (node,) = cluster.job(first)["row"]["nodes"]
    with a_shared_folder() as made:
        second = OnSlurm(made / "state", cluster.slurm)
        second.up()
        try:
            until(lambda: used(second) == {node: (4, 1)}, "the first's job to be seen")
            job = second.submit(shell("sleep 1000", resources={"gpu": 4}))
            second.wait_for(job, "running")
            (other,) = second.job(job)["row"]["nodes"]
            assert other != node
            until(lambda: used(cluster) == {other: (4, 1)}, "the other's job to be seen")
            assert len(cluster.slurm_jobs()) == 2
            assert cluster.state_of(first) == second.state_of(job) == "running"
        finally:
            second.allot("cancel", "--all", "--yes")
            second.down()
    until(lambda: not used(cluster), "its end to be seen")
