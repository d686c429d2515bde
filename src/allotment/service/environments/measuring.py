"""How large a folder is while it is being filled."""

import contextlib
import os
from pathlib import Path


def size_below(top: Path) -> tuple[int, int]:
    """Return how many files are below a folder that changes, and what they take of the disk."""
    files = size = 0
    for _, names, others, fd in os.fwalk(top):
        for name in (*names, *others):
            with contextlib.suppress(OSError):
                state = os.stat(name, dir_fd=fd, follow_symlinks=False)
                files, size = files + 1, size + state.st_blocks * 512
    return files, size
