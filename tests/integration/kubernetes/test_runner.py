"""The first process of a pod, run as it is by each kind of shell, in processes of its own."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from allotment.backends.kubernetes.runner import AT, SCRIPT, UNGUARDED, UNHEARD, failure_in, led
from tests.support.cluster import until
from tests.support.patience import PATIENCE_S

TOKEN = "a-token"
SHELLS = {"dash": ("dash",), "bash": ("bash", "--posix"), "busybox": ("busybox", "sh")}
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool("unshare")]


class Pod:
    """What a kubelet does for a container: files, processes of its own, and its end."""

    def __init__(self, folder: Path, shell: Sequence[str]) -> None:
        self.folder, self._shell, self._beats = folder, shell, 0
        self.beat_file, self.go = folder / "beat" / "beat", folder / "pod" / "go"
        self.last_words, self.out = folder / "last-words", folder / "out"
        for path in (self.beat_file, self.go):
            path.parent.mkdir()
        self.go.touch()
        self.beat()

    def beat(self, *silent: str, age_s: float = 0) -> None:
        self._beats += 1
        part = self.folder / "part"
        part.write_text(f"{self._beats}\n{' '.join(silent)}\n")
        came = time.time() - age_s
        os.utime(part, (came, came))
        part.rename(self.beat_file)

    @contextmanager
    def running(
        self,
        command: str,
        fence_s: int = 1000,
        *,
        is_held: bool = False,
        keep_s: int = 0,
        path: str = "",
        around: Sequence[str] = (),
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """Run a line of shell below a process that only waits, as in a pod. All of it is in
        a space of its own: what ends all processes there reaches no others. `around` is a
        command that runs others."""
        argv = led(
            ["sh", "-c", command, "a b", "$(c)"], "n1", fence_s,
            is_held=is_held, keep_s=keep_s, token=TOKEN,
        )  # fmt: skip
        script = SCRIPT.replace(AT, str(self.folder))
        script = script.replace("/dev/termination-log", str(self.last_words))
        with self.out.open("wb") as out:
            process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-c", '"$@"; exit $?', "pause", *around, *self._shell, "-c", script,
                 *argv[3:]],
                stdout=out, stderr=out, cwd="/",
                env={"PATH": f"{path}:{os.environ['PATH']}"},
            )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def ends(self, command: str, fence_s: int = 1000, path: str = "") -> tuple[int, str]:
        """Run a line of shell to its end; return its exit code, and what it wrote."""
        with self.running(command, fence_s, path=path) as process:
            return process.wait(PATIENCE_S), self.text

    @property
    def text(self) -> str:
        return self.out.read_text()

    @property
    def said(self) -> str:
        return self.last_words.read_text().strip() if self.last_words.exists() else ""


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.needs_tool(name)) for name in SHELLS]
)
def pod(request: pytest.FixtureRequest, tmp_path: Path) -> Pod:
    return Pod(tmp_path, SHELLS[request.param])


def test_it_becomes_the_command(pod: Pod) -> None:
    assert pod.ends('echo "$0|$1"; exit 3') == (3, "a b|$(c)\n")
    assert pod.said == ""


@pytest.mark.parametrize("name", ["INT", "TERM", "USR1"])
def test_signals_are_the_commands_own(pod: Pod, name: str) -> None:
    code, text = pod.ends(f"trap 'echo saved; exit 5' {name}; kill -{name} $$; sleep 1000")
    assert (code, text) == (5, "saved\n")


def test_a_gang_waits_until_it_is_let_go(pod: Pod) -> None:
    with pod.running("echo begun", is_held=True) as process:
        waits_below(process.pid)
        assert pod.text == ""
        pod.go.write_text("yes")
        assert process.wait(PATIENCE_S) == 0
        assert pod.text == "begun\n"


def test_what_waits_for_its_gang_ends_when_it_is_told_to(pod: Pod) -> None:
    with pod.running("echo begun", is_held=True) as process:
        os.kill(waits_below(process.pid), signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert pod.text == ""


def waits_below(unshare: int) -> int:
    """Return the first process of the container, once it waits for its gang."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [each for first in children(unshare) for each in children(first)]
        return bool(found) and bool(children(found[0]))

    until(is_there, "the runner to wait")
    return found[0]


