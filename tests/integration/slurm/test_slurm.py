"""A service on a real Slurm of two nodes: jobs, users, and what goes wrong on either side."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, as_nobody, shell
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS),
]


AWAY_S = 240
"""For what waits until calls to a Slurm that does not answer are over, of 5 s each."""


def test_a_gang_runs_on_both_nodes(cluster: OnSlurm) -> None:
    script = "echo $SLURMD_NODENAME rank $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES"
    job = cluster.submit(shell(script, count=2, resources={"gpu": 4}))
    cluster.wait_for(job, "succeeded")
    assert sorted(line.partition("| ")[2] for line in cluster.output(job).splitlines()) == [
        "n1 rank 0 of 2 on 0,1,2,3",
        "n2 rank 1 of 2 on 0,1,2,3",
    ]


def test_how_a_job_ends_is_told(cluster: OnSlurm) -> None:
    fails = cluster.submit(shell("echo no >&2; exit 3"))
    cluster.wait_for(fails, "failed")
    (task,) = cluster.job(fails)["attempts"][0]["tasks"]
    assert task["exit"].get("code") == 3, task
    assert "no" in cluster.output(fails) + cluster.allot("logs", str(fails)).stderr
    missing = cluster.submit({**shell("x"), "command": ["/no/such/program"]})
    cluster.wait_for(missing, "failed")
    (task,) = cluster.job(missing)["attempts"][0]["tasks"]
    assert task["exit"]["code"] == 127
    assert "No such file" in cluster.allot("logs", str(missing)).stderr


def test_a_running_job_is_cancelled_with_all_it_started(cluster: OnSlurm) -> None:
    job = cluster.submit(shell("sleep 1000 & sleep 1000"))
    cluster.wait_for(job, "running")
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.slurm_jobs(), "Slurm to be empty")


def test_what_is_cancelled_in_slurm_is_tried_again(cluster: OnSlurm) -> None:
    job = cluster.submit(shell("[ $ALLOT_ATTEMPT -gt 1 ] || sleep 1000"))
    cluster.wait_for(job, "running")
    (number,) = cluster.slurm_jobs()
    cluster.slurm.say("scancel", number)
    cluster.wait_for(job, "succeeded")
    first, second = cluster.job(job)["attempts"]
    assert "scancel" in str(first)
    assert second["state"] == "ended"


def test_a_task_that_slurm_lost_hold_of_ends_and_is_tried_again(cluster: OnSlurm) -> None:
    job = cluster.submit(shell("[ $ALLOT_ATTEMPT -gt 1 ] || exec sleep 7654321"))
    cluster.wait_for(job, "running")
    (step,) = cluster.slurm.steps()
    os.kill(step, signal.SIGKILL)
    cluster.wait_for(job, "succeeded")
    assert "slurmstepd" in str(cluster.job(job)["attempts"][0])
    assert not ps_has("sleep 7654321")
    until(lambda: not cluster.slurm_jobs(), "Slurm to have ended its job")


def test_what_ran_on_a_lost_node_ends_though_slurm_cannot_reach_it(cluster: OnSlurm) -> None:
    """Its daemon is gone, and neither the task nor Slurm's own process of it."""
    job = cluster.submit(shell("[ $ALLOT_ATTEMPT -gt 1 ] || exec sleep 7654322"))
    cluster.wait_for(job, "running")
    (node,) = cluster.job(job)["row"]["nodes"]
    cluster.slurm.kill(node)
    try:
        cluster.slurm.say("scontrol", "update", f"nodename={node}", "state=down", "reason=x")
        cluster.wait_for(job, "succeeded")
        until(lambda: not ps_has("sleep 7654322"), "the first attempt to end")
    finally:
        cluster.slurm.start_node(node)
        cluster.slurm.say("scontrol", "update", f"nodename={node}", "state=resume")


def test_jobs_run_on_while_controller_and_service_are_away(
    cluster: OnSlurm, folder: Path
) -> None:
    job = cluster.submit(shell(f"{until_there(folder)}; echo done"))
    cluster.wait_for(job, "running")
    cluster.slurm.until_saved()
    cluster.slurm.kill("slurmctld")
    cluster.kill()
    cluster.up()
    waits = cluster.submit(shell("echo later"))
    (folder / "go").touch()
    cluster.wait_for(job, "succeeded")
    cluster.slurm.start_controller()
    cluster.wait_for(waits, "succeeded", seconds=AWAY_S)
    assert "done" in cluster.output(job)
    assert len(cluster.job(job)["attempts"]) == 1


