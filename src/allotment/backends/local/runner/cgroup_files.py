"""Control files of control groups: small, flat, and gone from one moment to the next."""

import os

from allotment.backends.local.runner import procfs


def write(path: str, value: str | int) -> None:
    """Write to a control file. The error names the file and the value."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(
            error.errno, f"cgroup: cannot write {value!r} to {path}: {error.strerror}"
        ) from error


def open_to_write(path: str) -> int:
    """Open a control file. The error names it."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"cgroup: cannot open {path}: {error.strerror}") from error


def read(path: str) -> str:
    """Read a control file; empty when there is none."""
    try:
        return procfs.read(path)
    except OSError:
        return ""


def members(path: str) -> list[int]:
    """List the processes of a group."""
    return [int(pid) for pid in read(f"{path}/cgroup.procs").split()]


def number_after(text: str, name: str) -> int:
    """Find the line `name NUMBER` in a flat control file; 0 when there is none."""
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == name and rest.strip().isdigit():
            return int(rest)
    return 0


def make_dir(path: str) -> None:
    """Make a group. The error names it."""
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        # Left behind by a supervisor that was killed. The claim says that nobody else
        # uses this key.
        return
    except OSError as error:
        raise OSError(error.errno, f"cgroup: cannot make {path}: {error.strerror}") from error
