"""The file of the configuration in force, kept in step with the event log through crashes.

A new text is written beside the old one before its configuration is applied, and takes its
place after that. A start that finds both goes by the log, which says whether it was applied.
"""

from collections.abc import Callable
from pathlib import Path

from allotment.engine.foresee import digest
from allotment.model.errors import BadInput, Problem
from allotment.model.tenancy import Config
from allotment.rights.writing import sync, write_whole

CONFIG = "config.yaml"
NEXT = "config.next.yaml"
Reader = Callable[[bytes, str], tuple[Config, tuple[Problem, ...]]]


class Kept:
    """The text of the configuration in force: at hand, and in the state folder.

    The file is for the next start. What somebody writes into it meanwhile is not in force.
    """

    def __init__(self, folder: Path, text: bytes = b"") -> None:
        self.folder, self.text = folder, text
        self._next = b""

    def announce(self, text: bytes) -> None:
        """Keep a text that is about to be put in force."""
        announce(self.folder, text)
        self._next = text

    def keep(self) -> None:
        """Take the announced text as the one in force."""
        self.text = self._next
        keep(self.folder)


def announce(folder: Path, text: bytes) -> None:
    """Write a configuration beside the one in force."""
    write_whole(folder / NEXT, text)
    sync(folder)


def keep(folder: Path) -> None:
    """Replace the configuration of the next start by the announced one."""
    (folder / NEXT).replace(folder / CONFIG)
    sync(folder)


def announced(folder: Path, in_force: Config, read: Reader) -> bytes:
    """Return the announced text if it was applied, and not yet kept; empty if there is none.

    A text that was never applied is removed; so is one older than the last change of the file.
    """
    after, kept = folder / NEXT, folder / CONFIG
    if not after.exists():
        return b""
    text = after.read_bytes()
    is_newer = not kept.exists() or after.stat().st_mtime_ns >= kept.stat().st_mtime_ns
    if is_newer and is_text_of(text, in_force, read):
        return text
    after.unlink()
    return b""


def is_text_of(text: bytes, config: Config, read: Reader) -> bool:
    """Whether a text says the same as a configuration."""
    try:
        return digest(read(text, NEXT)[0]) == digest(config)
    except BadInput:
        return False
