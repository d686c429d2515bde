"""A command can be run inside a running task, or one that is held after its failure."""

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import hierarchy, procfs
from allotment.service.isolated import isolated
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import (
    NOBODY,
    Runner,
    Task,
    an_unprivileged_runner,
    remove_group,
    until,
)
from tests.support.patience import PATIENCE_S

NAME = "allotment.backends.local.runner.enter"
ALL_KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
SHOW = "pwd; echo $WORD; cat $TMPDIR/mark; id -u; ps -eo comm= | sort -u | tr '\\n' ' '"


def command(task: Task, *argv: str) -> list[str]:
    return isolated(NAME, str(task.folder), "--", *argv, bare=True)


def enter(task: Task, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {"SECRET": "of the service"}
    return subprocess.run(
        command(task, *argv),
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def a_task(runner: Runner, kind: str, **fields: object) -> Task:
    task = runner.launch(
        "echo mine > $TMPDIR/mark; echo ready; sleep 1000",
        env={"PATH": "/usr/bin:/bin", "WORD": "task's"},
        cwd="/usr/share",
        namespaces=kind,
        **fields,
    )
    task.says("ready")
    task.phase("running")
    return task


def test_a_command_gets_what_the_task_has(runner: Runner, kind: str) -> None:
    task = a_task(runner, kind)
    done = enter(task, "sh", "-c", SHOW)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["/usr/share", "task's", "mine"], done.stderr
    if kind != "none":
        assert set(lines[4].split()) <= {
            "sh",
            "ps",
            "sleep",
            "bwrap",
            "allot-task",
            "sort",
            "tr",
        }
    assert "SECRET" not in enter(task, "env").stdout


def test_exit_codes_and_signals_come_through(runner: Runner, kind: str) -> None:
    task = a_task(runner, kind)
    assert enter(task, "sh", "-c", "exit 7").returncode == 7
    assert enter(task, "sh", "-c", "kill -TERM $$").returncode == 128 + 15
    assert enter(task, "no-such-program").returncode == 127
    assert enter(task, "/etc/passwd").returncode == 126


@pytest.mark.needs_root
@ALL_KINDS
def test_it_runs_as_the_tasks_user(runner: Runner, kind: str) -> None:
    task = a_task(runner, kind, uid=NOBODY, gid=NOBODY, groups=[4711])
    done = enter(task, "sh", "-c", "id -u; id -g; grep -E 'CapEff|NoNew' /proc/self/status")
    assert done.stdout.split() == [
        "65534",
        "65534",
        "CapEff:",
        "0000000000000000",
        "NoNewPrivs:",
        "1",
    ]


@pytest.mark.needs_root
@ALL_KINDS
def test_it_is_bound_by_the_tasks_limits(runner: Runner, kind: str) -> None:
    task = a_task(runner, kind, memory_bytes=60 << 20)
    eat = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    assert enter(task, "python3", "-I", "-S", "-c", eat).returncode == 128 + 9
    assert task.status()["phase"] == "running"


def test_it_ends_with_the_task(runner: Runner, kind: str) -> None:
    task = a_task(runner, kind)
    inside = subprocess.Popen(
        command(task, "sh", "-c", "echo in; exec sleep 1000"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert inside.stdout is not None
    assert inside.stdout.readline() == "in\n"
    task.control("kill")
    task.ended()
    if kind != "none":  # there only a control group would tie it to the task
        assert inside.wait(PATIENCE_S) == 128 + 9
    inside.kill()
    inside.wait()
    inside.stdout.close()


def test_a_held_task_can_be_looked_at(runner: Runner, kind: str) -> None:
    task = runner.launch(
        "echo mine > $TMPDIR/mark; exit 3",
        env={"PATH": "/usr/bin:/bin", "WORD": "task's"},
        cwd="/usr/share",
        hold_on_failure_ms=600_000,
        namespaces=kind,
    )
    task.phase("holding")
    done = enter(task, "sh", "-c", SHOW)
    assert done.stdout.splitlines()[:3] == ["/usr/share", "task's", "mine"], done.stderr
    assert task.status()["exit_code"] == 3


def test_what_is_over_or_never_was_cannot_be_entered(runner: Runner) -> None:
    task = runner.launch(["true"])
    task.ended()
    done = enter(task, "true")
    assert done.returncode == 125
    assert done.stderr == "allotment: cannot enter the task: it is ended\n"
    assert enter(Task(runner, "99.1.worker.0"), "true").returncode == 125


def test_a_terminal_is_handed_on(runner: Runner, kind: str) -> None:
    """As `allot exec` does it: the command's terminal is the one we were started on."""
    task = a_task(runner, kind)
    pid, terminal = pty.fork()
    if pid == 0:
        argv = command(
            task, "sh", "-c", "test -t 0 && test -t 1 && stty size && read x && echo got $x"
        )
        os.execv(argv[0], argv)
    said = b""

    def read_until(word: bytes) -> bool:
        nonlocal said
        said += os.read(terminal, 4096)
        return word in said

    until(lambda: read_until(b"0 0"), "the size of the terminal")
    os.write(terminal, b"hello\n")
    until(lambda: read_until(b"got hello"), "an answer")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)


def enter_as_user(task: Task, script: str) -> subprocess.CompletedProcess[str]:
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    argv = [*as_user, "/usr/bin/python3", "-m", NAME, str(task.folder), "--", "sh", "-c"]
    return subprocess.run(
        [*argv, script],
        env={"PYTHONPATH": str(Path(task.runner.state).parent / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_without_root_a_task_can_be_entered(user_runner: Runner) -> None:
    if os.geteuid() == 0:
        task = user_runner.launch("echo ready; sleep 1000")
        task.says("ready")
        done = enter_as_user(task, "id -u; ps -eo comm= | wc -l")
        assert done.stdout.split()[0] == "65534", done.stderr


@pytest.fixture
def of_a_user_with_groups() -> Iterator[Runner]:
    """A launcher of a user who has a control group of its own, as systemd gives one."""
    tops = [
        mount.path
        for mount in hierarchy.find_mounts(procfs.read("/proc/self/mountinfo"))
        if "freezer" in mount.controllers
    ]
    if not tops:
        pytest.skip("there is no freezer of version 1")
    own = Path(tops[0]) / f"allot-test-{os.getpid()}"
    own.mkdir()
    for path in (own, *own.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    join = f'echo 0 > {own}/cgroup.procs; exec "$@"'
    try:
        with an_unprivileged_runner("/bin/sh", "-c", join, "sh") as made:
            yield made
    finally:
        for folder, _, _ in os.walk(own, topdown=False):
            until(lambda folder=folder: remove_group(Path(folder)), f"{folder} to be empty")


@pytest.mark.needs_root
@pytest.mark.needs_tool("busybox")
def test_without_root_a_task_with_an_image_and_groups_can_be_entered(
    of_a_user_with_groups: Runner,
) -> None:
    """There the folders of groups are read-only."""
    store = of_a_user_with_groups.state / "images"
    (store / "layers/a/bin").mkdir(parents=True)
    for name in ("sh", "cat", "sleep"):
        shutil.copy("/bin/busybox", store / "layers/a/bin" / name)
    (store / "made").mkdir()
    (store / "made/x").touch()
    for path in (store, *store.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    image = {"record": "images/made/x", "layers": ["a"], "home": "/home", "uid": NOBODY,
             "gid": NOBODY, "passwd": "me:x:1:1::/:", "group": "us:x:1:"}  # fmt: skip
    task = of_a_user_with_groups.launch("echo ready; sleep 1000", image=image)
    task.says("ready")
    assert task.phase("running")["isolation"]["controllers"] == ["freezer"]
    done = enter_as_user(task, "cat /proc/self/cgroup")
    assert f"/{task.key}\n" in done.stdout, done.stderr
