"""Users who forge what the service relies on, on a real Slurm."""

import asyncio

import pytest

from allotment.backends.pilot.squeue import rows
from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, as_nobody, shell
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

RUNS = "until grep -q running status.json; do sleep 0.1; done"


def in_its_folder(cluster: OnSlurm, script: str) -> int:
    """Run a script as nobody, in the folder of its task, once its task runs."""
    where = f"{cluster.state}/slurm/tasks/$ALLOT_JOB_ID/1/0"
    words = ("run", "--detach", "--", "sh", "-c", f"cd {where} && {RUNS}; {script}")
    return int(as_nobody(cluster, *words).stdout)


def forge(status: str) -> str:
    return f"echo '{status}' > forged; mv forged status.json; sleep 1000"


def test_numbers_beyond_all_bounds_stop_nobody_elses_work(cluster: OnSlurm) -> None:
    huge = 10**32
    jobs = [
        in_its_folder(cluster, forge(f'{{"phase":"ended","exit_code":{huge}}}')),
        in_its_folder(
            cluster, forge(f'{{"phase":"ended","exit_code":0,"usage":{{"wall_ms":{huge}}}}}')
        ),
    ]
    for job in jobs:
        status = cluster.state / f"slurm/tasks/{job}/1/0/status.json"
        until(lambda file=status: file.exists() and str(huge) in file.read_text(), "a forgery")
    other = cluster.submit(shell("true"))
    cluster.wait_for(other, "succeeded")
    for job in jobs:
        assert cluster.state_of(job) in ("starting", "running")
        cluster.allot("cancel", str(job))
        cluster.wait_for(job, "cancelled", "failed")


def test_a_task_that_says_it_has_ended_and_runs_on_is_ended(cluster: OnSlurm) -> None:
    job = in_its_folder(cluster, forge('{"phase":"ended","exit_code":0}'))
    cluster.wait_for(job, "succeeded")
    until(lambda: not cluster.slurm_jobs(), "Slurm to have ended it")


def test_others_jobs_of_the_same_name_are_not_taken_for_ours(cluster: OnSlurm) -> None:
    job, canary = (cluster.submit(shell("sleep 1000")) for _ in range(2))
    cluster.wait_for(job, "running")
    cluster.wait_for(canary, "running")
    own = (cluster.state / "slurm/name").read_text()
    name = f"{own}-{job}.1.0"
    for forged in (name, f"x\n9|{name}|FAILED|None|n1\nz", f"x\n9|0|FAILED|None|n1|{name}"):
        cluster.slurm.say(
            "sbatch", "--uid=nobody", "--job-name", forged, "--chdir=/", "--output=/dev/null",
            "--wrap=sleep 1000", "--partition=main", "--mem=10M",
        )  # fmt: skip
    runs = ("squeue", "-h", "-t", "running", "--user=nobody", "-o", "%i")
    until(lambda: len(cluster.slurm.say(*runs).split()) == 3, "them to run")
    own_jobs = ("squeue", "-h", "-o", "%i", f"--name={own}-{canary}.1.0")
    cluster.slurm.say("scancel", cluster.slurm.say(*own_jobs))
    until(lambda: "scancel" in str(cluster.job(canary)["attempts"]), "Slurm to be asked")
    assert cluster.state_of(job) == "running"
    assert len(cluster.job(job)["attempts"]) == 1
    cluster.slurm.say("scancel", "--user=nobody")


def test_a_service_that_cannot_see_a_tasks_state_takes_it_for_running(
    cluster: OnSlurm,
) -> None:
    job = cluster.submit(shell("sleep 1000"))
    cluster.wait_for(job, "running")
    (number,) = cluster.slurm_jobs()
    cluster.kill()
    (cluster.state / f"slurm/tasks/{job}/1/0/status.json").unlink()
    cluster.up()
    assert cluster.state_of(job) == "running"
    after = cluster.submit(shell("true"))
    cluster.wait_for(after, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1
    assert number in cluster.slurm_jobs()


def test_the_steps_of_a_batch_script_have_its_tasks_and_slurms_devices(
    cluster: OnSlurm,
) -> None:
    holds = cluster.submit(shell("sleep 1000", resources={"gpu": 1}))
    cluster.wait_for(holds, "running")
    (node,) = cluster.job(holds)["row"]["nodes"]
    script = cluster.state.parent / "steps.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -n 2 --gpus-per-task=1 --mem=64M -o steps.out\n"
        "echo $SLURM_JOB_ID $SLURM_NTASKS $SLURM_JOB_GPUS $ALLOT_DEVICES\n"
        "srun -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $CUDA_VISIBLE_DEVICES'\n"
    )
    done = cluster.allot("submit", str(script), "-O", f"--chdir={script.parent}")
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    cluster.wait_for(job, "succeeded")
    first, *steps = (script.parent / "steps.out").read_text().splitlines()
    number, tasks, gpus, devices = first.split()
    assert (int(number), tasks) == (job, "2")
    assert gpus == devices
    assert sorted(steps) == [
        f"{rank}: {rank} of 2 on {gpu}" for rank, gpu in enumerate(gpus.split(","))
    ]
    assert node


def test_others_jobs_are_no_pilots_of_ours(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    for name in ("own-n1", "x\n9|own-n1|RUNNING|None|1:00|1:00\nz"):
        words = ("sbatch", "--uid=nobody", "--chdir=/", "--output=/dev/null", "--mem=10M")
        slurm.say(*words, "--wrap=sleep 1000", "--job-name", name)
    until(lambda: len(slurm.say("squeue", "-h", "--user=nobody", "-o", "%i").split()) == 2, "")
    assert asyncio.run(rows("own")) == {}
    slurm.say("sbatch", "--output=/dev/null", "--wrap=sleep 1000", "--job-name", "own-n1")
    assert set(asyncio.run(rows("own"))) == {"own-n1"}
    slurm.say("scancel", "--user=nobody")
    slurm.clear()
