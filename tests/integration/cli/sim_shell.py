"""Runs the installed `allot sim` in a process of its own, in a folder of its own."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run

from tests.support.invoke import Ran, allot
from tests.support.patience import PATIENCE_S

ALLOT = Path(sys.executable).with_name("allot")

TRACE = """\
job_id,submit_time,num_gpus,duration,vc
a,0,1,60,red
b,5,2,60,blue
c,9,16,100,red
d,10,8,30,blue
"""
"""Sixteen devices do for all of it, one job at a time for some."""

WAITING_POLICY = """\
import os
from msgspec.structs import replace
from allotment.sim.catalogue import RECIPES

def ordering(settings, estimates):
    global told
    told = open({told!r}, "w", buffering=1)
    told.write(f"{{os.getpid()}}\\n")
    if {stays}:
        open({never!r}).read()
    return RECIPES["fifo"].ordering(settings, estimates)

RECIPE = replace(RECIPES["fifo"], ordering=ordering)
"""
"""Says that it runs, by its process; then stays there for good, or plays on."""


class Folder:
    """A folder with a trace in it; `allot sim` is run there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("t.csv", TRACE)

    def write(self, name: str, text: str | bytes) -> Path:
        """Put a file there."""
        path = self.path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def names(self) -> list[str]:
        """List what is there, hidden or not."""
        return sorted(entry.name for entry in self.path.iterdir())

    def command(self, *words: str) -> list[str]:
        """Return what a shell would be told."""
        return [str(ALLOT), "sim", *words]

    def sim(self, *words: str) -> Ran:
        """Run `allot sim` with these words, in this process."""
        with contextlib.chdir(self.path):
            return allot("sim", *words)

    def sim_alone(self, *words: str) -> Ran:
        """Run it in a process of its own."""
        done = run(
            self.command(*words),
            cwd=self.path,
            stdin=DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def started(self, *words: str, stderr: int = PIPE) -> Generator["Popen[str]"]:
        """Start it as a shell would: in a group of its own, which a Ctrl-C goes to."""
        with Popen(
            self.command(*words),
            cwd=self.path,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def waiting_policy(self, *, stays: bool) -> Path:
        """Make `stuck.py`; give the pipe that it tells its process by."""
        told, never = self.path / "told", self.path / "never"
        os.mkfifo(told)
        os.mkfifo(never)
        self.write(
            "stuck.py", WAITING_POLICY.format(told=str(told), never=str(never), stays=stays)
        )
        return told


@contextlib.contextmanager
def told_by(pipe: Path) -> Generator[int]:
    """Wait until a process says that it runs; give the end of its pipe, to be read."""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([end], [], [], PATIENCE_S)[0], "nobody told anything"
        yield end
    finally:
        os.close(end)


def process_told(pipe: Path) -> int:
    """Wait until a process says that it runs; give its number."""
    with told_by(pipe) as end:
        return int(os.read(end, 100))


def all_of(end: int) -> bytes:
    """Read a pipe to its end: until nobody has it open for writing any more."""
    whole = b""
    while select.select([end], [], [], PATIENCE_S)[0]:
        piece = os.read(end, 1 << 16)
        if not piece:
            return whole
        whole += piece
    raise AssertionError("somebody still holds the pipe")
