"""Folders that a task finds where its job wants them, with the rights of its user alone.

Runs on the node, as the task's user: bubblewrap shows each folder at its place, to this task
and nobody else. A place that is not there is shown in a copy of the folder above it, whose
entries are all mounted again. Standard library only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

RUN = 'exec "$0" "$@"'
"""The shell says what is missing as shells do; bubblewrap would always say 1."""


class NotThere(Exception):
    """A folder cannot be opened on this node, which is no fault of the command's."""


def shown(
    program: str, mounts: Sequence[Sequence[str]], cwd: str, argv: list[str]
) -> list[str]:
    """Return the command line of a command that finds folders at their places.

    Each mount is a folder, its place, and how: `ro` or `rw`. Raises NotThere, and OSError where
    a place is missing in a folder that the user can write to.
    """
    for source, at, _ in mounts:
        try:
            os.scandir(source).close()
        except OSError as error:
            why = (error.strerror or "").lower()
            raise NotThere(f"the data for {at} cannot be opened: {why}") from error
    above = sorted({folder for _, at, _ in mounts if (folder := missing_in(Path(at)))})
    words = [program, *([] if "/" in above else ["--dev-bind", "/", "/"])]
    for folder in above:
        if os.access(folder, os.W_OK):  # What the task writes there would be lost.
            raise FileNotFoundError(errno.ENOENT, "nothing can be mounted there", folder)
        words += ["--tmpfs", folder] if folder != "/" else []
        for entry in sorted(Path(folder).iterdir()):
            is_link = entry.is_symlink()
            first = entry.readlink() if is_link else entry
            words += ["--symlink" if is_link else "--dev-bind-try", str(first), str(entry)]
    for source, at, how in mounts:
        # Links on the way to the place lead nowhere for bubblewrap, which has another root.
        words += ["--bind" if how == "rw" else "--ro-bind", source, os.path.realpath(at)]
    return [*words, "--chdir", cwd, "--", "/bin/sh", "-c", RUN, *argv]


def missing_in(place: Path) -> str:
    """Return in which folder a place is missing; '' where it is there."""
    there = next(each for each in (place, *place.parents) if each.is_dir())
    return "" if there == place else str(there.resolve())