def until_there(folder: Path) -> str:
    """Return a shell line that waits for the file `go` in a folder."""
    return f"until [ -e {folder}/go ]; do sleep 0.1; done"


def test_a_lost_answer_starts_nothing_twice(cluster: OnSlurm, folder: Path) -> None:
    job = cluster.submit(shell(f"{until_there(folder)}; echo once"))
    cluster.wait_for(job, "running")
    cluster.kill()
    record = cluster.state / f"slurm/tasks/{job}/1/0.json"
    record.write_text(record.read_text().replace('"job"', '"lost"'))
    cluster.up()
    until(lambda: '"lost"' not in record.read_text(), "its number to be known again")
    (folder / "go").touch()
    cluster.wait_for(job, "succeeded")
    names = cluster.slurm.say("squeue", "-h", "-t", "all", "-o", "%j").split()
    own = (cluster.state / "slurm/name").read_text()
    assert names.count(f"{own}-{job}.1.0") == 1
    assert cluster.output(job).split() == ["once"]
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_drained_node_gets_no_more_and_keeps_what_runs(cluster: OnSlurm) -> None:
    job = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    (node,) = cluster.job(job)["row"]["nodes"]
    say = cluster.slurm.say
    say("scontrol", "update", f"nodename={node}", "state=drain", "reason=fan")

    def states() -> dict[str, tuple[str, str]]:
        found = cluster.get("/v1/nodes")
        return {each["name"]: (each["state"], each.get("reason", "")) for each in found}

    until(lambda: states()[node] == ("drained", "engine: drained in Slurm: fan"), "a drain")
    assert cluster.state_of(job) == "running"
    say("scontrol", "update", f"nodename={node}", "state=resume")
    until(lambda: states()[node][0] == "ready", "the node to be back")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def ps_has(text: str) -> bool:
    """Return whether some process has a text in its command line."""
    return text in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_a_task_runs_as_its_submitter(cluster: OnSlurm) -> None:
    done = as_nobody(cluster, "run", "--", "sh", "-c", "id -un; stat -c %U $ALLOT_OUTPUT_DIR")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["nobody", "nobody"]


@pytest.mark.parametrize("name", ["stdout.log", "status.json", "stop", "stop.part"])
def test_links_in_a_users_folder_lead_nowhere(cluster: OnSlurm, name: str) -> None:
    secret = cluster.state / "secret"
    secret.write_text('{"phase": "ended", "exit_code": 42}')
    tasks = cluster.state / "slurm/tasks"
    folder = f"{tasks}/$ALLOT_JOB_ID/1/0"
    runs = "until grep -q running status.json; do sleep 0.1; done"
    script = f"cd {folder} && {runs}; rm -f {name}; ln -s {secret} {name}; sleep 1000"
    job = int(as_nobody(cluster, "run", "--detach", "--", "sh", "-c", script).stdout)
    there = tasks / f"{job}/1/0"
    until(lambda: (there / name).is_symlink(), "the link")
    assert "42" not in cluster.output(job)
    assert cluster.state_of(job) in ("starting", "running")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled", "failed")
    until(lambda: not cluster.slurm_jobs(), "Slurm to be empty")
    assert not ps_has(str(there)), "its first process is gone"
    assert not ps_has(f"ln -s {secret} {name}"), "what the task started is gone with it"
    assert secret.read_text() == '{"phase": "ended", "exit_code": 42}'


def test_a_partition_that_is_not_there_is_named_with_those_that_are(
    slurm: Slurm, folder: Path
) -> None:
    done = OnSlurm(folder / "state", slurm).start("--slurm", "gpus")
    assert done.returncode != 0
    assert "Slurm has no partition gpus with nodes" in done.stderr
    assert "main, short" in done.stderr


