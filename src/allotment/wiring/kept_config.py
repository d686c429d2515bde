"""The file of the configuration in force, kept in step with the event log through crashes.

A new text is written beside the old one before its configuration is applied, and takes its
place after that. A start that finds both goes by the log, which says whether it was applied.
"""

from collections.abc import Callable
from pathlib import Path

from allotment.api.state_folder import sync_folder, write_whole
from allotment.engine.foresee import digest
from allotment.model.errors import BadInput, Problem
from allotment.model.tenancy import Config

CONFIG = "config.yaml"
NEXT = "config.next.yaml"
Reader = Callable[[bytes, str], tuple[Config, tuple[Problem, ...]]]


def announce(folder: Path, text: bytes) -> None:
    """Keep a configuration beside the one in force."""
    write_whole(folder / NEXT, text, 0o600)


def keep(folder: Path) -> None:
    """Let the next start find what was announced: it is in force now."""
    (folder / NEXT).replace(folder / CONFIG)
    sync_folder(folder)


def announced(folder: Path, in_force: Config, read: Reader) -> bytes:
    """Return the text that was announced and applied, and not kept any more; empty if none.

    One that was never applied is removed; so is one from before somebody changed the file.
    """
    after, kept = folder / NEXT, folder / CONFIG
    if not after.exists():
        return b""
    text = after.read_bytes()
    is_newer = not kept.exists() or after.stat().st_mtime_ns >= kept.stat().st_mtime_ns
    if is_newer and _digest(text, read) == digest(in_force):
        return text
    after.unlink()
    return b""


def _digest(text: bytes, read: Reader) -> str:
    try:
        return digest(read(text, NEXT)[0])
    except BadInput:
        return ""
