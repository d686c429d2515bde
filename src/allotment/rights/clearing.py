"""Removes what is of no use any more. The runners do not import it: they need no threads."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from allotment.rights.removing import remove


def remove_all(paths: Iterable[Path]) -> None:
    """Remove folders with all in them, and files, as far as possible. Never raises."""
    for path in paths:
        remove(None, str(path))
        with suppress(OSError):
            path.unlink()


def clear(folder: Path) -> None:
    """Remove what is in a folder now, in a thread: it can be millions of files."""
    if left := list(folder.iterdir()):
        Thread(target=remove_all, args=[left], name="leftovers", daemon=True).start()
