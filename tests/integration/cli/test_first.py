"""The first wish of a newcomer, where no service runs yet; and a secret that nobody sees."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import end_launchers, until

ALLOT = (sys.executable, "-m", "allotment.cli")
SECRET = "correct-horse-battery"
JOB = 'name: first\ncommand: "echo hello"\nresources: {cpu: 0.1, memory: 64MiB}\n'


@pytest.fixture
def folder(reachable: Path) -> Iterator[Path]:
    """A folder with nothing in it, short enough for a socket; its service ends with it."""
    yield reachable
    allot(reachable, "down")
    end_launchers(reachable / "state")


def allot(
    folder: Path, *words: str, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: os.environ[name] for name in ("PATH", "HOME")}
    return subprocess.run(
        [*ALLOT, *words],
        env={**clean, "ALLOT_STATE": str(folder / "state"), **env},
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_submit_starts_a_service_as_run_does(folder: Path) -> None:
    ran = allot(folder, "submit", "-", stdin=JOB)
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    assert "No service was running, so one was started" in ran.stderr
    assert allot(folder, "wait", "1").returncode == 0
    again = allot(folder, "submit", "-", "--follow", stdin=JOB)
    assert (again.returncode, again.stdout) == (0, "hello\n")
    assert "No service was running" not in again.stderr


def test_submit_starts_none_for_a_job_that_is_wrong(folder: Path) -> None:
    ran = allot(folder, "submit", "-", stdin="name: first\ncomand: x\n")
    assert "did you mean `command`" in ran.stderr
    assert not (folder / "state").exists()


def command_lines() -> list[bytes]:
    found: list[bytes] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found


def test_a_secret_reaches_the_job_and_nobody_else(folder: Path) -> None:
    (folder / "token").write_text(f"{SECRET}\n")
    script = 'test "$A$B$C" = "$WANTED" && touch here && until [ -e go ]; do sleep 0.05; done'
    ran = allot(
        folder, "run", "--detach", "--memory", "64MiB", "--secret", "A", "--secret", "B=token",
        "--secret", "C=-", "--secret", "WANTED", "--",
        "sh", "-c", script, A=SECRET, WANTED=SECRET * 3, stdin=SECRET,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    until((folder / "here").exists, "the job to have its secrets")
    assert not [line for line in command_lines() if SECRET.encode() in line]
    for words in (("show", "1", "--json"), ("events", "1", "--json"), ("ps", "--json")):
        assert SECRET not in allot(folder, *words).stdout
    (folder / "go").touch()
    assert allot(folder, "wait", "1").returncode == 0
    assert SECRET not in (folder / "state" / "service.log").read_text()


def test_a_failed_task_that_is_kept_says_so_and_stays_a_failure(folder: Path) -> None:
    small = ("--memory", "64MiB", "--cpus", "0.1")
    script = "echo oh; echo kept > $TMPDIR/x; exit 6"
    env = {**os.environ, "ALLOT_STATE": str(folder / "state")}
    with subprocess.Popen(
        [*ALLOT, "run", *small, "--hold-on-failure", "--", "sh", "-c", script],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
    ) as run:  # fmt: skip
        until(lambda: "kept for a look" in allot(folder, "ps").stdout, "the task to be kept")
        shown = allot(folder, "show", "1").stdout
        assert "main.0 failed; the job keeps its place" in shown
        assert "look inside: allot exec 1 --task main.0    end it: allot cancel 1" in shown
        inside = allot(folder, "exec", "1", "-T", "--", "sh", "-c", "cat $TMPDIR/x")
        assert inside.stdout == "kept\n"
        allot(folder, "cancel", "1")
        out, err = run.communicate()
    assert run.returncode == 6
    assert out == "oh\n"
    assert "Look inside: allot exec 1 --task 0" in err
    assert "End it: allot cancel 1" in err
    assert "job 1 (echo) failed" in err
    again = allot(folder, "wait", "1")
    assert again.returncode == 6
    assert "cancelled" not in allot(folder, "show", "1").stdout
