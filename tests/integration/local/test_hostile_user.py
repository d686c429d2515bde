"""What a user can do to the processes of a root service that work for him: nothing."""

import json
import os
import pty
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.backend import ENTER
from allotment.service.isolated import isolated
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import (
    SYSTEM_PYTHON,
    Runner,
    Task,
    alive,
    groups_of,
    until,
)
from tests.support.exchange import FEW
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.needs_root
AT_ONCE = 20
USER = 640_000 + os.getpid()
"""Nobody else on this machine, so that nobody else is attacked."""
KINDS = [
    pytest.param(*OWN.values, FEW, marks=OWN.marks),
    pytest.param(*BWRAP.values, FEW, marks=BWRAP.marks),
    ("none", FEW),
]
OURS = ("allot-", "python")
"""The names of our processes, until they become a task's command."""


@pytest.fixture
def runner(own_runner: Runner) -> Runner:
    """A launcher that the attacker has not met before."""
    return own_runner


@contextmanager
def an_attacker(
    folder: Path, user: int = USER, *only: str
) -> Iterator[dict[str, list[tuple[int, str]]]]:
    """Let a user attack every new process meanwhile; then tell on whom it worked."""
    script = shutil.copy(Path(__file__).with_name("attacker.py"), folder)
    found: dict[str, list[tuple[int, str]]] = {}
    process = subprocess.Popen(
        [SYSTEM_PYTHON, "-I", "-S", script, *only],
        user=user,
        group=user,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield found
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE_S)
    found |= json.loads(out)


def ended_by_order(tasks: list[Task]) -> list[dict[str, Any]]:
    """Order tasks to end as `allot cancel` does, whatever was done to them."""
    for task in tasks:
        with suppress(OSError):  # over already
            task.control("kill")
    return [task.ended() for task in tasks]


@pytest.mark.parametrize(("kind", "tries"), KINDS)
def test_no_process_of_ours_is_ever_its_users(
    runner: Runner, kind: str, tries: int, reachable: Path
) -> None:
    """He may do all that to the command, from its first step on, and to nothing else.

    Until a child of ours has become the command it has our name, and our memory.
    """
    supervisors: set[int] = set()
    with an_attacker(reachable) as found:
        for _ in range(tries // AT_ONCE):
            tasks = [
                runner.launch(["true"], uid=USER, gid=USER, namespaces=kind)
                for _ in range(AT_ONCE)
            ]
            for task in tasks:
                until(task.status, "a first word: it runs, is over, or is slow to start")
            supervisors |= {status["supervisor_pid"] for status in ended_by_order(tasks)}
    assert len(supervisors) >= tries // 2
    assert found["stopped"], "the attacker was too slow to try anything"
    check_safe(found, supervisors)
    assert groups_of(runner.state) == []


TRACE = """\
import ctypes, signal, sys
libc = ctypes.CDLL(None)
print(sum(libc.ptrace(0x4206, int(pid), None, None) == 0 for pid in sys.argv[1:]), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
def test_who_traces_what_is_killed_keeps_no_task(runner: Runner, kind: str) -> None:
    """The kernel keeps the dead for who traces them, and the first of a PID namespace for the
    dead."""
    marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
    sleep = f"exec -a {marker} sleep 1000"
    task = runner.launch(
        ["bash", "-c", f"({sleep}) & {sleep}"], uid=USER, gid=USER, namespaces=kind
    )
    until(lambda: len(alive(marker)) == 2, "both processes")
    pids = map(str, alive(marker))
    with subprocess.Popen(
        [SYSTEM_PYTHON, "-I", "-S", "-c", TRACE, *pids],
        user=USER, group=USER, extra_groups=[], stdout=subprocess.PIPE, text=True,
    ) as tracer:  # fmt: skip
        try:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == "2\n"
            task.control("kill")
            task.ended()
            assert tracer.poll() is None
        finally:
            tracer.kill()
    assert groups_of(runner.state) == []


def check_safe(found: dict[str, list[tuple[int, str]]], ours: set[int]) -> None:
    """Check that no attack worked on ours, nor on what still has our memory."""
    assert {kind: [one for one in whom if one[0] in ours] for kind, whom in found.items()} == {
        kind: [] for kind in found
    }
    for attack in ("traced", "memory", "descriptors", "environment", "folder"):
        assert [one for one in found[attack] if one[1].startswith(OURS)] == []


@pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
def test_what_waits_for_a_command_of_exec_is_never_its_users(
    runner: Runner, kind: str, reachable: Path
) -> None:
    task = runner.launch("echo ready; sleep 1000", uid=USER, gid=USER, namespaces=kind)
    task.says("ready")
    task.phase("running")
    tries = FEW
    waiting: set[int] = set()
    with an_attacker(reachable) as found:
        for _ in range(tries // AT_ONCE):
            waiting |= enter_all(task)
    assert found["stopped"], "the attacker was too slow to try anything"
    check_safe(found, waiting)


def enter_all(task: Task) -> set[int]:
    """Run commands in a task, a fifth of a second long; give those who wait for them."""
    argv = isolated(ENTER, str(task.folder), "--", "true", bare=True)
    processes = [
        subprocess.Popen(argv, start_new_session=True, env={}, stderr=subprocess.DEVNULL)
        for _ in range(AT_ONCE)
    ]
    end = time.monotonic() + 0.2
    for process in processes:
        with suppress(subprocess.TimeoutExpired):  # its command was stopped
            process.wait(max(0.0, end - time.monotonic()))
        process.kill()
        process.wait(PATIENCE_S)
    return {process.pid for process in processes}


STOP_THE_FRONT = """
import os, signal, sys, time
leader = os.getsid(0)
if os.fork() == 0:
    signal.alarm(20)
    os.setpgid(0, 0)          # a parent in another group of the session: so the leader's
    if os.fork() == 0:        # group has one who could let it go on, and may be stopped
        signal.alarm(20)
        os.setpgid(0, leader)
        signal.pause()
    signal.pause()
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
time.sleep(0.2)
os.tcsetpgrp(0, leader)
print("set", flush=True)
sys.stdin.readline()
print("over", flush=True)
"""


def test_no_key_stops_what_waits_for_a_command(runner: Runner) -> None:
    """Control-Z goes to all processes in front, root's too, whoever may signal them."""
    task = runner.launch("sleep 1000", uid=USER, gid=USER, namespaces="none")
    task.phase("running")
    command = [SYSTEM_PYTHON, "-I", "-S", "-c", STOP_THE_FRONT]
    argv = isolated(ENTER, str(task.folder), "--", *command, bare=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, {})
    said = b""
    for word, answer in ((b"set", b"\x1a"), (b"^Z", b"\n"), (b"over", b"")):
        while word not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, answer)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert os.WIFEXITED(status), "it was stopped"
    os.close(terminal)
