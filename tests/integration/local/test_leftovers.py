"""Nothing of a task is left behind, whatever it was given and whenever it was killed."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from allotment.backends.local.runner import layout, procfs
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner, Task, alive, groups_of, until
from tests.support.exchange import FEW

KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
AT_ONCE = 8


@pytest.mark.needs_root
@pytest.mark.parametrize("path", ["/", "/sys", "/sys/fs/cgroup"])
def test_what_is_refused_as_data_leaves_no_groups(runner: Runner, path: str) -> None:
    task = runner.launch("echo ran", read_only=[path], memory_bytes=1 << 30)
    assert path in task.ended()["platform_error"]
    assert groups_of(runner.state) == []


@KINDS
def test_supervisors_killed_at_any_moment_leave_nothing(runner: Runner, kind: str) -> None:
    """From before their first step to after their last: one after the other of each batch."""
    marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
    script = ["bash", "-c", f"exec -a {marker} sleep 1000"]
    tries = FEW
    launcher = runner.launcher_pid
    for _ in range(tries // AT_ONCE):
        tasks: list[Task] = []
        for _ in range(AT_ONCE):
            tasks.append(runner.launch(script, namespaces=kind, memory_bytes=1 << 30))
            kill_supervisors(launcher, but_youngest=True)
        until(lambda: all_killed(runner, launcher), "all of them to be gone")
        assert all(task.status()["phase"] == "ended" for task in tasks)
    until(lambda: not alive(marker), "all commands to end")
    assert groups_of(runner.state) == []
    assert not list(Path(runner.ask({"op": "hello"})["scratch_root"]).iterdir())


def all_killed(runner: Runner, launcher: int) -> bool:
    kill_supervisors(launcher)
    return not list((runner.state / layout.LIVE).iterdir())


def kill_supervisors(launcher: int, *, but_youngest: bool = False) -> None:
    """Kill them, but no salvager: those have the launcher's name."""
    found = [(pid, procfs.stat(pid)) for pid in procfs.children(launcher)]
    pids = [pid for pid, stat in found if stat is not None and stat.name == "allot-task"]
    for pid in pids[:-1] if but_youngest else pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
