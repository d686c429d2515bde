"""Whoever is killed, tasks run once, run on where they can, and the truth is told."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from allotment.backends.local.runner import layout, procfs
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner, Task, alive, groups_of, until
from tests.support.patience import PATIENCE_S

ALL_KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])
NAMED = "exec -a {} sleep 1000"


def a_family(runner: Runner, kind: str, **fields: object) -> tuple[Task, str]:
    """Start a task of three processes, one of which has left its session."""
    marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
    one = f"bash -c 'exec -a {marker} sleep 1000'"
    script = f"{one} & setsid {one} & echo ready; exec {one}"
    task = runner.launch(["bash", "-c", script], namespaces=kind, **fields)
    task.says("ready")
    until(lambda: len(alive(marker)) == 3, "three processes")
    return task, marker


# ── once ────────────────────────────────────────────────────────────────────────────────


def test_a_repeated_launch_starts_nothing(runner: Runner, kind: str) -> None:
    request = runner.request("echo $$; sleep 1000", namespaces=kind)
    first = runner.ask({"op": "launch", "request": request})
    task = Task(runner, request["key"])
    running = task.phase("running")
    second = runner.ask({"op": "launch", "request": request})
    assert (first["launched"], second["launched"]) == (True, False)
    assert second["status"]["pid"] == running["pid"]
    until(task.output, "its first word")
    task.control("kill")
    task.ended()
    third = runner.ask({"op": "launch", "request": request})
    assert third["launched"] is False
    assert third["status"]["phase"] == "ended"
    assert len(task.output().split()) == 1


def test_a_repeated_launch_after_the_launcher_died_starts_nothing(runner: Runner) -> None:
    request = runner.request("echo once; sleep 1000")
    runner.ask({"op": "launch", "request": request})
    task = Task(runner, request["key"])
    task.says("once")
    runner.kill_launcher()
    assert runner.start() == 0
    assert runner.ask({"op": "launch", "request": request})["launched"] is False
    assert runner.ask({"op": "list"})["keys"] == [task.key]
    assert task.output() == "once\n"


# ── the launcher dies ───────────────────────────────────────────────────────────────────


def test_tasks_outlive_the_launcher_and_can_be_ended(runner: Runner, kind: str) -> None:
    tasks = [
        runner.launch("echo ready; read x < /dev/null; sleep 1000", namespaces=kind),
        runner.launch("exit 5", hold_at_barrier=True, namespaces=kind),
    ]
    tasks[0].phase("running")
    tasks[1].phase("ready")
    runner.kill_launcher()
    tasks[0].control("stop TERM 20000")
    assert tasks[0].ended()["ended_by"] == "stop"
    tasks[1].control("go")
    assert tasks[1].ended()["exit_code"] == 5
    assert runner.start() == 0


def test_a_second_launcher_is_turned_away(runner: Runner) -> None:
    pid = runner.launcher_pid
    assert runner.start() == 3
    assert runner.launcher_pid == pid


def test_of_many_launchers_at_once_one_serves(runner: Runner) -> None:
    runner.kill_launcher()
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(runner.start())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0, 3, 3, 3]


def test_sigterm_ends_the_launcher_and_no_task(runner: Runner) -> None:
    task = runner.launch("echo ready; sleep 1000")
    task.phase("running")
    pid = runner.launcher_pid
    os.kill(pid, signal.SIGTERM)
    runner.hang_up()
    until(lambda: not procfs.start_time(pid), "the launcher to end")
    assert task.is_held()
    assert runner.start() == 0


def test_a_launcher_retires_when_its_tasks_are_done(runner: Runner) -> None:
    task = runner.launch("echo ready; sleep 1000")
    task.phase("running")
    old = runner.launcher_pid
    assert runner.ask({"op": "retire"})["ok"]
    request = runner.request(["true"])
    answer = runner.ask({"op": "launch", "request": request})
    assert not answer["ok"]
    runner.hang_up()
    assert runner.start() == 0
    new = runner.launcher_pid
    assert new != old
    assert procfs.start_time(old)
    assert runner.ask({"op": "launch", "request": request})["launched"] is True
    task.control("kill")
    task.ended()
    until(lambda: not procfs.start_time(old), "the old launcher to end")


# ── a supervisor dies ───────────────────────────────────────────────────────────────────


@ALL_KINDS
def test_a_task_dies_with_its_supervisor(runner: Runner, kind: str) -> None:
    task, marker = a_family(runner, kind, memory_bytes=1 << 30)
    os.kill(task.phase("running")["supervisor_pid"], signal.SIGKILL)
    status = task.ended()
    assert status["lost"] is True
    assert status["cause"]
    until(lambda: not alive(marker), "the whole task to end")
    assert not Path(status["scratch"]).exists()
    assert groups_of(runner.state) == []
    assert runner.ask({"op": "list"})["keys"] == []


@ALL_KINDS
@pytest.mark.parametrize("script", ["exec sleep 1000", "sleep 1000; exit $?"])
def test_what_is_told_to_end_with_its_supervisor_is_lost_and_has_not_failed(
    runner: Runner, kind: str, script: str
) -> None:
    """Slurm and a machine that goes down signal all processes, the innermost first perhaps."""
    task = runner.launch(f"echo ready; {script}", namespaces=kind)
    running = task.phase("running")
    task.says("ready")
    until(lambda: inner_of(running["pid"]), "its sleep")
    os.kill(inner_of(running["pid"]), signal.SIGTERM)
    os.kill(running["supervisor_pid"], signal.SIGTERM)
    status = task.ended()
    assert (status["lost"], status["ended_by"]) == (True, "")
    assert "told to end" in status["platform_error"]


@ALL_KINDS
def test_what_ends_well_though_all_are_told_to_end_has_ended_well(
    runner: Runner, kind: str
) -> None:
    task = runner.launch("trap 'exit 0' TERM; echo ready; sleep 1000 & wait", namespaces=kind)
    running = task.phase("running")
    task.says("ready")
    os.kill(running["supervisor_pid"], signal.SIGTERM)
    os.kill(running["pid"], signal.SIGTERM)
    status = task.ended()
    assert (status["exit_code"], status["lost"], status["platform_error"]) == (0, False, "")


def test_a_task_that_alone_is_told_to_end_has_failed(runner: Runner) -> None:
    task = runner.launch("echo ready; exec sleep 1000")
    os.kill(task.phase("running")["pid"], signal.SIGTERM)
    status = task.ended()
    assert (status["signal"], status["lost"], status["platform_error"]) == (15, False, "")


def inner_of(pid: int) -> int:
    """Return the sleep that a shell is, or waits for; 0 while there is none."""
    for each in (pid, *procfs.children(pid)):
        if procfs.read(f"/proc/{each}/comm").strip() == "sleep":
            return each
    return 0


@ALL_KINDS
def test_a_task_dies_with_its_supervisor_without_groups(runner: Runner, kind: str) -> None:
    task, marker = a_family(runner, kind, cgroups="none")
    os.kill(task.phase("running")["supervisor_pid"], signal.SIGKILL)
    assert task.ended()["lost"] is True
    until(lambda: not alive(marker), "the whole task to end")


@ALL_KINDS
def test_launcher_and_supervisor_die(runner: Runner, kind: str) -> None:
    """The next launcher clears up; until then the claim tells that the task is lost."""
    task, marker = a_family(runner, kind)
    pid = task.phase("running")["supervisor_pid"]
    runner.kill_launcher()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not task.is_held(), "the claim to be let go")
    assert task.status()["phase"] == "running"
    assert runner.start() == 0
    assert task.ended()["lost"] is True
    until(lambda: not alive(marker), "the whole task to end")
    assert groups_of(runner.state) == []


def test_a_supervisor_that_dies_before_its_first_word_is_lost_too(runner: Runner) -> None:
    """The launcher was killed between the claim and the fork: seen as an unlocked claim."""
    runner.kill_launcher()
    key = "77.1.worker.0"
    folder = runner.state / layout.task_dir(key)
    folder.mkdir(parents=True)
    live = runner.state / layout.live_file(key)
    live.write_bytes(b" " * 4096)
    os.link(live, folder / layout.CLAIM)
    assert runner.start() == 0
    assert Task(runner, key).ended()["lost"] is True
    assert not live.exists()


def test_a_task_that_was_never_claimed_can_still_be_launched(runner: Runner) -> None:
    """The launcher was killed between making the live file and the claim."""
    request = runner.request("exit 4")
    runner.kill_launcher()
    live = runner.state / layout.live_file(request["key"])
    live.write_bytes(b"")
    assert runner.start() == 0
    until(lambda: not live.exists(), "the live file to go")
    assert runner.ask({"op": "launch", "request": request})["launched"] is True
    assert Task(runner, request["key"]).ended()["exit_code"] == 4


def test_the_killing_of_one_leaves_the_others_alone(runner: Runner, kind: str) -> None:
    tasks = [runner.launch("echo ready; sleep 1000", namespaces=kind) for _ in range(3)]
    pids = [task.phase("running")["supervisor_pid"] for task in tasks]
    os.kill(pids[1], signal.SIGKILL)
    assert tasks[1].ended()["lost"] is True
    assert tasks[0].is_held()
    assert tasks[2].is_held()
    assert runner.run("exit 6", namespaces=kind)["exit_code"] == 6


# ── reports ─────────────────────────────────────────────────────────────────────────────


def test_every_change_is_reported(runner: Runner) -> None:
    task = runner.launch("sleep 600", hold_at_barrier=True)
    runner.reports.settimeout(PATIENCE_S)
    seen: list[str] = []
    while "ended" not in seen:
        assert runner.reports.recv(256).decode() == task.key
        phase = json.loads((task.folder / "status.json").read_text())["phase"]
        seen.append(phase)
        if phase == "ready":
            task.control("go")
        elif phase == "running":
            task.control("kill")
    assert list(dict.fromkeys(seen)) == ["ready", "running", "ended"]


def test_no_report_is_lost_when_nobody_reads_for_a_while(runner: Runner) -> None:
    """The kernel queues ten datagrams; senders try again, for a second at most."""
    tasks = [runner.launch("exit 0") for _ in range(16)]
    runner.reports.settimeout(PATIENCE_S)
    ended: set[str] = set()
    while len(ended) < len(tasks):
        ended.add(runner.reports.recv(256).decode())
    assert ended == {task.key for task in tasks}


def test_nobody_has_to_listen(own_runner: Runner) -> None:
    runner = own_runner
    (runner.state / layout.REPORT).unlink()
    task = runner.launch("exit 3")
    until(lambda: task.status().get("phase") == "ended", "the end")
