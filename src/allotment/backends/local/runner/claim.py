"""Nothing runs twice: the claim on a task, and how to tell whether its supervisor lives.

A claim is a file with two names, `run/live/KEY` and `tasks/…/claim`. Making the second
name is the one atomic step that claims the task for ever; the first is removed when the
task is over. From before that step its supervisor (first the launcher, then the child it
forks) holds a lock on the file, which the kernel lets go when the last process that holds
it is gone, however it died. So:

    no claim              the task was never started
    claim, locked         its supervisor is at work
    claim, not locked     it is over; without a final status, its supervisor was killed

The lock needs no pid, so neither zombies nor numbers used again can mislead it.

The file is filled with blanks when it is claimed: should the disk be full when the task
ends, its final status is written over them, which needs no space.
"""

import fcntl
import os
from typing import Final, NamedTuple

from allotment.backends.local.runner import control, layout

RESERVED_BYTES: Final = 4096


class Claim(NamedTuple):
    """A task that is ours to start: its locked file and its control pipe, to be kept open.

    Both are there before the launch is answered, so that whoever asked for it can tell
    that it lives, and order it to stop, from the first moment on.
    """

    lock: int
    control: int

    def close(self) -> None:
        os.close(self.lock)
        os.close(self.control)


def take(key: str) -> Claim | None:
    """Claim a task; None when it was claimed before.

    Raises ValueError for a bad key, OSError when the state folder cannot be written.
    """
    folder = layout.task_dir(key)
    live = layout.live_file(key)
    if not _make_folder(folder) and os.path.lexists(f"{folder}/{layout.CLAIM}"):
        return None
    pipe = control.open_fifo(f"{folder}/{layout.CONTROL}")
    try:
        fd = _link(folder, live)
    except OSError:
        os.close(pipe)
        raise
    if fd is None:
        os.close(pipe)
        return None
    return Claim(fd, pipe)


def _link(folder: str, live: str) -> int | None:
    """Make the claim's two names, the lock in between. None when it has its second one."""
    fd = os.open(live, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_size < RESERVED_BYTES:
            os.pwrite(fd, b" " * RESERVED_BYTES, 0)
        os.link(live, f"{folder}/{layout.CLAIM}")
    except (BlockingIOError, FileExistsError):
        os.close(fd)
        return None
    except OSError:
        os.unlink(live)
        os.close(fd)
        raise
    return fd


def _make_folder(path: str) -> bool:
    """Make a folder, and those above it where they are missing. False if it was there."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        _make_folder(path.rpartition("/")[0])
        return _make_folder(path)
    except FileExistsError:
        return False
    return True


def hold(path: str) -> int | None:
    """Take over the lock of a claim whose supervisor died; None when one lives."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def is_held(path: str) -> bool:
    """Whether a supervisor lives. Raises FileNotFoundError without a claim."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
