"""What `allot doctor` reports."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad it is. Only `bad` makes the doctor fail."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """One finding of a check."""

    subject: str
    level: Level
    text: str
    advice: str = ""