def test_nodes_are_found_and_a_limit_of_the_partition_is_told_at_submission(
    slurm: Slurm, folder: Path
) -> None:
    cluster = OnSlurm(folder / "state", slurm)
    assert cluster.start("--slurm", "short").returncode == 0
    try:
        (node,) = cluster.get("/v1/nodes")
        assert node["name"] == "n1"
        assert [device["type"] for device in node["devices"]] == ["a100"] * 4
        status, answer = cluster.ask("POST", "/v1/jobs", shell("true", max_run_time="1h"))
        assert status == 501
        assert "Slurm's partition short lets a job run for 1 min" in answer["detail"]
        job = cluster.submit(shell("true", max_run_time="20s"))
        cluster.wait_for(job, "succeeded")
    finally:
        cluster.down()
        slurm.clear()


@pytest.mark.slow
def test_a_job_that_slurm_will_end_is_warned_as_before_an_eviction(
    slurm: Slurm, folder: Path
) -> None:
    cluster = OnSlurm(folder / "state", slurm)
    assert cluster.start("--slurm", "short").returncode == 0
    saves = "trap 'echo saved; kill $!; exit 0' USR1; sleep 1000 & wait"
    script = f"[ $ALLOT_ATTEMPT -gt 1 ] && echo goes on || {{ {saves}; }}"
    try:
        spec = shell(script, checkpoint={"signal": "USR1", "grace": "20s"}, retry=0)
        job = cluster.submit(spec)
        cluster.wait_for(job, "succeeded", seconds=AWAY_S)
        first, _ = cluster.job(job)["attempts"]
        assert "its time in Slurm was over" in str(first)
        said = cluster.allot("logs", str(job), "--attempt", "1").stdout
        assert said.split() == ["saved"]
    finally:
        cluster.down()
        slurm.clear()


def test_what_slurm_cannot_do_is_refused(cluster: OnSlurm) -> None:
    status, answer = cluster.ask("POST", "/v1/jobs", shell("true", resources={"gpu": 0.5}))
    assert status == 501
    assert "No engine here can give it a part of a GPU." in str(answer)
    status, answer = cluster.ask("POST", "/v1/jobs", shell("true", on_eviction="suspend"))
    assert status == 501
    assert "No engine here can suspend it" in str(answer)
    job = cluster.submit(shell("sleep 1000"))
    cluster.wait_for(job, "running")
    done = cluster.allot("suspend", str(job))
    assert done.returncode != 0
    assert "keeps its GPUs" in done.stderr
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_cells_lie_over_switches_and_are_guaranteed(slurm: Slurm, folder: Path) -> None:
    cluster = OnSlurm(folder / "state", slurm)
    env = {"SLURM_CONF": str(slurm.conf)}
    cluster.config.unlink()
    done = cluster.allot(
        "config", "discover", "--slurm", "main", "--output", str(cluster.config), env=env
    )
    assert done.returncode == 0, done.stderr
    written = cluster.config.read_text()
    assert "a100-switch-2" in written
    shares = "tenants: {a: {cells: {a100-switch: 1}}, b: {cells: {a100-switch: 1}}}\n"
    cluster.config.write_text(written[: written.index("tenants:")] + shares)
    cluster.up()
    try:
        borrower = cluster.submit(
            shell(
                "sleep 1000", tenant="b", count=2, resources={"gpu": 4}, on_eviction="requeue"
            )
        )
        cluster.wait_for(borrower, "running")
        owner = cluster.submit(shell("echo here", tenant="a", resources={"gpu": 4}))
        cluster.wait_for(owner, "succeeded")
        assert len(cluster.job(borrower)["attempts"]) >= 1
        assert cluster.job(borrower)["attempts"][0]["outcome"] == "evicted"
    finally:
        cluster.down()
        slurm.clear()


@pytest.mark.needs_tool("bwrap")
def test_a_job_of_the_services_own_user_reads_a_version(
    cluster: OnSlurm, tmp_path: Path
) -> None:
    words = cluster.state.parent / "words"
    words.write_text("by-root\n")
    for said in (("create", "words"), ("put", "words", str(words))):
        done = cluster.allot("data", *said)
        assert done.returncode == 0, done.stderr
    place = str(tmp_path)  # Root may write above what is not there, so nothing is shown.
    job = cluster.submit(shell(f"cat {place}/words", data={"words": place}))
    cluster.wait_for(job, "succeeded", "failed")
    assert "by-root" in cluster.output(job), str(cluster.job(job)["diagnosis"])
    until(lambda: not list((cluster.state / "data-links").iterdir()), "the links to be gone")
