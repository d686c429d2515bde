"""Signals of a process that looks after others: they come as bytes of a pipe, one each."""

import os
import signal
from collections.abc import Iterable


def listen(signums: Iterable[int]) -> int:
    """Make these signals wake a `select`; return the end of the pipe to read them from."""
    wake, end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    for signum in signums:
        signal.signal(signum, _noted)
    return wake


def _noted(signum: int, frame: object) -> None:
    """Leave a signal to the pipe."""


def alone() -> None:
    """Make this process the leader of a new group, which `send_group` reaches."""
    os.setpgid(0, 0)


def send_group(pid: int, signum: int) -> None:
    """Signal all processes of a group. One that is gone, or another user's, is no error."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        return
