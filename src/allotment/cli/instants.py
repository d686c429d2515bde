"""Instants on the command line: how long ago, or a date."""

from datetime import datetime

from allotment.cli.sim_options import Misused
from allotment.model.quantity import SECOND


def instant(option: str, text: str, now: int) -> int:
    """Read a length of time before now, or a date and time of here. Gives ms."""
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
