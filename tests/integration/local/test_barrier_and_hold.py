"""A gang's tasks wait at the barrier; a failed task's surroundings can be kept."""

import pytest

from tests.integration.local.harness import Runner, until


def test_a_task_waits_at_the_barrier(runner: Runner, kind: str) -> None:
    gang = [
        runner.launch("echo $$; exit 3", hold_at_barrier=True, namespaces=kind)
        for _ in range(3)
    ]
    for task in gang:
        task.phase("ready")
        assert task.output() == ""
    for task in gang:
        task.control("go")
    for task in gang:
        status = task.ended()
        assert status["exit_code"] == 3
        assert "barrier" in [phase["name"] for phase in status["phases"]]
        assert task.output()


def test_what_cannot_be_set_up_never_gets_to_the_barrier(runner: Runner) -> None:
    task = runner.launch(["true"], hold_at_barrier=True, read_only=["/no/such"], uid=0, gid=0)
    status = task.ended()
    assert bool(status["platform_error"]) == (status["isolation"]["namespaces"] != "none")


@pytest.mark.parametrize(("order", "signum"), [("stop TERM 5000", 15), ("kill", 9)])
def test_a_task_at_the_barrier_can_be_ended(
    runner: Runner, kind: str, order: str, signum: int
) -> None:
    task = runner.launch(["true"], hold_at_barrier=True, namespaces=kind)
    task.phase("ready")
    task.control(order)
    status = task.ended()
    assert status["exit_code"] is None
    assert status["signal"] in (signum, 9)
    assert status["started_ms"] == 0


def test_go_before_ready_and_go_again_do_no_harm(runner: Runner, kind: str) -> None:
    task = runner.launch("sleep 600", hold_at_barrier=True, namespaces=kind)
    task.control("go")
    task.phase("ready")
    for _ in range(200):  # some of them between its passing and its saying so
        task.control("go")
    task.phase("running")
    task.control("kill")
    assert task.ended()["ended_by"] == "kill"


def test_a_failed_task_is_held_and_keeps_its_code(runner: Runner, kind: str) -> None:
    task = runner.launch(
        "echo x > $TMPDIR/kept; exit 6", hold_on_failure_ms=600_000, namespaces=kind
    )
    status = task.phase("holding")
    assert status["exit_code"] == 6
    assert status["hold_until_ms"] > status["ended_ms"]
    scratch = runner.state / "scratch" / task.key
    assert (scratch / "kept").read_text() == "x\n"
    task.control("kill")
    status = task.ended()
    assert status["exit_code"] == 6
    assert not scratch.exists()
    assert not (task.folder / "environ").exists()


def test_a_hold_ends_by_itself(runner: Runner, kind: str) -> None:
    task = runner.launch("kill -9 $$", hold_on_failure_ms=100, namespaces=kind)
    status = task.ended()
    assert (status["exit_code"], status["signal"]) == (None, 9)
    assert status["hold_until_ms"] - status["ended_ms"] == 100


def test_success_is_not_held(runner: Runner, kind: str) -> None:
    status = runner.run(["true"], hold_on_failure_ms=600_000, namespaces=kind)
    assert (status["exit_code"], status["hold_until_ms"]) == (0, 0)


def test_who_was_stopped_is_not_held(runner: Runner, kind: str) -> None:
    task = runner.launch("sleep 1000", hold_on_failure_ms=600_000, namespaces=kind)
    task.phase("running")
    task.control("stop TERM 20000")
    status = task.ended()
    assert status["hold_until_ms"] == 0
    assert status["ended_by"] == "stop"


def test_a_held_task_answers_to_stop(runner: Runner, kind: str) -> None:
    task = runner.launch("exit 2", hold_on_failure_ms=600_000, namespaces=kind)
    task.phase("holding")
    task.control("stop TERM 600000")
    assert task.ended()["exit_code"] == 2


def test_what_runs_beside_a_held_command_runs_on(runner: Runner) -> None:
    task = runner.launch("sleep 1000 & echo $!; exit 1", hold_on_failure_ms=600_000)
    task.phase("holding")
    assert task.is_held()
    task.control("kill")
    task.ended()
    until(lambda: not task.is_held(), "the supervisor to end")
