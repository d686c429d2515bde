"""How a task ended is told exactly, whatever surrounds it."""

import signal

import pytest

from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner


@pytest.mark.parametrize("code", [0, 1, 3, 42, 255])
def test_an_exit_code_comes_through(runner: Runner, kind: str, code: int) -> None:
    status = runner.run(f"exit {code}", namespaces=kind)
    assert (status["exit_code"], status["signal"]) == (code, None)
    assert status["platform_error"] == status["cause"] == status["ended_by"] == ""


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_a_signal_is_told_as_one(runner: Runner, kind: str, name: str) -> None:
    status = runner.run(f"kill -{name} $$", namespaces=kind)
    assert status["exit_code"] is None
    assert status["signal"] == signal.Signals[f"SIG{name}"]
    assert not status["oom"]


def test_a_missing_command_is_127(runner: Runner, kind: str) -> None:
    task = runner.launch(["no-such-program", "x"], namespaces=kind)
    assert task.ended()["exit_code"] == 127
    assert "no-such-program" in task.output("stderr")


def test_a_file_that_is_no_program_is_126(runner: Runner, kind: str) -> None:
    task = runner.launch(["/etc/passwd"], namespaces=kind)
    assert task.ended()["exit_code"] == 126
    assert "/etc/passwd" in task.output("stderr")


def test_a_script_without_an_interpreter_line_is_the_shells(runner: Runner, kind: str) -> None:
    script = runner.state.parent / f"{runner.state.name}.script"
    script.write_text("echo from $1; exit 4\n")
    script.chmod(0o755)
    try:
        task = runner.launch([str(script), "here"], namespaces=kind)
        assert task.ended()["exit_code"] == 4
        assert task.output() == "from here\n"
    finally:
        script.unlink()


def test_a_missing_folder_is_told_in_words(runner: Runner, kind: str) -> None:
    task = runner.launch(["true"], cwd="/no/such/folder", namespaces=kind)
    status = task.ended()
    assert status["exit_code"] == 126
    assert status["platform_error"] == ""
    assert status["cause"] == (
        "cannot enter the working directory /no/such/folder: No such file or directory"
    )
    assert status["cause"] in task.output("stderr")


def test_the_folder_is_the_one_asked_for(runner: Runner, kind: str) -> None:
    task = runner.launch("pwd -P", cwd="/usr/share", namespaces=kind)
    task.ended()
    assert task.output() == "/usr/share\n"


@pytest.mark.parametrize("kind", [OWN, BWRAP])
def test_a_failed_set_up_is_the_platforms_fault(runner: Runner, kind: str) -> None:
    status = runner.run(["true"], read_only=["/no/such/data"], namespaces=kind)
    assert (status["exit_code"], status["signal"]) == (None, None)
    assert status["platform_error"]


def test_what_the_command_leaves_behind_ends_with_it(runner: Runner, kind: str) -> None:
    task = runner.launch("setsid sleep 1000 & echo done", namespaces=kind)
    status = task.ended()
    assert status["exit_code"] == 0
    assert task.output() == "done\n"
    assert runner.ask({"op": "list"})["keys"] == []


def test_usage_and_phases_are_told(runner: Runner, kind: str) -> None:
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    status = runner.run(burn, namespaces=kind)
    usage = status["usage"]
    assert usage["cpu_user_ms"] + usage["cpu_system_ms"] > 10
    assert usage["wall_ms"] >= 10
    assert usage["max_rss_bytes"] > 1 << 20
    names = [phase["name"] for phase in status["phases"]]
    assert names == (
        ["isolation", "mounts", "launch"] if kind == "own" else ["isolation", "launch"]
    )
    assert all(phase["end_ms"] >= phase["start_ms"] > 0 for phase in status["phases"])
    assert status["started_ms"] <= status["ended_ms"]


def test_an_orphan_is_reaped_while_the_task_runs(runner: Runner, kind: str) -> None:
    orphans = "for i in 1 2 3 4 5; do (true &) ; done; "
    if kind != "none":  # there the zombies of others are seen too
        orphans += "while ps -eo stat= | grep -q Z; do sleep 0.05; done"
    task = runner.launch(orphans, namespaces=kind)
    assert task.ended()["exit_code"] == 0
