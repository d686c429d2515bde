"""Version 2 of control groups: what can be tried without its controllers, for real."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import hierarchy, procfs
from allotment.backends.local.runner.cgroup import JOIN, RUNNER
from allotment.backends.local.runner.cgroup_v2 import GroupV2
from allotment.backends.local.runner.surroundings import Limits
from tests.integration.local.harness import Runner, a_runner, groups_of, until
from tests.support.cgroup2 import a_cgroup2
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.needs_root]


@pytest.fixture
def root() -> Iterator[Path]:
    with a_cgroup2() as path:
        yield path


@pytest.fixture
def group(root: Path) -> Iterator[GroupV2]:
    base = root / f"allot-test-{os.getpid()}"
    (base / RUNNER).mkdir(parents=True)
    made = GroupV2(str(base), [], "1.1.worker.0")
    made.create(Limits(0, False, 0, 0))
    yield made
    made.remove()
    until(
        lambda: not (base / RUNNER / "cgroup.procs").read_text(), "the runner's group to empty"
    )
    (base / RUNNER).rmdir()
    base.rmdir()


def a_member(group: GroupV2) -> subprocess.Popen[bytes]:
    """Start a child in the group: the shell joins by its own hand."""
    (folder,) = group.dirs()
    script = f"echo 0 > {folder}/cgroup.procs; echo in; sleep 1000 & sleep 1000"
    child = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"in\n"
    child.stdout.close()
    return child


def test_members_are_frozen_and_thawed(group: GroupV2) -> None:
    child = a_member(group)
    assert group.set_frozen(True)
    until(group.is_frozen, "the freeze")
    group.set_frozen(False)
    until(lambda: not group.is_frozen(), "the thaw")
    group.kill()
    child.wait(PATIENCE_S)


@pytest.mark.parametrize("frozen", [False, True])
def test_all_members_are_killed(group: GroupV2, frozen: bool) -> None:
    child = a_member(group)
    until(lambda: len(group.pids()) == 3, "three members")
    group.set_frozen(frozen)
    group.kill()
    assert child.wait(PATIENCE_S) == -9
    assert group.pids() == []


def test_join_and_leave_move_the_caller(group: GroupV2) -> None:
    pid = os.fork()
    if pid == 0:
        (door,) = group.open_doors()
        os.write(door, JOIN)
        inside = os.getpid() in group.pids()
        group.leave()
        os._exit(0 if inside and os.getpid() not in group.pids() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_group_with_members_is_removed_with_them(group: GroupV2) -> None:
    child = a_member(group)
    group.remove()
    assert child.wait(PATIENCE_S) == -9
    assert not Path(group.dirs()[0]).exists()


START_ON_V2 = """
import os, sys
from allotment.backends.local.runner import hierarchy, launcher
def prepare(state_dir):
    mounts = hierarchy.find_mounts(open("/proc/self/mountinfo").read())
    root = next(mount.path for mount in mounts if not mount.controllers)
    base = f"{root}/allotment/{hierarchy.short_hash(state_dir)}"
    os.makedirs(f"{base}/runner", exist_ok=True)
    return hierarchy.Hierarchy("v2", {"none": base}, {})
hierarchy.prepare = prepare
launcher.start(sys.argv[1])
"""


@pytest.fixture
def on_v2(root: Path) -> Iterator[Runner]:
    """A launcher whose groups are of version 2, here without any controller."""
    assert root
    with a_runner(program=["-c", START_ON_V2]) as made:
        yield made


def test_a_task_lives_in_its_group(on_v2: Runner, kind: str) -> None:
    task = on_v2.launch(
        "cat /proc/self/cgroup; sleep 1000", namespaces=kind, uid=4711, gid=4711
    )
    until(lambda: f"0::/allotment/{hash_of(on_v2)}/{task.key}" in task.output(), "its group")
    pid = task.phase("running")["supervisor_pid"]
    assert f"{hash_of(on_v2)}/{RUNNER}" in procfs.read(f"/proc/{pid}/cgroup")
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    task.control("stop TERM 20000")
    assert task.ended()["ended_by"] == "stop"
    assert groups_of(on_v2.state) == []


@pytest.mark.parametrize("frozen", [False, True])
def test_a_task_is_ended_by_its_group_when_its_supervisor_is_killed(
    on_v2: Runner, kind: str, frozen: bool
) -> None:
    task = on_v2.launch("sleep 1000 & setsid sleep 1000 & sleep 1000", namespaces=kind)
    status = task.phase("running")
    (folder,) = groups_of(on_v2.state)
    until(lambda: len((folder / "cgroup.procs").read_text().split()) >= 4, "all of it")
    members = [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    if frozen:
        task.control("freeze")
        task.reaches(lambda status: status["frozen"], "frozen")
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    assert task.ended()["lost"] is True
    until(lambda: not any(map(procfs.start_time, members)), "its processes to end")
    assert groups_of(on_v2.state) == []


def hash_of(runner: Runner) -> str:
    return hierarchy.short_hash(str(runner.state.resolve()))
