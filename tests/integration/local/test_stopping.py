"""Signals reach the program they are meant for, and nobody outlives his grace."""

import time

import pytest

from tests.integration.local.harness import Runner, Task, until

READY = "echo ready; "
PROGRAM = """
import os, signal, sys, time
def on(number, _):  # not by print: it may come while one is under way
    os.write(1, b"got %s\\n" % signal.Signals(number).name.encode())
    if number == signal.SIGTERM:
        sys.exit(9)
signal.signal(signal.SIGTERM, on)
signal.signal(signal.SIGUSR1, on)
print("ready", flush=True)
while True:
    time.sleep(1)
"""
PYTHON = f"exec python3 -I -S -c '{PROGRAM}'"
BEHIND_A_SHELL = f"cd / && python3 -I -S -c '{PROGRAM}' && echo never"


def started(runner: Runner, argv: str | list[str], **fields: object) -> Task:
    task = runner.launch(argv, **fields)
    task.says("ready\n")
    return task


def test_a_stopped_task_may_end_in_its_own_way(runner: Runner, kind: str) -> None:
    task = started(runner, PYTHON, namespaces=kind)
    task.control("stop TERM 20000")
    status = task.ended()
    assert status["exit_code"] == 9
    assert status["ended_by"] == "stop"
    assert "got SIGTERM" in task.output()


def test_a_shell_that_only_waits_is_passed_over(runner: Runner, kind: str) -> None:
    """Else the shell would die of it, and with it the task, before the program can save."""
    task = started(runner, BEHIND_A_SHELL, namespaces=kind)
    task.control("signal USR1")
    task.says("got SIGUSR1")
    task.control("stop TERM 20000")
    assert task.ended()["exit_code"] == 9
    assert "never" not in task.output()


def test_a_shell_that_handles_the_signal_gets_it(runner: Runner, kind: str) -> None:
    script = "trap 'echo trapped; exit 5' TERM; " + READY + "while :; do sleep 0.01; done"
    task = started(runner, script, namespaces=kind)
    task.control("stop TERM 20000")
    assert task.ended()["exit_code"] == 5
    assert "trapped" in task.output()


def test_a_script_that_goes_on_is_told_again(runner: Runner) -> None:
    task = started(runner, READY + "sleep 1000; sleep 1000; echo on; sleep 1000")
    task.control("stop TERM 20000")
    status = task.ended()
    assert status["ended_by"] == "stop"


def test_a_loop_of_short_commands_can_be_stopped(runner: Runner, kind: str) -> None:
    task = started(runner, READY + "while :; do sleep 0.05; done", namespaces=kind)
    began = time.monotonic()
    task.control("stop TERM 600000")
    assert task.ended()["ended_by"] == "stop"
    assert time.monotonic() - began < 10


def test_who_ignores_the_signal_dies_at_the_end_of_the_grace(runner: Runner, kind: str) -> None:
    deaf = (
        "trap '' TERM; "
        + READY
        + "(trap '' TERM; setsid sleep 1000) & while :; do sleep 1; done"
    )
    task = started(runner, deaf, namespaces=kind)
    began = time.monotonic()
    task.control("stop TERM 300")
    status = task.ended()
    assert time.monotonic() - began >= 0.3
    assert (status["signal"], status["ended_by"]) == (9, "grace")


def test_a_second_stop_can_shorten_the_grace(runner: Runner) -> None:
    task = started(runner, "trap '' TERM; " + READY + "while :; do sleep 1; done")
    task.control("stop TERM 600000")
    task.control("stop TERM 10")
    assert task.ended()["ended_by"] == "grace"


def test_kill_asks_nobody(runner: Runner, kind: str) -> None:
    task = started(runner, PYTHON, namespaces=kind)
    task.control("kill")
    status = task.ended()
    assert (status["signal"], status["ended_by"]) == (9, "kill")
    assert "got" not in task.output()


def test_nonsense_on_the_control_pipe_is_passed_over(runner: Runner) -> None:
    task = started(runner, PYTHON)
    for line in ("", "stop", "stop NOPE 1", "stop TERM -1", "signal 0", "x" * 5000, "\0\xff"):
        task.control(line)
    task.control("signal USR1")
    task.says("got SIGUSR1")


def test_a_command_may_come_in_pieces(runner: Runner) -> None:
    task = started(runner, PYTHON)
    with (task.folder / "control").open("wb", buffering=0) as pipe:
        for part in (b"sig", b"nal USR", b"1\nki"):
            pipe.write(part)
        task.says("got SIGUSR1")
        pipe.write(b"ll\n")
    assert task.ended()["ended_by"] == "kill"


COUNTER = READY + "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"


def test_a_frozen_task_stands_still_and_goes_on(runner: Runner, kind: str) -> None:
    task = started(runner, COUNTER, namespaces=kind)
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    before = task.output()
    time.sleep(0.1)
    assert task.output() == before
    task.control("thaw")
    task.reaches(lambda status: not status["frozen"], "thawed")
    until(lambda: task.output() != before, "the task to go on")


@pytest.mark.parametrize("order", ["stop TERM 20000", "kill"])
def test_a_frozen_task_can_be_ended(runner: Runner, kind: str, order: str) -> None:
    task = started(runner, COUNTER, namespaces=kind)
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    task.control(order)
    assert task.ended()["signal"] in (9, 15)


def test_freezing_works_without_a_freezer(runner: Runner) -> None:
    task = started(runner, COUNTER, cgroups="none")
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    before = task.output()
    task.control("thaw")
    until(lambda: task.output() != before, "the task to go on")


def test_a_task_that_stands_still_without_a_freezer_may_save_when_it_is_stopped(
    runner: Runner,
) -> None:
    task = started(runner, PYTHON, cgroups="none")
    task.control("freeze")
    task.reaches(lambda status: status["frozen"], "frozen")
    task.control("stop TERM 20000")
    status = task.ended()
    assert (status["exit_code"], status["ended_by"]) == (9, "stop")
    assert "got SIGTERM" in task.output()
