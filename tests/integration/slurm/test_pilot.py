"""A service that holds the nodes of a real Slurm, with the local runner on them."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_pilots import NODES, Piloted, gated, groups, processes, runners
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm import TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl")]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with a_slurm() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    with a_shared_folder() as made:
        yield made


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Piloted]:
    with a_shared_folder() as made:
        running = Piloted(made / "state", slurm)
        running.up()
        try:
            yield running
        finally:
            running.down()
            slurm.clear()
        until(lambda: not processes(str(running.state)), "nothing to be left")
        assert not groups(running.state), "control groups are left"


def test_a_gang_has_exact_devices_on_both_nodes(cluster: Piloted) -> None:
    first = cluster.submit(shell("sleep 1000", resources={"gpu": 1}))
    cluster.wait_for(first, "running")
    there = f"$(ls {cluster.slurm.devices})"
    script = f"echo rank $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES: {there}"
    job = cluster.submit(shell(script, count=2, resources={"gpu": 3}))
    cluster.wait_for(job, "succeeded")
    lines = sorted(line.partition("| ")[2] for line in cluster.output(job).splitlines())
    own = [re.fullmatch(r"rank (\d) of 2 on ([\d,]+): (.*)", line) for line in lines]
    assert all(own), lines
    for match in own:
        assert match is not None
        assert match[3].split() == [f"gpu{index}" for index in match[2].split(",")]
    placed = {slot["node"] for slot in cluster.job(job)["attempts"][0]["tasks"]}
    assert len(placed) == 2, placed


def test_a_job_is_suspended_and_goes_on(cluster: Piloted) -> None:
    ticks = "for i in $(seq 1000); do echo $i; sleep 0.05; done"
    job = cluster.submit(shell(ticks, resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    until(lambda: bool(cluster.output(job)), "output")
    assert cluster.allot("suspend", str(job)).returncode == 0
    cluster.wait_for(job, "suspended")
    before = cluster.output(job)
    quick = cluster.submit(shell("echo $CUDA_VISIBLE_DEVICES", count=2, resources={"gpu": 4}))
    cluster.wait_for(quick, "succeeded")
    assert cluster.output(job) == before, "it stood still while another had its GPUs"
    assert cluster.allot("resume", str(job)).returncode == 0
    until(lambda: len(cluster.output(job)) > len(before), "it to go on")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_jobs_run_on_while_the_service_is_away(cluster: Piloted, folder: Path) -> None:
    early, late = folder / "early", folder / "late"
    job = cluster.submit(shell(f"{gated(late)}; echo done; exit 7", count=2))
    ends = cluster.submit(shell(f"{gated(early)}; echo ended"))
    cluster.wait_for(job, "running")
    cluster.wait_for(ends, "running")
    before = cluster.pilots()
    cluster.kill()
    early.touch()
    until(lambda: not processes(f"-e {early}"), "one to end meanwhile")
    cluster.up()
    cluster.wait_for(ends, "succeeded")
    late.touch()
    cluster.wait_for(job, "failed")
    assert cluster.output(ends).split() == ["ended"]
    assert "done" in cluster.output(job)
    assert len(cluster.job(job)["attempts"]) == 1
    assert cluster.pilots() == before


def test_a_pilot_that_is_cancelled_takes_its_tasks_with_it(cluster: Piloted) -> None:
    mark = f"sleep 1000.{os.getpid()}"
    job = cluster.submit(shell(f"{mark} & {mark}", resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    until(lambda: len(processes(mark)) == 3, "its processes")
    (task,) = cluster.job(job)["attempts"][0]["tasks"]
    own = processes(mark)
    cluster.slurm.say("scancel", cluster.pilots()[task["node"]])
    until(lambda: not set(own) & set(processes(mark)), "its processes to be gone")
    until(lambda: len(cluster.job(job)["attempts"]) == 2, "another attempt")
    cluster.wait_for(job, "running")
    assert "scancel" in str(cluster.job(job)["attempts"][0])
    cluster.until_held()
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")
    assert not processes(mark)


def test_a_command_runs_inside_a_task_on_its_node(cluster: Piloted) -> None:
    mark = f"sleep 1500.{os.getpid()}"
    job = cluster.submit(shell(f"export INSIDE=yes; exec {mark}", resources={"gpu": 1}))
    cluster.wait_for(job, "running")
    until(lambda: bool(processes(mark)), "its command")
    show = f"echo $INSIDE $$; ls {cluster.slurm.devices}; exit 7"
    done = cluster.allot("exec", str(job), "--", "sh", "-c", show)
    said = done.stdout.split()
    assert done.returncode == 7, done.stdout + done.stderr
    assert said[0] == "yes"
    assert len(said) == 3, said
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_a_frozen_task_dies_with_its_pilot(cluster: Piloted) -> None:
    mark = f"sleep 2000.{os.getpid()}"
    job = cluster.submit(shell(mark, resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    (task,) = cluster.job(job)["attempts"][0]["tasks"]
    assert cluster.allot("suspend", str(job)).returncode == 0
    cluster.wait_for(job, "suspended")
    assert processes(mark)
    own = processes(mark)
    cluster.slurm.say("scancel", cluster.pilots()[task["node"]])
    until(lambda: not set(own) & set(processes(mark)), "the frozen one to be gone")
    cluster.allot("cancel", str(job))


def test_jobs_whose_runner_is_silent_are_shown_as_not_known(cluster: Piloted) -> None:
    job = cluster.submit(shell("sleep 1000"))
    cluster.wait_for(job, "running")
    (node,) = cluster.job(job)["row"]["nodes"]
    cluster.kill()
    stopped = runners(cluster.state)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        cluster.up()
        until(lambda: cluster.job(job)["row"]["unheard"], "it to be noticed")
        told = f"The runner of {node} has not answered for "
        for words in (("ps",), ("show", str(job)), ("why", str(job)), ("nodes",)):
            assert told in cluster.allot(*words).stdout, words
        assert "running?" in cluster.allot("ps").stdout
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    until(lambda: cluster.job(job)["row"]["unheard"] is None, "it to be heard again")
    assert cluster.state_of(job) == "running"
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_killed_agent_comes_back_and_its_tasks_never_stopped(
    cluster: Piloted, folder: Path
) -> None:
    job = cluster.submit(shell(f"{gated(folder / 'go')}; echo whole"))
    cluster.wait_for(job, "running")
    for pid in runners(cluster.state):
        os.kill(pid, signal.SIGKILL)
    (folder / "go").touch()
    cluster.wait_for(job, "succeeded")
    assert cluster.output(job).split() == ["whole"]
    assert len(cluster.job(job)["attempts"]) == 1
    cluster.until_held()


def test_a_killed_fence_takes_everything_with_it(cluster: Piloted) -> None:
    mark = f"sleep 3000.{os.getpid()}"
    job = cluster.submit(shell(mark))
    cluster.wait_for(job, "running")
    own = processes(mark)
    for folder in (cluster.state / "pilot/nodes").iterdir():
        os.kill(int((folder / "pilot.lock").read_text().split()[0]), signal.SIGKILL)
    until(lambda: not set(own) & set(processes(mark)), "its processes to be gone")
    until(lambda: len(cluster.job(job)["attempts"]) == 2, "another attempt")
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")
    cluster.until_held()  # Only then are the groups removed that nobody could remove.


def test_nodes_are_given_back_when_the_service_ends_idle(cluster: Piloted) -> None:
    assert len(cluster.pilots()) == 2
    cluster.allot("down")
    until(lambda: not cluster.slurm.say("squeue", "-h"), "Slurm to be empty")
    until(lambda: not processes(str(cluster.state)), "nothing to be left")
    cluster.up()
    cluster.until_held()


CELLS = f"""\
{NODES}cells:
  types:
    pair: {{of: a100, count: 2}}
    box: {{of: pair, count: 2, node: true}}
  roots:
    - {{type: box, nodes: [n1]}}
    - {{type: box, nodes: [n2]}}
