"""A node of the real Slurm that is rebooted: all that runs there is gone at once."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.slurm import Slurm


def reboot(slurm: Slurm, name: str) -> None:
    """End all that runs on a node by force, and start its daemon as after a boot."""
    slurm.kill(name)
    while doomed := running_on(slurm, name):
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    slurm.start_node(name, "-b")


def running_on(slurm: Slurm, name: str) -> list[int]:
    """Return the pids of all that runs on a node, Slurm's own processes first.

    What runs in a job has the name in its environment, and is below a process of Slurm's
    until that ends. A process of Slurm's writes into the log of its node.
    """
    log = str(slurm.folder / f"slurmd.{name}.log")
    steps = [pid for pid in slurm.steps() if log in _open_files(pid)]
    parents = dict(processes())
    inside = set(steps)
    while more := {pid for pid, parent in parents.items() if parent in inside} - inside:
        inside |= more
    marks = {f"SLURM_CONF={slurm.conf}".encode(), f"SLURMD_NODENAME={name}".encode()}
    inside |= {pid for pid in parents if marks <= _environment(pid)}
    return [*steps, *sorted(inside.difference(steps))]


def processes() -> Iterator[tuple[int, int]]:
    """Go through all processes that live, with the parent of each."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(entry.name), int(parent)


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def _open_files(pid: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