def children(pid: int) -> list[int]:
    try:
        return [
            int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize(("silent", "age_s"), [(("n0", "n1"), 0), ((), 60)])
def test_nothing_begins_where_the_service_is_not_heard(
    pod: Pod, silent: tuple[str, ...], age_s: float
) -> None:
    pod.beat(*silent, age_s=age_s)
    assert pod.ends("echo begun", 30) == (75, "")
    assert pod.said == UNHEARD


def test_a_task_ends_when_its_time_has_run_out_and_may_save(pod: Pod) -> None:
    code, text = pod.ends("trap 'echo saved; exit 0' TERM; sleep 1000 & wait", 2)
    assert (code, text) == (0, "saved\n")
    assert pod.said == UNHEARD


def test_what_does_not_end_is_killed(pod: Pod) -> None:
    code, _ = pod.ends("trap '' TERM; while :; do sleep 1; done", 2)
    assert code == 137
    assert pod.said == UNHEARD


def test_beats_keep_a_task_and_those_that_name_its_node_do_not(pod: Pod) -> None:
    with pod.running("while :; do echo; sleep 0.1; done", 3) as process:

        def is_far_on() -> bool:
            pod.beat("n11", "n2")
            return len(pod.text) >= 50

        until(is_far_on, "the task to go on for longer than its time")
        assert process.poll() is None
        assert pod.said == ""

        def has_ended() -> bool:
            pod.beat("n2", "n1")
            return process.poll() is not None

        until(has_ended, "the task to end")
        assert pod.said == UNHEARD


def test_what_fails_is_kept_and_says_so(pod: Pod) -> None:
    with pod.running("echo mine; exit 3", 0, keep_s=1000) as process:
        until(lambda: failure_in(pod.text.encode(), TOKEN) == 3, "it to say that it failed")
        assert failure_in(pod.text.encode(), "another") is None
        assert process.poll() is None
        os.kill(waits_below(process.pid), signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 3


def test_it_is_kept_for_no_longer_than_was_asked(pod: Pod) -> None:
    with pod.running("kill -9 $$", 0, keep_s=1) as process:
        assert process.wait(PATIENCE_S) == 137
    assert failure_in(pod.text.encode(), TOKEN) == 137


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_what_ends_when_it_is_told_to_is_not_kept(pod: Pod, name: str) -> None:
    command = f"trap 'echo saved; exit 85' {name}; echo begun; sleep 1000 & wait"
    with pod.running(command, keep_s=1000) as process:
        until(lambda: "begun" in pod.text, "the command to begin")
        for each in below(process.pid):  # as the hook and `allot exec` do
            with suppress(ProcessLookupError):  # it has heard of another's end
                os.kill(each, signal.Signals[f"SIG{name}"])
        assert process.wait(PATIENCE_S) == 85
    assert failure_in(pod.text.encode(), TOKEN) is None


def test_what_succeeds_is_not_kept_and_has_its_variables_as_they_were(pod: Pod) -> None:
    mine = ("env", "code=mine")
    with pod.running('echo "$code $0|$1"', 0, keep_s=1000, around=mine) as process:
        assert process.wait(PATIENCE_S) == 0
    assert pod.text == "mine a b|$(c)\n"


def below(unshare: int) -> list[int]:
    """Return all processes of the container."""
    found = [each for first in children(unshare) for each in children(first)]
    for pid in found:
        found += children(pid)
    return found


@pytest.mark.needs_tool("setpriv")
@pytest.mark.parametrize("name", ["dash", "busybox"])  # bash tries for half a minute first
def test_a_guard_that_can_start_no_process_ends_the_task(name: str) -> None:
    as_user = ("setpriv", "--reuid=54321", "--clear-groups")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        pod = Pod(Path(made), SHELLS[name])
        pod.last_words.touch()
        pod.last_words.chmod(0o666)
        command = "trap 'exit 5' TERM; echo begun; sleep 1000 & wait"
        with pod.running(command, 100, around=as_user) as process:
            until(lambda: "begun" in pod.text, "the command to begin")
            for each in below(process.pid):
                subprocess.run([*as_user, "prlimit", f"--pid={each}", "--nproc=1"], check=False)
            assert process.wait(PATIENCE_S) == 5
        assert pod.said == UNGUARDED


def test_an_image_that_cannot_tell_when_a_file_came_says_so(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "date"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'date: -r: unknown' >&2; exit 1\n")
    fake.chmod(0o755)
    code, text = Pod(tmp_path, ["sh"]).ends("echo begun", path=str(fake.parent))
    assert code == 127
    assert "no 'date' that knows -r, which fence_after needs" in text
    assert "begun" not in text
