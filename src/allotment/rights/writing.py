"""Writes files whole: whoever reads one finds all of it, or what was there before."""

import os
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file; what is in it is on disk before it has its name. Raises OSError.

    After a power cut the name may still be that of the old one: see `sync`.
    """
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(part, _NEW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, survive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
