"""Supervisors that say nothing: woken where that helps, and their tasks ended where not."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allotment.backends.local.runner import layout, procfs
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner, Task, a_runner, alive, groups_of, until
from tests.support.cgroup2 import a_cgroup2

ALL_KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
HASTY = """
import sys
from allotment.backends.local.runner import launcher, watchdog
watchdog.LOOK_EVERY_S = 0.15
launcher.start(sys.argv[1])
"""


@pytest.fixture
def hasty() -> Iterator[Runner]:
    """A launcher that looks after its supervisors seven times a second."""
    with a_runner(program=["-c", HASTY]) as made:
        yield made


def a_marked_task(runner: Runner, kind: str, **fields: object) -> tuple[Task, str]:
    marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
    script = f"(exec -a {marker} sleep 1000) & echo ready; exec -a {marker} sleep 1000"
    task = runner.launch(["bash", "-c", script], namespaces=kind, **fields)
    task.says("ready")
    until(lambda: len(alive(marker)) == 2, "two processes")
    return task, marker


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Keep a process from running, by a group of its own: no SIGCONT wakes it."""
    with a_cgroup2() as root:
        group = root / f"allot-test-{os.getpid()}"
        group.mkdir()
        try:
            (group / "cgroup.procs").write_text(str(pid))
            (group / "cgroup.freeze").write_text("1")
            until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), "the freeze")
            yield
        finally:
            until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
            group.rmdir()


@ALL_KINDS
def test_a_stopped_supervisor_is_woken(hasty: Runner, kind: str) -> None:
    task = hasty.launch("echo ready; sleep 1000", namespaces=kind)
    pid = task.phase("running")["supervisor_pid"]
    os.kill(pid, signal.SIGSTOP)
    task.control("kill")
    status = task.ended()
    assert (status["ended_by"], status["lost"], status["platform_error"]) == ("kill", False, "")


def test_a_stopped_supervisor_of_an_earlier_launcher_is_woken(hasty: Runner) -> None:
    task = hasty.launch("echo ready; sleep 1000")
    pid = task.phase("running")["supervisor_pid"]
    hasty.kill_launcher()
    os.kill(pid, signal.SIGSTOP)
    assert hasty.start() == 0
    task.control("kill")
    assert task.ended()["ended_by"] == "kill"


@pytest.mark.needs_root
@ALL_KINDS
def test_who_does_not_obey_is_ended_with_its_task(hasty: Runner, kind: str) -> None:
    task, marker = a_marked_task(hasty, kind)
    with frozen(task.phase("running")["supervisor_pid"]):
        task.control("stop TERM 100")
        status = task.ended()
    assert status["lost"] is True
    assert status["platform_error"].startswith("its supervisor did not answer for")
    until(lambda: not alive(marker), "the whole task to end")
    assert groups_of(hasty.state) == []
    log = hasty.state / layout.LOG
    assert task.key in log.read_text()
    os.truncate(log, 0)


def test_who_answers_is_left_alone(hasty: Runner) -> None:
    """Also one that has nothing to do, and one that is held at its barrier."""
    tasks = [hasty.launch("echo ready; sleep 1000") for _ in range(5)]
    tasks.append(hasty.launch("true", hold_at_barrier=True))
    pids = [task.reaches(has_pid, "a supervisor")["supervisor_pid"] for task in tasks]
    before = [procfs.read(f"/proc/{pid}/schedstat") for pid in pids]
    until(
        lambda: all(
            int(procfs.read(f"/proc/{pid}/schedstat").split()[2]) >= int(was.split()[2]) + 10
            for pid, was in zip(pids, before, strict=True)
        ),
        "each to have been asked ten times",
    )
    assert all(task.is_held() for task in tasks)


def has_pid(status: dict[str, int]) -> bool:
    return status["supervisor_pid"] > 0


@ALL_KINDS
def test_a_task_whose_adopted_supervisor_is_killed_is_cleared_up(
    hasty: Runner, kind: str
) -> None:
    """The launcher that runs now did not fork it, and no signal tells of its end."""
    task, marker = a_marked_task(hasty, kind, memory_bytes=1 << 30)
    pid = task.phase("running")["supervisor_pid"]
    hasty.kill_launcher()
    assert hasty.start() == 0
    os.kill(pid, signal.SIGKILL)
    assert task.ended()["lost"] is True
    until(lambda: not alive(marker), "the whole task to end")
    until(lambda: groups_of(hasty.state) == [], "its groups to go")


@pytest.mark.parametrize("kind", [OWN])
def test_a_frozen_task_whose_supervisor_is_killed_is_cleared_up(
    hasty: Runner, kind: str
) -> None:
    """Its launcher cannot reap the supervisor while something frozen is below it."""
    task, marker = a_marked_task(hasty, kind)
    pid = task.phase("running")["supervisor_pid"]
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    os.kill(pid, signal.SIGKILL)
    assert task.ended()["lost"] is True
    until(lambda: not alive(marker), "the whole task to end")
    until(lambda: groups_of(hasty.state) == [], "its groups to go")


@pytest.fixture
def outer_freezer() -> Iterator[Path]:
    """A freezer that no task's group is: what stands still there does not even die."""
    root = Path("/sys/fs/cgroup/freezer")
    if not os.access(root, os.W_OK):
        pytest.skip("no freezer of version 1 that we may use")
    group = root / f"allot-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


@pytest.mark.parametrize("kind", [OWN])
def test_a_task_is_not_lost_while_a_process_of_it_does_not_die(
    hasty: Runner, outer_freezer: Path, kind: str
) -> None:
    """A process whose device memory the kernel still gives back is one."""
    task, marker = a_marked_task(hasty, kind)
    status = task.phase("running")
    (outer_freezer / "cgroup.procs").write_text(str(status["pid"]))
    state = outer_freezer / "freezer.state"
    state.write_text("FROZEN")
    until(lambda: state.read_text() == "FROZEN\n", "it to stand still")
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: not task.is_held(), "its supervisor to let go")
    until(task.is_held, "somebody to clear up")
    until(lambda: not task.is_held(), "that to be given up")
    assert task.status()["phase"] == "running"
    assert alive(marker)
    state.write_text("THAWED")
    assert task.ended()["lost"] is True
    assert not alive(marker)
    until(lambda: groups_of(hasty.state) == [], "its groups to go")
