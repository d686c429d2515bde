"""From the text of a field to a quantity, or to the reason why its row cannot be used.

Times come out in milliseconds. A date without a zone is taken as UTC.
"""

from datetime import date

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND

FARTHEST_MS = 1 << 60
"""Beyond this (36 million years) a number is no time, whatever its unit."""

MOST_DEVICES = 1_000_000

_BLANK = frozenset(("", "none", "null", "nan", "nat", "unknown", "n/a", "-"))


class Unreadable(Exception):
    """A row that cannot be used; its text is the reason, the same for all rows like it."""


def is_blank(text: str) -> bool:
    """Tell whether a field says nothing: empty, None, null, Unknown …"""
    return text.strip().lower() in _BLANK


def number(text: str, column: str) -> float:
    """Read a finite number; `column` names it in the reason when it is none."""
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(text, column) from None
    if value - value != 0.0:
        raise Unreadable(f"{column} is missing" if value != value else f"{column} is infinite")
    return value


def _unreadable(text: str, column: str) -> Unreadable:
    return Unreadable(f"{column} is {'missing' if is_blank(text) else 'not a number'}")


def span_ms(text: str, column: str, unit_ms: int = SECOND) -> int:
    """Read a length of time. No time at all counts as 1 ms: such a job still comes and goes."""
    try:
        length = round(float(text) * unit_ms)
    except (ValueError, OverflowError):
        raise _unreadable(text, column) from None
    return checked_span(length, column)


def checked_span(length_ms: int, column: str) -> int:
    """Refuse a negative or absurd length; make 0 into 1 ms."""
    if 0 < length_ms < FARTHEST_MS:
        return length_ms
    if length_ms < 0:
        raise Unreadable(f"{column} is negative")
    if length_ms:
        raise Unreadable(f"{column} is beyond all measure")
    return 1


def point_ms(text: str, column: str, unit_ms: int = SECOND) -> int:
    """Read an instant given as a number since whatever the source counts from."""
    try:
        at = round(float(text) * unit_ms)
    except (ValueError, OverflowError):
        raise _unreadable(text, column) from None
    if -FARTHEST_MS < at < FARTHEST_MS:
        return at
    raise Unreadable(f"{column} is beyond all measure")


def amount(text: str, column: str, unit: int = 1) -> int:
    """Read an amount that is not negative, in thousandths or bytes by `unit`; blank is 0."""
    if is_blank(text):
        return 0
    value = number(text, column)
    if value < 0:
        raise Unreadable(f"{column} is negative")
    if value * unit > FARTHEST_MS:
        raise Unreadable(f"{column} is beyond all measure")
    return round(value * unit)


def whole(text: str, column: str, least: int = 1) -> int:
    """Read a count of things; blank, or fewer than `least`, is `least`."""
    count = amount(text, column)
    if count > MOST_DEVICES:
        raise Unreadable(f"{column} is over {MOST_DEVICES}")
    return max(count, least)


class Clock:
    """Reads instants, written as dates or as seconds; remembers days and times of day.

    One day occurs on thousands of rows, so each is worked out once.
    """

    __slots__ = ("_days", "_times")

    def __init__(self) -> None:
        self._days: dict[str, int] = {}
        self._times: dict[str, int] = {}

    def ms(self, text: str, column: str) -> int:
        """Read `2017-10-09 07:01:55`, with `T`, a fraction or a zone if need be, or seconds."""
        try:
            return self._days[text[:10]] + self._times[text[10:]]
        except KeyError:
            pass
        if text[4:5] != "-":
            return point_ms(text, column)
        try:
            day = self._days[text[:10]] = _day_ms(text[:10])
            time, is_plain = _time_ms(text[10:])
        except ValueError:
            raise Unreadable(f"{column} is not a date and time") from None
        if is_plain:
            self._times[text[10:]] = time
        return day + time


def _day_ms(text: str) -> int:
    return (date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()) * DAY


def _time_ms(text: str) -> tuple[int, bool]:
    """Read what follows the day; also tell whether it is one of the 86,400 plain times."""
    if not text.strip():
        return 0, True
    clock, zone = _without_zone(text[1:])
    hours, minutes, *rest = clock.split(":")
    if text[0] not in " T" or len(rest) > 1 or int(hours) > 24 or int(minutes) > 59:
        raise ValueError(text)
    whole, _, fraction = rest[0].partition(".") if rest else ("0", "", "")
    if int(whole) > 60 or min(int(hours), int(minutes), int(whole)) < 0:
        raise ValueError(text)
    ms = int(hours) * HOUR + int(minutes) * MINUTE + int(whole) * SECOND
    parts = int((fraction + "000")[:3]) if fraction else 0
    return ms + parts - zone, len(text) == len(" 00:00:00") and not parts


def _without_zone(text: str) -> tuple[str, int]:
    """Cut a zone off: `07:01:55+08:00` gives the time, and 8 hours in milliseconds."""
    text = text.strip()
    if text.endswith("Z"):
        return text[:-1], 0
    cut = max(text.rfind("+"), text.rfind("-"))
    if cut < 0:
        return text, 0
    digits = text[cut + 1 :].replace(":", "").ljust(4, "0")
    away = int(digits[:2]) * HOUR + int(digits[2:4]) * MINUTE
    return text[:cut].strip(), away if text[cut] == "+" else -away
