"""A task is over when none of its processes is left, also of those that cannot be killed."""

import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from termios import FIONREAD

import pytest

from allotment.backends.local.runner import layout, procfs
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner, Task, alive, groups_of, until
from tests.support.stuck_files import StuckFile, a_stuck_file

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.may_skip("a kernel without FUSE has no file that does not answer"),
]
KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[StuckFile]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse")
    tmp_path.chmod(0o755)
    with a_stuck_file(tmp_path / "files") as made:
        yield made


class Waiting:
    """A task whose command ends with code 3, and leaves a process that does not die."""

    def __init__(
        self,
        runner: Runner,
        stuck: StuckFile,
        then: str = "",
        leaves: str = "",
        **fields: object,
    ) -> None:
        self.marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
        told = stuck.path.parent.parent / "told"
        script = (
            f"trap 'exit 3' TERM; ({leaves or f'exec -a {self.marker} cat {stuck.path}'}) & "
            f"while [ ! -e {told} ]; do sleep 0.02; done; {then}exit 3"
        )
        self.task = runner.launch(["bash", "-c", script], **fields)
        stuck.is_asked()
        told.touch()


def unread(task: Task) -> int:
    """Return how much of what its supervisor was told it has not read."""
    fd = os.open(task.folder / layout.CONTROL, os.O_WRONLY | os.O_NONBLOCK)
    try:
        (found,) = struct.unpack("i", fcntl.ioctl(fd, FIONREAD, bytes(4)))
    finally:
        os.close(fd)
    return found


@KINDS
@pytest.mark.parametrize("cgroups", ["auto", "none"])
def test_a_task_that_ended_waits_for_what_does_not_die(
    runner: Runner, stuck: StuckFile, kind: str, cgroups: str
) -> None:
    waiting = Waiting(runner, stuck, namespaces=kind, cgroups=cgroups)
    task = waiting.task
    status = task.reaches(lambda status: "lingering" in status, "word of what does not die")
    assert (status["phase"], status["exit_code"]) == ("running", 3)
    (pid,) = alive(waiting.marker)
    assert status["lingering"] == f"process {pid} (cat, state D)"
    task.control("kill")
    until(lambda: not unread(task), "its supervisor to read what it is told")
    assert task.status()["phase"] == "running"
    stuck.let_go()
    status = task.ended()
    assert (status["exit_code"], status["ended_by"], status["lost"]) == (3, "", False)
    assert "lingering" not in status
    assert not alive(waiting.marker)
    assert groups_of(runner.state) == []


@KINDS
def test_a_killed_task_waits_for_a_thread_that_does_not_die(
    runner: Runner, stuck: StuckFile, kind: str
) -> None:
    """Its process looks dead: its first thread is."""
    script = (
        "import os, threading\n"
        f"threading.Thread(target=os.stat, args=({str(stuck.path)!r},)).start()\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    task = runner.launch(["/usr/bin/python3", "-c", script], namespaces=kind)
    task.says("ready")
    pid = task.phase("running")["pid"]
    stuck.is_asked()
    task.control("kill")
    status = task.reaches(lambda status: "lingering" in status, "word of what does not die")
    assert status["phase"] == "running"
    found = procfs.stat(pid)
    assert found is not None
    assert found.state == "Z"
    stuck.let_go()
    status = task.ended()
    assert (status["ended_by"], status["lost"]) == ("kill", False)
    assert not procfs.start_time(pid)


@KINDS
@pytest.mark.parametrize("cgroups", ["auto", "none"])
def test_a_task_that_ended_waits_for_a_file_that_is_not_closed(
    runner: Runner, stuck: StuckFile, kind: str, cgroups: str
) -> None:
    """A process that has begun to end may still have a device open."""
    look = f"import os; os.open({str(stuck.closing)!r}, os.O_RDONLY); os._exit(0)"
    leaves = f'exec /usr/bin/python3 -c "{look}"'
    task = Waiting(runner, stuck, leaves=leaves, namespaces=kind, cgroups=cgroups).task
    status = task.reaches(lambda status: "lingering" in status, "word of what does not die")
    assert (status["phase"], status["exit_code"]) == ("running", 3)
    stuck.let_go()
    assert task.ended()["exit_code"] == 3


def test_a_grace_that_ends_meanwhile_did_not_end_the_task(
    runner: Runner, stuck: StuckFile
) -> None:
    task = Waiting(runner, stuck, then="sleep 1000 & wait; ").task
    task.control("stop TERM 1500")  # What lingers is told of two seconds after the end.
    status = task.reaches(lambda status: "lingering" in status, "word of what does not die")
    assert (status["phase"], status["ended_by"]) == ("running", "stop")
    stuck.let_go()
    status = task.ended()
    assert (status["exit_code"], status["ended_by"]) == (3, "stop")


def test_a_task_that_ended_is_not_lost_with_its_supervisor(
    own_runner: Runner, stuck: StuckFile
) -> None:
    """To start the machine anew is what ends such a process: its task need not run again."""
    waiting = Waiting(own_runner, stuck)
    task = waiting.task
    status = task.reaches(lambda status: "lingering" in status, "word of what does not die")
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: not task.is_held(), "its supervisor to let go")
    own_runner.kill_launcher()
    stuck.let_go()
    until(lambda: not alive(waiting.marker), "the process to be gone")
    assert own_runner.start() == 0
    status = task.ended()
    assert (status["exit_code"], status["lost"], status["cause"]) == (3, False, "")
