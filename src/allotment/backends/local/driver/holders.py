"""Which processes of a task have a device open. Of the kernel, not of NVML.

NVML shows a process once it has memory; a child that was forked has its parent's device open,
and neither of them could then be put back.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from allotment.backends.local.runner import procfs


def holders(root: int, files: Iterable[str]) -> list[int]:
    """Return the processes at and below `root` that have one of these device files open."""
    numbers = {os.stat(path).st_rdev for path in files}  # noqa: PTH116 - as procfs
    tree = [root, *procfs.descendants(root)]
    return [pid for pid in tree if not numbers.isdisjoint(_opened(pid))]


def _opened(pid: int) -> Iterator[int]:
    """Return the numbers of the device files that a process has open."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # It ended meanwhile.
        for name in os.listdir(folder):  # noqa: PTH208 - as procfs
            with suppress(OSError):
                # By name first: what else it has open may hang when it is looked at.
                if os.readlink(f"{folder}/{name}").startswith("/dev/"):  # noqa: PTH115
                    yield os.stat(f"{folder}/{name}").st_rdev  # noqa: PTH116
