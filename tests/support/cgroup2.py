"""Version 2 of control groups, mounted for a test where the machine has only the first."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment.backends.local.runner import hierarchy, libc, procfs
from allotment.rights.unmounting import unmount


@contextmanager
def a_cgroup2() -> Iterator[Path]:
    """Return where it is mounted. Controllers that the first version has are not in it."""
    mounts = hierarchy.find_mounts(procfs.read("/proc/self/mountinfo"))
    there = [mount.path for mount in mounts if not mount.controllers]
    if there:
        yield Path(there[0])
        return
    with tempfile.TemporaryDirectory(prefix="allot-cgroup2-") as folder:
        libc.mount("none", folder, "cgroup2", 0)
        try:
            yield Path(folder)
        finally:
            unmount(folder)
