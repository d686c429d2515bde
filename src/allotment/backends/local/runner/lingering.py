"""Which processes of a task are killed and do not die, in words for people."""

from typing import Final

from allotment.backends.local.runner import procfs

_MOST: Final = 3
"""Of so many the words name each."""


def words(supervisor: int, proc: int) -> str:
    """Return what lives below a supervisor as a /proc counts: `process 7 (python, state D)`.

    What is not below it has entered the task, and is not named.
    """
    try:
        below = procfs.read(f"{supervisor}/task/{supervisor}/children", proc).split()
    except OSError:
        below = []
    found = [(pid, seen) for pid in below if (seen := procfs.living(pid, proc)) is not None]
    told = [f"process {pid} ({seen.name}, state {seen.state})" for pid, seen in found[:_MOST]]
    if len(found) > _MOST:
        told.append(f"{len(found) - _MOST} more")
    return ", ".join(told) or "a process that entered it"
