"""Whether supervisors answer, and an end to the tasks of those that do not.

A supervisor that is awake empties its control pipe. So a blank line there, which means
nothing to any version, is a question, and the empty pipe at the next look is the answer:
nothing is sent back, nothing is written to disk, and the supervisors that an earlier launcher
forked are asked in the same way. Looks are counted, not seconds: on a machine that stood still
for an hour nobody has looked.
"""

import fcntl
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from allotment.backends.local.runner import layout, procfs, tree

LOOK_EVERY_S: float = 10.0
PATIENCE: Final = 6
"""Looks in a row without a sign of life while an order waits, to end most often."""
LONG_PATIENCE: Final = 30
"""The same where only our question does: a slow disk is no reason to end what runs."""
_QUESTION: Final = b"\n"
_UNREAD: Final = 0x541B
"""FIONREAD; `termios`, which has it, would be mapped into every supervisor for this."""
_NUMBER: Final = struct.Struct("i")


class Silence(NamedTuple):
    """For how many looks a supervisor gave no sign of life, and for how long it had run."""

    looks: int
    ran: str


class Watchdog:
    """Asks every supervisor. `on_gone` is told of tasks that have none any more.

    `causes` says of the tasks it ended why.
    """

    def __init__(self, on_gone: Callable[[str], None]) -> None:
        self._on_gone = on_gone
        self._silent: dict[str, Silence] = {}
        self._dying: set[str] = set()
        """Tasks of which, at the last look, a child of ours had no control pipe any more."""
        self.causes: dict[str, str] = {}

    def look(self, keys: list[str], ours: Mapping[str, int]) -> list[str]:
        """Ask all; return the tasks that came to their end by it. `ours` are our children."""
        for known in (self._silent, self.causes):
            for key in known.keys() - set(keys):
                del known[key]
        self._dying.intersection_update(ours)
        return [key for key in keys if self._look_at(key, ours.get(key, 0))]

    def _look_at(self, key: str, pid: int) -> bool:
        unread = _ask(key)
        if unread > 0:
            return self._is_over(key, pid or _supervisor_of(key), is_order=unread > 1)
        self._silent.pop(key, None)
        # A child of ours is reaped, unless it waits for what is frozen in its PID namespace.
        if unread < 0 and (not pid or key in self._dying):
            self._on_gone(key)
        elif unread < 0:
            self._dying.add(key)
        return False

    def _is_over(self, key: str, pid: int, *, is_order: bool) -> bool:
        """Count a look without an answer; after the last one kill the supervisor."""
        found = procfs.stat(pid)
        if found is None or found.state == "t":  # an administrator debugs it
            return False
        if found.state == "T":
            tree.send(pid, signal.SIGCONT)
        before = self._silent.get(key, Silence(0, ""))
        ran = _ran(pid)
        sleeps = found.state != "R" and before.ran in ("", ran)
        looks = before.looks + 1 if _owes_an_answer(pid, found.state, sleeps, is_order) else 0
        self._silent[key] = Silence(looks, ran)
        if looks < (PATIENCE if is_order else LONG_PATIENCE):
            return False
        self._end(key, pid, found.state, looks)
        return True

    def _end(self, key: str, pid: int, state: str, looks: int) -> None:
        seconds = looks * LOOK_EVERY_S
        cause = f"its supervisor did not answer for {seconds:g} s (state {state}) and was ended"
        self.causes[key] = cause
        del self._silent[key]
        print(f"task {key}: {cause}, pid {pid}", file=sys.stderr, flush=True)
        tree.send(pid, signal.SIGKILL)


def _owes_an_answer(pid: int, state: str, sleeps: bool, is_order: bool) -> bool:
    """Whether a supervisor that says nothing should.

    It may be busy, or held by a file server, before the command runs and after its end: then
    with an order it must at least move. While the command runs an order is read at once.
    """
    if procfs.children(pid):
        return is_order or (sleeps and state != "D")
    return is_order and sleeps


def _ask(key: str) -> int:
    """Count what a supervisor has not read yet, and ask if there is nothing; -1: none reads."""
    path = f"{layout.task_dir(key)}/{layout.CONTROL}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        (unread,) = _NUMBER.unpack(fcntl.ioctl(fd, _UNREAD, bytes(_NUMBER.size)))
        if not unread:
            os.write(fd, _QUESTION)
    except OSError:  # it ended between two of these lines
        return -1
    finally:
        os.close(fd)
    return unread


def _supervisor_of(key: str) -> int:
    """Return the pid of a supervisor that is not our child, by its own words; 0 for none."""
    try:
        status = json.loads(procfs.read(f"{layout.task_dir(key)}/{layout.STATUS}"))
    except (OSError, ValueError):
        return 0
    pid = status["supervisor_pid"]
    is_it = procfs.start_time(pid) == status["supervisor_start_time"]
    return pid if is_it else 0


def _ran(pid: int) -> str:
    """Return what changes whenever a process runs, be it for a microsecond."""
    try:
        return procfs.read(f"/proc/{pid}/schedstat")
    except OSError:
        return ""
