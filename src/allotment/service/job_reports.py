"""Reads the files in which running jobs report: a checkpoint, or progress.

The file is the job's own, and so may be anything: a pipe, a link to what the job may not
read, or without end. What cannot be read is as good as not there, and no more than the
end of it is read. It is looked at with the rights of the job's user (docs/adr/0012).
"""

import os
import stat
from collections.abc import Iterable

from allotment.rights import paths
from allotment.rights.user import rights_of
from allotment.service.ports import Identity
from allotment.service.workspace import Changed, Watched


def changed_in(watched: Iterable[tuple[Watched, Identity | None]]) -> list[Changed]:
    """Read the files that changed, each with a user's rights, or with our own. Blocks."""
    found: list[Changed] = []
    for each, identity in watched:
        try:
            with rights_of(identity):
                changed_ns = os.lstat(each.file).st_mtime_ns
                if changed_ns != each.known_ns and changed_ns >= each.since_ns:
                    found.append(Changed(each.key, changed_ns, _content(each)))
        except OSError:
            continue
    return found


def _content(watched: Watched) -> bytes:
    """Read the end of a file that is really the job's own. Raises OSError."""
    fd = paths.open_file(watched.file, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or watched.uid not in (None, found.st_uid):
            return b""
        return os.pread(fd, watched.most_bytes, max(0, found.st_size - watched.most_bytes))
    finally:
        os.close(fd)
