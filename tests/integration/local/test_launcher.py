"""The launcher answers what it is asked, refuses nonsense, and lives through it."""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allotment.backends.local.runner import layout, procfs
from allotment.backends.local.runner.schema import PROTOCOL
from tests.integration.local.harness import Runner, Task, a_runner, until


def test_hello_tells_what_is_in_force(runner: Runner) -> None:
    hello = runner.ask({"op": "hello"})
    assert hello["protocol"] == PROTOCOL
    assert hello["start_time"] == procfs.start_time(hello["pid"])
    if os.geteuid() == 0:
        assert (hello["namespaces"], hello["cgroup"]) == ("own", "v1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"nonsense\n", "bad request"),
        (b"\xff\xfe\n", "bad request"),
        (b"[1, 2]\n", "an object is expected"),
        (b'{"op": "dance"}\n', "unknown op 'dance'"),
        (b'{"op": "launch"}\n', "not an object"),
        (b"{" * 100_000 + b"\n", "bad request"),
    ],
)
def test_nonsense_is_answered(runner: Runner, line: bytes, words: str) -> None:
    answer = json.loads(runner.exchange(line))
    assert answer["ok"] is False
    assert words in answer["error"]
    assert runner.ask({"op": "hello"})["ok"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "../../etc/passwd"}, "not a task key"),
        ({"key": "1.1.a/b.0"}, "not a task key"),
        ({"key": "1.1..0"}, "not a task key"),
        ({"key": "0.1.worker.0"}, "not a task key"),
        ({"argv": []}, "argv: empty"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": [1]}, "text"),
        ({"env": {"A=B": "c"}}, "variable's name"),
        ({"env": {"A": 1}}, "text"),
        ({"cwd": "relative"}, "not an absolute path"),
        ({"read_only": ["relative"]}, "not an absolute path"),
        ({"pids": -1}, "negative"),
        ({"pids": True}, "bool"),
        ({"memory_bytes": 1.5}, "float"),
        ({"uid": 5}, "gid: missing"),
        ({"uid": 2**32, "gid": 0}, "not the number of a user or group"),
        ({"groups": ["wheel"]}, "not the number of a user or group"),
        ({"gpu_slices": 1}, "unknown field 'gpu_slices'"),
    ],
)
def test_a_bad_request_is_refused_in_words(
    runner: Runner, changes: dict[str, object], words: str
) -> None:
    answer = runner.ask({"op": "launch", "request": runner.request(["true"]) | changes})
    assert answer["ok"] is False
    assert words in answer["error"]
    assert not list((runner.state / layout.LIVE).iterdir())


def test_a_missing_field_is_named(runner: Runner) -> None:
    request = runner.request(["true"])
    del request["cwd"]
    assert "cwd: missing" in runner.ask({"op": "launch", "request": request})["error"]


def test_many_requests_at_once_are_answered_in_order(runner: Runner) -> None:
    requests = [runner.request(f"exit {number}") for number in range(20)]
    lines = [json.dumps({"op": "launch", "request": request}) for request in requests]
    first = runner.exchange("\n".join(lines).encode() + b"\n")
    answers = [first, *(runner._answers.readline() for _ in requests[1:])]  # noqa: SLF001 - the raw line
    assert [json.loads(answer)["key"] for answer in answers] == [r["key"] for r in requests]
    for number, request in enumerate(requests):
        assert Task(runner, request["key"]).ended()["exit_code"] == number


def test_an_environment_of_a_megabyte_is_fine(runner: Runner) -> None:
    env = {"PATH": "/usr/bin:/bin"} | {f"V{i}": "x" * 100_000 for i in range(10)}
    task = runner.launch(["sh", "-c", "echo ${#V9}"], env=env)
    task.ended()
    assert task.output() == "100000\n"


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(runner: Runner) -> None:
    for _ in range(3):
        runner.ask({"op": "hello"})
        assert runner._connection is not None  # noqa: SLF001 - half a line
        runner._connection.sendall(b'{"op": "laun')  # noqa: SLF001 - half a line
        runner.hang_up()
    assert runner.run("exit 3")["exit_code"] == 3


def test_only_its_owner_may_talk_to_it(runner: Runner) -> None:
    task = runner.launch(["sleep", "1000"])
    task.phase("running")
    modes = {
        name: stat.S_IMODE((runner.state / name).stat().st_mode)
        for name in (layout.SOCKET, layout.LIVE, layout.TASKS, layout.LOCK)
    }
    assert modes == {
        layout.SOCKET: 0o600,
        layout.LIVE: 0o700,
        layout.TASKS: 0o700,
        layout.LOCK: 0o600,
    }
    for name in (layout.CONTROL, layout.STATUS, layout.CLAIM):
        assert stat.S_IMODE((task.folder / name).stat().st_mode) == 0o600


def test_a_state_folder_may_lie_deep() -> None:
    top = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        top.chmod(0o755)
        state = top / ("long" * 30) / ("deep" * 30)
        state.mkdir(parents=True)
        assert len(str(state)) > 240
        with a_runner(state) as runner:
            task = runner.launch("echo deep > $TMPDIR/x; exit 3", namespaces="none")
            assert task.ended()["exit_code"] == 3
            assert runner.run("exit 4")["exit_code"] == 4
    finally:
        shutil.rmtree(top)


def test_a_folder_that_is_not_there_is_told(
    runner: Runner, capfd: pytest.CaptureFixture
) -> None:
    nowhere = Runner.__new__(Runner)
    nowhere.__dict__.update(runner.__dict__, state=Path("/no/such/folder"))
    assert nowhere.start() == 1
    assert "the state folder /no/such/folder cannot be used" in capfd.readouterr().err


def is_open_elsewhere(path: Path) -> bool:
    """Whether another process has a file open."""
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if fd.parts[2] != str(os.getpid()) and fd.readlink() == path:
                return True
    return False


def test_one_that_clears_away_is_waited_for(runner: Runner) -> None:
    pid = runner.launcher_pid
    runner.ask({"op": "retire"})
    runner.hang_up()
    until(lambda: not procfs.start_time(pid), "the launcher to retire")
    path = (runner.state / layout.LOCK).resolve()
    lock = os.open(path, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(runner.start)
        until(lambda: is_open_elsewhere(path), "the next launcher to come")
        os.close(lock)
        assert starting.result() == 0
    assert runner.launcher_pid != pid


def test_supervisors_cost_little_memory(runner: Runner) -> None:
    """What each has for itself alone; the rest is the launcher's, shared."""
    tasks = [runner.launch("echo ready; sleep 1000") for _ in range(4)]
    for task in tasks:
        pid = task.phase("running")["supervisor_pid"]
        rollup = procfs.read(f"/proc/{pid}/smaps_rollup")
        fields = dict(line.split(":") for line in rollup.splitlines()[1:])
        assert int(fields["Private_Dirty"].split()[0]) < 4096
