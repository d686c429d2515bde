"""Signals to a task as a whole: which processes get them, and how to end all of it."""

import os
import signal
import time
from typing import Final

from allotment.backends.local.runner import procfs

_SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "zsh", "ksh", "busybox"})
_WRAPPERS: Final = frozenset({"bwrap"})
_KILL_ROUNDS: Final = 200
_KILL_PAUSE_S: Final = 0.01


class Delivery:
    """One signal on its way to a task's main program, in as many rounds as it takes.

    A shell that merely waits for its children is no main program: to signal it would end
    it, and with it the task, before `cd x && python train.py` had a chance to save its
    work. Such a shell is passed over in favour of its children. One that catches or
    ignores the signal means to handle it, and gets it. One that went on to new children
    when the old ones were gone does not wait but work, and gets it in the next round.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self._passed_over: set[int] = set()
        self._got_it: set[int] = set()

    def send(self, pid: int) -> None:
        """Signal those processes it is for now at or below `pid`, none twice."""
        open_ends = [pid] if pid else []
        while open_ends:
            pid = open_ends.pop(0)
            below = self._waited_for(pid)
            if below:
                self._passed_over.add(pid)
                open_ends += below
            elif pid not in self._got_it:
                self._got_it.add(pid)
                send(pid, self.signum)

    def _waited_for(self, pid: int) -> list[int]:
        """Return the children for which a process only waits; none for a main program."""
        program = procfs.program(pid)
        if program in _WRAPPERS:
            return procfs.children(pid)
        if program not in _SHELLS or pid in self._got_it or procfs.handles(pid, self.signum):
            return []
        below = procfs.children(pid)
        known = self._passed_over | self._got_it
        went_on = pid in self._passed_over and known.isdisjoint(below)
        return [] if went_on else below


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
