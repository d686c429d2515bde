"""Which processes of a task are killed and do not die, in words for people."""

from typing import Final

from allotment.backends.local.runner import procfs

_MOST: Final = 3
"""Of so many the words name each."""
_STUCK: Final = "D"


def words(supervisor: int, proc: int) -> str:
    """Return what lives below a supervisor as a /proc counts: `process 7 (python, state D)`.

    Of several those count that the kernel holds: the others wait for them. What is not below
    it has entered the task, and is not named.
    """
    found = _below(supervisor, proc)
    found = [each for each in found if each[1].state == _STUCK] or found
    told = [f"process {pid} ({seen.name}, state {seen.state})" for pid, seen in found[:_MOST]]
    if len(found) > _MOST:
        told.append(f"{len(found) - _MOST} more")
    return ", ".join(told) or "a process that entered it"


def _below(root: int, proc: int) -> list[tuple[int, procfs.Stat]]:
    """Return what lives below a process."""
    found: list[tuple[int, procfs.Stat]] = []
    open_ends = [root]
    for pid in open_ends:  # It grows as we go: children of children follow.
        try:
            below = procfs.read(f"{pid}/task/{pid}/children", proc)
        except OSError:
            continue
        for child in map(int, below.split()):
            open_ends.append(child)
            if (seen := procfs.living(child, proc)) is not None:
                found.append((child, seen))
    return found
