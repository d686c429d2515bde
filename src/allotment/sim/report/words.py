"""Durations, numbers and shares as a person would say them, and text made safe for HTML."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

from allotment.model.quantity import DAY, DEVICE, HOUR, MINUTE, SECOND

UNITS = ((SECOND, "s"), (MINUTE, "min"), (HOUR, "h"), (DAY, "days"))
"""Milliseconds of each unit, and its name."""

CALENDAR_FROM_MS = 946_684_800_000
CALENDAR_TO_MS = 4_102_444_800_000
"""Instants from 2000 to 2100 are dates; others count from wherever the trace begins."""

LONGEST_NAME = 80


def safe(text: str) -> str:
    """Make text harmless in HTML and in attributes; what no page can hold becomes a square."""
    if not text.isprintable():
        text = "".join(map(_printable, text))
    return escape(text, quote=True)


def _printable(char: str) -> str:
    if char.isspace():
        return " "
    return char if char.isprintable() else "\ufffd"


def short(text: str, most: int = LONGEST_NAME) -> str:
    """Cut a name to at most `most` characters, the last a sign that some are missing."""
    return text if len(text) <= most else text[: most - 1] + "…"


def width(text: str) -> float:
    """Estimate how wide a text is drawn, in heights of its letters; rather more than less."""
    return sum(map(_letter, text))


def _letter(char: str) -> float:
    if char in "ijlt.,:;'|!()[] ":
        return 0.42
    if char in "mwMW@%…" or east_asian_width(char) in "WF":
        return 1.05
    return 0.78 if char.isupper() or not char.isascii() else 0.66


def fitted(text: str, room: float, size: float) -> str:
    """Cut a text to `room` pixels in letters of a size, with a sign that some are missing."""
    if width(text) * size <= room:
        return text
    while text and width(text + "…") * size > room:
        text = text[:-1]
    return text + "…"


def number(value: float) -> str:
    """Write a number with thousands set apart, and three digits where it is small."""
    if value == int(value) or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(ms: float) -> str:
    """Write a length of time in its largest fitting unit, to three digits: "2.5 h"."""
    if ms <= 0:
        return "0"
    if ms < SECOND - 0.5:
        return f"{number(max(1, round(ms)))} ms"
    for (unit, name), (larger, _) in pairwise(UNITS):
        if round(ms / unit, 1) * unit < larger:
            return f"{number(round(ms / unit, 1))} {name}"
    days = round(ms / DAY, 1)
    return "1 day" if days == 1 else f"{number(days)} days"


def seconds(value: float) -> str:
    """Write a length of time given in seconds."""
    return duration(value * SECOND)


def percent(part: float) -> str:
    """Write a share of one as a percentage."""
    if 0 < part < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= part < 1:
        return "over 99.9 %"
    digits = 1 if 0 < part < 0.0995 or 0.99 < part < 1 else 0
    return f"{part * 100:.{digits}f} %"


def counted(count: int, thing: str) -> str:
    """Write how many of a thing, whose name takes an s: "1 job", "82,247 jobs"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def devices(milli: int) -> str:
    """Write an amount of devices."""
    amount = number(milli / DEVICE)
    return f"{amount} device" if milli == DEVICE else f"{amount} devices"


def listed(parts: Sequence[str]) -> str:
    """Join as in a sentence: "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def is_date(at_ms: int) -> bool:
    """Whether an instant of a trace is a date rather than a count from its beginning."""
    return CALENDAR_FROM_MS <= at_ms < CALENDAR_TO_MS


def moment(at_ms: int, begin_ms: int) -> str:
    """Return when something was: a date, or how long after the first submission."""
    if not is_date(begin_ms) or not is_date(at_ms):
        return f"{duration(at_ms - begin_ms)} after the first submission"
    date = datetime.fromtimestamp(at_ms / SECOND, UTC)
    return f"on {date.day} {date:%b %Y, %H:%M}"
