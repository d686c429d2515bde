"""Limits hold, by control groups where there are some, by watching where there are none."""

import os
from pathlib import Path

import pytest

from allotment.backends.local.runner.cgroup import WANTED
from tests.integration.local.harness import NOBODY, Runner, groups_of

MIB = 1 << 20
EAT = """
import time
hoard = []
for _ in range(400):
    hoard.append(bytearray(1 << 20))
    time.sleep(0.001)
time.sleep(1000)
"""
HOG = ["python3", "-I", "-S", "-c", EAT]
LOW = 60 * MIB

MEANS = [
    pytest.param("auto", marks=pytest.mark.needs_root, id="groups"),
    pytest.param("none", id="watched"),
]


@pytest.mark.parametrize("cgroups", MEANS)
def test_too_much_memory_is_told_as_such(runner: Runner, kind: str, cgroups: str) -> None:
    status = runner.run(HOG, memory_bytes=LOW, namespaces=kind, cgroups=cgroups)
    assert status["oom"] is True
    assert status["signal"] == 9
    assert not status["platform_error"]


@pytest.mark.parametrize("cgroups", MEANS)
def test_within_its_memory_a_task_succeeds(runner: Runner, cgroups: str) -> None:
    status = runner.run("sleep 0.6", memory_bytes=LOW, cgroups=cgroups)
    assert (status["exit_code"], status["oom"]) == (0, False)


@pytest.mark.needs_root
def test_a_task_that_copes_with_a_lost_child_is_not_out_of_memory(runner: Runner) -> None:
    status = runner.run(f"python3 -I -S -c '{EAT}'; echo $?; exit 0", memory_bytes=LOW)
    assert (status["exit_code"], status["oom"]) == (0, False)
    assert status["oom_kills"] > 0


@pytest.mark.needs_root
def test_the_peak_of_memory_is_told(runner: Runner) -> None:
    grab = ["python3", "-I", "-S", "-c", "x = bytearray(50 << 20)"]
    peak = runner.run(grab, memory_bytes=200 * MIB)["usage"]["peak_memory_bytes"]
    assert 50 * MIB <= peak <= 100 * MIB


BOMB = "for i in $(seq 1000); do sleep 1000 & done 2>/dev/null; echo here; sleep 0.5; exit 3"


@pytest.mark.needs_root
def test_a_thousand_children_leave_the_rest_alone(runner: Runner, kind: str) -> None:
    calm = runner.launch("sleep 0.3; exit 4", namespaces=kind)
    bomb = runner.launch(BOMB, pids=40, namespaces=kind)
    status = bomb.ended()
    assert status["pids_limit_hit"] is True
    assert calm.ended()["exit_code"] == 4
    assert runner.run("exit 5", namespaces=kind)["exit_code"] == 5


@pytest.mark.needs_root
def test_a_limit_of_processes_is_exact(runner: Runner) -> None:
    """The shell and three sleeps are four; the supervisor counts for an instant only."""
    three = "for i in 1 2 3; do sleep 1000 & done; echo all"
    for limit, fits in ((4, True), (2, False)):
        task = runner.launch(three, pids=limit)
        status = task.ended()
        assert ("all" in task.output(), status["pids_limit_hit"]) == (fits, not fits)


def test_too_many_processes_are_watched_for(runner: Runner, kind: str) -> None:
    status = runner.run(
        "for i in $(seq 60); do sleep 1000 & done; wait",
        pids=20,
        namespaces=kind,
        cgroups="none",
    )
    assert status["pids_limit_hit"] is True
    assert status["ended_by"] == "pids"


FILL = 'head -c 30000000 /dev/zero > "$TMPDIR/big"; sleep 1000'


def test_too_much_scratch_space_ends_the_task(runner: Runner, kind: str) -> None:
    status = runner.run(FILL, disk_bytes=10 * MIB, namespaces=kind)
    assert status["disk_limit_hit"] is True
    assert (status["ended_by"], status["oom"]) == ("disk", False)
    assert "the limit is 10485760" in status["cause"]


def test_scratch_space_within_the_limit_is_fine(runner: Runner) -> None:
    status = runner.run(
        'head -c 1000000 /dev/zero > "$TMPDIR/x"; sleep 1.2', disk_bytes=2 * MIB
    )
    assert (status["exit_code"], status["disk_limit_hit"]) == (0, False)


@pytest.mark.needs_root
def test_a_cpu_ceiling_holds(runner: Runner) -> None:
    burn = ["python3", "-I", "-S", "-c", "import time\nwhile time.process_time() < 0.08: pass"]
    status = runner.run(burn, cpu_milli=100, cpu_ceiling=True)
    assert status["usage"]["wall_ms"] >= 400
    assert status["usage"]["cpu_throttled_ms"] > 0


@pytest.mark.needs_root
def test_without_a_ceiling_cpu_is_a_share(runner: Runner) -> None:
    task = runner.launch("sleep 1000", cpu_milli=2500)
    task.phase("running")
    (group,) = [path for path in groups_of(runner.state) if "/cpu/" in str(path)]
    assert int((group / "cpu.shares").read_text()) == 2560
    assert int((group / "cpu.cfs_quota_us").read_text()) == -1


@pytest.mark.needs_root
def test_control_groups_go_with_their_task(runner: Runner, kind: str) -> None:
    task = runner.launch("sleep 1000 & exit 0", memory_bytes=LOW, pids=9, namespaces=kind)
    status = task.ended()
    assert set(status["isolation"]["controllers"]) == set(WANTED)
    assert groups_of(runner.state) == []


LOOK = """
import sys
for path in sys.argv[1:]:
    try:
        open(path)
    except OSError as error:
        print(error.strerror)
"""
NO_DRIVER, DENIED, NO_DEVICES_HERE = (
    "No such device or address",
    "Operation not permitted",
    "Permission denied",
)


@pytest.mark.needs_root
def test_devices_that_were_not_allotted_are_denied(
    runner: Runner, kind: str, tmp_path: Path
) -> None:
    """Major 195 is NVIDIA's: without its driver, a file that may be opened has no device."""
    mine, other = tmp_path / "nvidia7", tmp_path / "nvidia8"
    os.mknod(mine, 0o20666, os.makedev(195, 7))
    os.mknod(other, 0o20666, os.makedev(195, 8))
    argv = ["python3", "-I", "-S", "-c", LOOK, str(mine), str(other)]
    task = runner.launch(argv, devices=[str(mine)], namespaces=kind)
    task.ended()
    # bubblewrap lets nobody open any device but those that were bound.
    second = NO_DEVICES_HERE if kind == "bwrap" else DENIED
    assert task.output().splitlines() == [NO_DRIVER, second]


@pytest.mark.needs_root
def test_without_devices_all_are_denied(runner: Runner, tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    os.mknod(device, 0o20666, os.makedev(195, 0))
    task = runner.launch(["python3", "-I", "-S", "-c", LOOK, str(device), "/dev/null"])
    task.ended()
    assert task.output().splitlines() == [DENIED]


@pytest.mark.needs_root
def test_limits_bind_the_users_own_task(runner: Runner, kind: str) -> None:
    status = runner.run(
        HOG, memory_bytes=LOW, uid=NOBODY, gid=NOBODY, namespaces=kind, env={"PATH": "/usr/bin"}
    )
    assert status["oom"] is True
