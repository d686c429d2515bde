"""Version 2 of control groups: what can be tried without its controllers, for real."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import hierarchy, procfs
from allotment.backends.local.runner.cgroup import RUNNER
from allotment.backends.local.runner.cgroup_v2 import GroupV2
from allotment.backends.local.runner.surroundings import Limits
from tests.integration.local.harness import until
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.may_skip("few machines have both versions, or only the second"),
]


@pytest.fixture
def group() -> Iterator[GroupV2]:
    mounts = hierarchy.find_mounts(procfs.read("/proc/self/mountinfo"))
    places = [mount.path for mount in mounts if not mount.controllers]
    if not places:
        pytest.skip("needs version 2 of control groups mounted")
    base = Path(places[0]) / f"allot-test-{os.getpid()}"
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
        group.join()
        inside = os.getpid() in group.pids()
        group.leave()
        os._exit(0 if inside and os.getpid() not in group.pids() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_group_with_members_is_removed_with_them(group: GroupV2) -> None:
    child = a_member(group)
    group.remove()
    assert child.wait(PATIENCE_S) == -9
    assert not Path(group.dirs()[0]).exists()