tenants:
  lab: {{cells: {{pair: 4}}, on_eviction: suspend}}
"""


def test_a_task_in_cells_has_the_devices_of_one_cell(service: Piloted, folder: Path) -> None:
    service.allot("down")
    until(lambda: not service.slurm.say("squeue", "-h"), "the nodes to be given back")
    cluster = Piloted(folder / "state", service.slurm, CELLS)
    cluster.up()
    try:
        show = shell("echo $CUDA_VISIBLE_DEVICES; sleep 1000", resources={"gpu": 1})
        ones = [cluster.submit(show) for _ in range(2)]
        two = cluster.submit(shell("echo $CUDA_VISIBLE_DEVICES", resources={"gpu": 2}))
        cluster.wait_for(two, "succeeded")
        for job in ones:
            cluster.wait_for(job, "running")
        assert cluster.output(two).strip() in ("0,1", "2,3")
    finally:
        cluster.down()
        service.slurm.clear()
        service.up()


def test_a_runner_with_a_wrong_secret_is_not_let_in(cluster: Piloted) -> None:
    log = cluster.state / "pilot/nodes/n1/pilot.log"
    cluster.slurm.say("scancel", cluster.pilots()["n1"])
    kept = cluster.state / "pilot/nodes/n1/pilot.json"
    until(lambda: "n1" not in cluster.pilots(), "the first to end")
    until(lambda: "n1" in cluster.pilots(), "the next")
    cluster.until_held()
    own = kept.read_text()
    cluster.kill()
    secret = re.sub(r'"(secret|session)":"[0-9a-f]{64}"', rf'"\1":"{"0" * 64}"', own)
    assert secret != own
    kept.write_text(secret)
    cluster.up()
    until(lambda: "a wrong secret" in log.read_text(), "a refusal")
    cluster.until_held()
    assert kept.read_text() != own, "it is held by another, with a secret of its own"
