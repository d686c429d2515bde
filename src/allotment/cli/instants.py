"""Instants on the command line: how long ago, or a date."""

from datetime import datetime

from allotment.cli.sim_options import Misused
from allotment.model.quantity import SECOND


def instant(option: str, text: str, now: int) -> int:
    """Read an age, or a local date and time, in milliseconds since the epoch."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except (ValueError, OverflowError):
        pass
    from allotment.sim.settings import BadSetting, read_length  # noqa: PLC0415 - seldom

    try:
        ago = read_length(text)
    except BadSetting as error:
        raise Misused(
            f"{option}: {text!r} is neither a length of time nor a date.",
            "Write how long ago, as 30d or 12h, or a date, as 2026-10-01.",
        ) from error
    if ago < 0:
        raise Misused(f"{option}: {text!r} lies ahead.", "Write how long ago, as 30d.")
    return now - ago


def ahead(option: str, text: str, now: int) -> int:
    """Read `now`, a time from now, or a local date, in milliseconds since the epoch."""
    if text == "now":
        return now
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except (ValueError, OverflowError):
        return now + length(option, text)


def length(option: str, text: str) -> int:
    """Read a length of time, such as 4h, in milliseconds."""
    from allotment.sim.settings import BadSetting, read_length  # noqa: PLC0415 - seldom

    try:
        found = read_length(text)
    except BadSetting as error:
        raise Misused(
            f"{option}: {text!r} is neither a length of time nor a date.",
            "Write 4h or 2d; or, where a moment is meant, a date, as 2026-12-01 08:00.",
        ) from error
    if found < 0:
        raise Misused(f"{option}: {text!r} lies in the past.", "Write how far ahead, as 4h.")
    return found


def date(ms: int) -> str:
    """Write an instant as a local date and time, to the minute."""
    return datetime.fromtimestamp(ms / SECOND).astimezone().strftime("%Y-%m-%d %H:%M")
