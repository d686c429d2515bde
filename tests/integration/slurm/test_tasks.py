"""What one sees of a task on a real Slurm: its devices and job there, and its inside."""

import os
import pty
import subprocess
import sys

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, shell
from tests.support.slurm import TOOLS

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]


def running(cluster: OnSlurm, **more: object) -> int:
    job = cluster.submit(shell("sleep 1000", **more))
    cluster.wait_for(job, "running")
    return job


def test_devices_are_those_that_slurm_gave_and_its_job_is_named(cluster: OnSlurm) -> None:
    taken = cluster.slurm.say(
        "sbatch", "--parsable", "--nodelist=n1", "--gres=gpu:a100:1", "--mem=100",
        "--output=/dev/null", "--wrap", "sleep 1000",
    )  # fmt: skip
    until(lambda: cluster.slurm.say("squeue", "-h", "-t", "running") != "", "a job of others")
    job = running(cluster, resources={"gpu": 3}, env={"A": "b"})
    (task,) = cluster.job(job)["attempts"][0]["tasks"]
    (number,) = (each for each in cluster.slurm_jobs() if each != taken)
    assert task["engine_job"] == number
    there = cluster.slurm.say("scontrol", "show", "job", "-d", number)
    first, last = task["devices"][0], task["devices"][-1]
    assert f"(IDX:{first}-{last})" in there, there
    shown = cluster.allot("show", str(job)).stdout
    assert "JOB THERE" in shown
    assert number in shown
    got = ",".join(map(str, task["devices"]))
    done = cluster.allot("exec", str(job), "--", "printenv", "ALLOT_DEVICES")
    assert done.stdout.strip() == got


def test_a_command_runs_beside_a_task_as_its_user_and_passes_its_code(cluster: OnSlurm) -> None:
    wanted = {"ALLOT_STATE": str(cluster.state), "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-m", "allotment.cli"]

    def as_nobody(*more: str, input: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*words, *more], env=wanted, cwd="/tmp", user="nobody", group="nogroup",
            extra_groups=[], text=True, capture_output=True, check=False, timeout=60,
            input=input,
        )  # fmt: skip

    job = int(as_nobody("run", "--detach", "--", "sleep", "1000").stdout)
    cluster.wait_for(job, "running")
    script = "id -un; echo $ALLOT_JOB_ID; pwd; cat; exit 7"
    done = as_nobody("exec", str(job), "--", "sh", "-c", script, input="typed\n")
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == ["nobody", str(job), "/tmp", "typed"]
    missing = as_nobody("exec", str(job), "--", "/no/such/program")
    assert missing.returncode == 127
    assert "No such file" in missing.stdout + missing.stderr


def test_a_shell_has_a_terminal(cluster: OnSlurm) -> None:
    job = running(cluster)
    ours, theirs = pty.openpty()
    env = {**os.environ, "ALLOT_STATE": str(cluster.state), "TERM": "vt100"}
    words = [sys.executable, "-m", "allotment.cli", "exec", str(job), "--"]
    shown = b""
    with subprocess.Popen(
        [*words, "sh", "-c", "tty; echo $TERM; read line; echo got $line; exit 5"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        while b"vt100" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"this\n")
        while b"got this" not in shown:
            shown += os.read(ours, 1000)
        assert process.wait(60) == 5
    os.close(ours)
    assert b"/dev/pts/" in shown


def test_what_was_run_beside_a_task_ends_when_its_user_hangs_up(cluster: OnSlurm) -> None:
    job = running(cluster)
    env = {**os.environ, "ALLOT_STATE": str(cluster.state)}
    words = [sys.executable, "-m", "allotment.cli", "exec", str(job), "--", "sleep", "1234567"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE) as process:
        until(lambda: runs_in_task("sleep 1234567"), "the command to run")
        process.kill()
    until(lambda: not runs_in_task("sleep 1234567"), "the command to be gone")
    assert cluster.state_of(job) == "running"


def runs_in_task(command: str) -> bool:
    """Return whether a process has just this command line."""
    found = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True).stdout
    return any(
        line.split(None, 1)[1:] == [command] for line in found.splitlines() if line[0] != "Z"
    )


SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=unchanged
#SBATCH --ntasks=2 --cpus-per-task=1 --gpus=2 --mem=200M
#SBATCH --array=1-2
#SBATCH --output=%x-%a.out
echo "job $SLURM_JOB_NAME task $SLURM_ARRAY_TASK_ID on $SLURM_JOB_NODELIST gpus $SLURM_JOB_GPUS"
[ "$SLURM_JOB_GPUS" = "$CUDA_VISIBLE_DEVICES" ] || exit 3
[ "$SLURM_JOB_ID" = "$ALLOT_JOB_ID" ] || exit 4
srun sh -c 'echo step $SLURM_PROCID of $SLURM_NTASKS'
"""


def test_a_batch_script_runs_unchanged(cluster: OnSlurm) -> None:
    folder = cluster.state.parent / "work"
    folder.mkdir(exist_ok=True)
    (folder / "job.sbatch").write_text(SCRIPT)
    done = cluster.allot("submit", "job.sbatch", "--ignore", "account", cwd=folder)
    assert done.returncode == 0, done.stderr
    first = int(done.stdout.split()[0])
    for job in (first, first + 1):
        cluster.wait_for(job, "succeeded", "failed")
        assert cluster.state_of(job) == "succeeded", cluster.allot("show", str(job)).stdout
    for index in (1, 2):
        lines = (folder / f"unchanged-{index}.out").read_text().splitlines()
        assert lines[0].startswith(f"job unchanged task {index} on n")
        assert sorted(lines[1:]) == ["step 0 of 2", "step 1 of 2"]
