"""`allot demo` as a person starts it: it tells the truth, and clears up after itself."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-m", "allotment.cli", "demo"]
LIMIT_S = 300
PROMISED_S = 90
"""Kept beside other tests too; on a machine that is too busy for that, `make test` runs it once
more by itself."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the demo makes its folder; short, for the sake of sockets."""
    yield tmp_path
    assert not [path.name for path in tmp_path.iterdir()], "the demo left something behind"
    assert not processes_of(tmp_path), "the demo left processes behind"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "NO_COLOR": "1"}


def processes_of(folder: Path) -> list[str]:
    """Every process that names the folder: the service, its launcher, tasks."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_the_demo_shows_what_it_promises(folder: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        DEMO, env=environment(folder), capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    marks = re.findall(r"^([✓✗]) (.+?) —", done.stdout, re.M)
    assert len(marks) == 13
    assert all(mark == "✓" for mark, _ in marks)
    assert "13 of 13 checks hold" in done.stdout
    assert "waiting for victims" in done.stdout or "speech-main placed" in done.stdout
    assert re.search(r"^vision-large +3 +2 .*succeeded$", done.stdout, re.M)
    assert re.search(r"^vision-broken +1 +3 .*failed$", done.stdout, re.M)
    assert "Traceback" not in done.stdout + done.stderr
    assert took < PROMISED_S, f"it took {took:.0f} s"


def listen() -> None:
    """Hear signals that a shell's `&` or `nohup` made this test's own process ignore."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_clears_up(folder: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        DEMO, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, bufsize=1, start_new_session=True, preexec_fn=listen,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if "every task is ready" in line:
                process.send_signal(number)
                break
        told += process.stdout
        assert process.wait(60) == 130, "".join(told)
    assert "It left nothing behind" in "".join(told)
