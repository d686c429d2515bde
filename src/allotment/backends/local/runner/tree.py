"""Signals to a task as a whole: whom they are meant for, and how to end all of it."""

import os
import signal
import time
from typing import Final

from allotment.backends.local.runner import procfs

_SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "zsh", "ksh", "busybox", "env"})
_WRAPPERS: Final = frozenset({"bwrap"})
_KILL_ROUNDS: Final = 200
_KILL_PAUSE_S: Final = 0.01


def main_process(init_pid: int) -> int:
    """Find the task's main process below its init; 0 before it exists."""
    pid = init_pid
    while True:
        below = procfs.children(pid)
        if not below:
            return 0
        pid = below[0]
        if procfs.program(pid) not in _WRAPPERS:
            return pid


def recipients(init_pid: int, signum: int) -> list[int]:
    """Say which processes a signal to the task is for: its main program.

    A shell that merely waits for its children is no main program: to signal it would end
    it, and with it the task, before `cd x && python train.py` had a chance to save its
    work. Such a shell is passed over in favour of its children. One that catches or
    ignores the signal means to handle it, and gets it.
    """
    found: list[int] = []
    open_ends = procfs.children(init_pid)
    while open_ends:
        pid = open_ends.pop(0)
        program = procfs.program(pid)
        below = procfs.children(pid)
        passes_on = program in _WRAPPERS or (
            program in _SHELLS and bool(below) and not procfs.handles(pid, signum)
        )
        if passes_on:
            open_ends += below
        else:
            found.append(pid)
    return found


def send(pid: int, signum: int) -> None:
    """Signal a process that may be gone."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def set_stopped(root: int, *, stopped: bool) -> None:
    """Freeze or thaw without a freezer: stop every process below `root`, or let them go."""
    signum = signal.SIGSTOP if stopped else signal.SIGCONT
    for pid in procfs.descendants(root):
        send(pid, signum)


def kill_below(root: int) -> None:
    """Kill every process below `root`, and reap those that become our children.

    They are stopped first: a fork bomb would outrun a plain loop. Gives up after two
    seconds, when something sleeps where no signal reaches it.
    """
    for _ in range(_KILL_ROUNDS):
        stopped: set[int] = set()
        while new := procfs.descendants(root).keys() - stopped:
            for pid in new:
                send(pid, signal.SIGSTOP)
            stopped |= new
        if not stopped:
            return
        for pid in stopped:
            send(pid, signal.SIGKILL)
        reap()
        time.sleep(_KILL_PAUSE_S)
        reap()


def reap() -> None:
    """Collect every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
