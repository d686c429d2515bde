"""Signals to a task as a whole: whom they are meant for, and how to end all of it."""

import os
import signal
import time
from typing import Final

from allotment.backends.local.runner import procfs

_SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "zsh", "ksh", "busybox"})
_WRAPPERS: Final = frozenset({"bwrap"})
_KILL_ROUNDS: Final = 200
_KILL_PAUSE_S: Final = 0.01


def recipients(pid: int, signum: int) -> list[int]:
    """Say which processes a signal to the task is for: its main program.

    A shell that merely waits for its children is no main program: to signal it would end
    it, and with it the task, before `cd x && python train.py` had a chance to save its
    work. Such a shell is passed over in favour of its children. One that catches or
    ignores the signal means to handle it, and gets it.
    """
    found: list[int] = []
    open_ends = [pid] if pid else []
    while open_ends:
        pid = open_ends.pop(0)
        program = procfs.program(pid)
        below = procfs.children(pid) if program in _SHELLS or program in _WRAPPERS else []
        if program in _WRAPPERS or (below and not procfs.handles(pid, signum)):
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
    """Kill every process below `root`; our own children are not reaped.

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
        time.sleep(_KILL_PAUSE_S)
