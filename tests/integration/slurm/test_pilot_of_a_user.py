"""Pilots of an ordinary user: the service, what holds the nodes, and tasks are all its own."""

import json
import os
import pwd
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_pilots import USER, OfAUser, processes
from tests.support.on_slurm import a_shared_folder, as_user, shell
from tests.support.registry import a_registry, busybox
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl", "bwrap")]


@pytest.fixture(scope="module")
def cluster(slurm: Slurm) -> Iterator[OfAUser]:
    with a_shared_folder() as made:
        running = OfAUser(made / "state", slurm)
        running.up()
        try:
            running.until_held()
            yield running
        finally:
            running.down()
            slurm.clear()
        until(lambda: not processes(str(running.state)), "nothing to be left")


def owner(pid: int) -> str:
    return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name


def test_pilots_and_tasks_run_as_the_user(cluster: OfAUser) -> None:
    names = cluster.slurm.say("squeue", "-h", "-o", "%u").split()
    assert names == [USER, USER]
    show = f"id -un; ls {cluster.slurm.devices}; echo $CUDA_VISIBLE_DEVICES; sleep 1000"
    job = cluster.submit(shell(show, resources={"gpu": 2}))
    cluster.wait_for(job, "running")
    until(lambda: len(cluster.output(job).splitlines()) == 4, "its output")
    name, *devices, visible = cluster.output(job).splitlines()
    assert name == USER
    assert [f"gpu{index}" for index in visible.split(",")] == devices
    assert all(owner(pid) == USER for pid in processes(str(cluster.state)))
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


@pytest.mark.needs_tool("docker-registry", "busybox")
def test_a_job_runs_in_its_image(cluster: OfAUser, tmp_path: Path) -> None:
    with a_registry(tmp_path / "registry") as registry:
        registry.push("bb", [busybox()], config={"Env": ["PATH=/bin"]})
        look = f"id -un; cat /etc/system; ls {cluster.slurm.devices}; exit 7"
        job = cluster.submit(shell(look, image=f"{registry.host}/bb:1", resources={"gpu": 1}))
        cluster.wait_for(job, "failed")
    assert cluster.output(job).split()[:2] == [USER, "busybox"]
    assert "exit code 7" in json.dumps(cluster.job(job))


def test_a_job_is_suspended_goes_on_and_is_entered(cluster: OfAUser) -> None:
    ticks = "export INSIDE=yes; for i in $(seq 10000); do echo $i; sleep 0.05; done"
    job = cluster.submit(shell(ticks, resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    done = cluster.allot("exec", str(job), "--", "sh", "-c", "id -un; echo $$; exit 7")
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout.split()[0] == USER
    until(lambda: bool(cluster.output(job)), "output")
    assert cluster.allot("suspend", str(job)).returncode == 0
    cluster.wait_for(job, "suspended")
    before = cluster.output(job)
    quick = cluster.submit(shell("echo there", count=2, resources={"gpu": 4}))
    cluster.wait_for(quick, "succeeded")
    assert cluster.output(job) == before, "it stood still while another had its GPUs"
    assert cluster.allot("resume", str(job)).returncode == 0
    until(lambda: len(cluster.output(job)) > len(before), "it to go on")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


@pytest.mark.parametrize("how", ["scancel", "its fence is killed"])
def test_a_pilot_that_ends_takes_its_tasks_with_it(cluster: OfAUser, how: str) -> None:
    cluster.until_held()
    mark = f"sleep 1000.{os.getpid()}"
    job = cluster.submit(shell(f"(setsid {mark} &) ; {mark}", resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    until(lambda: len(processes(mark)) >= 3, "its processes")
    (node,) = cluster.job(job)["row"]["nodes"]
    own = processes(mark)
    if how == "scancel":
        cluster.slurm.say("scancel", cluster.pilots()[node])
    else:
        lock = cluster.state / f"pilot/nodes/{node}/pilot.lock"
        os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
    until(lambda: not set(own) & set(processes(mark)), "its processes to be gone")
    until(lambda: len(cluster.job(job)["attempts"]) == 2, "another attempt")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_nobody_else_has_a_job_run_by_it(cluster: OfAUser) -> None:
    before = cluster.state.stat().st_mode
    done = as_user("games", cluster, "run", "--", "true")
    assert "permission denied" in done.stderr
    cluster.state.chmod(0o755)
    for name in ("allot.sock", "address.json"):
        (cluster.state / name).chmod(0o666)
    try:
        done = as_user("games", cluster, "run", "--", "id", "-un")
    finally:
        cluster.state.chmod(before)
    assert done.returncode != 0
    assert "answers no other user" in done.stderr
    assert not done.stdout


def test_what_holds_without_root_is_said(cluster: OfAUser) -> None:
    cluster.until_held()
    said = cluster.allot("doctor").stdout
    assert "pilots of nobody, not of root" in " ".join(said.split())
    again = cluster.allot("up")
    assert "as nobody" in " ".join((again.stdout + again.stderr).split())
