"""Instants on the command line: how long ago, or a date."""

from datetime import datetime

from allotment.cli.sim_options import Misused
from allotment.model.quantity import SECOND


def instant(option: str, text: str, now: int) -> int:
    """Read a length of time before now, or a date and time of here. Return it in ms."""
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
    """Read `now`, a length of time from now, or a date and time of here. Return it in ms."""
    if text == "now":
        return now
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except (ValueError, OverflowError):
        return now + length(option, text)


def length(option: str, text: str) -> int:
    """Read a length of time, as 4h. Return it in ms."""
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
