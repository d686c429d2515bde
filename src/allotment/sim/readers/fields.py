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
    """Whether a field says nothing: empty, None, null, Unknown …"""
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
        raise Unreadable(f"{column} is too large")
    return 1


def point_ms(text: str, column: str, unit_ms: int = SECOND) -> int:
    """Read an instant given as a number since whatever the source counts from."""
    try:
        at = round(float(text) * unit_ms)
    except (ValueError, OverflowError):
        raise _unreadable(text, column) from None
    if -FARTHEST_MS < at < FARTHEST_MS:
        return at
    raise Unreadable(f"{column} is too large")


def amount(text: str, column: str, unit: int = 1) -> int:
    """Read an amount that is not negative, in thousandths or bytes by `unit`; blank is 0."""
    if is_blank(text):
        return 0
    value = number(text, column)
    if value < 0:
        raise Unreadable(f"{column} is negative")
    if value * unit > FARTHEST_MS:
        raise Unreadable(f"{column} is too large")
    return round(value * unit)


def whole(text: str, column: str, least: int = 1) -> int:
    """Read a count of things; blank, or fewer than `least`, is `least`."""
    count = amount(text, column)
    if count > MOST_DEVICES:
        raise Unreadable(f"{column} is over {MOST_DEVICES}")
    return max(count, least)


class Clock:
    """Reads instants, written as dates or as seconds; remembers the parts of dates.

    There are few days, minutes of a day, and seconds, so each is worked out once.
    """

    __slots__ = ("_days", "_minutes", "_seconds")

    def __init__(self) -> None:
        self._days: dict[str, int] = {}
        self._minutes: dict[str, int] = {"": 0}
        self._seconds: dict[str, int] = {"": 0}

    def ms(self, text: str, column: str) -> int:
        """Read `2017-10-09 07:01:55`, with `T`, a fraction or a zone if need be, or seconds."""
        try:
            return self._days[text[:10]] + self._minutes[text[10:16]] + self._seconds[text[16:]]
        except KeyError:
            pass
        if text[4:5] != "-":
            return point_ms(text, column)
        try:
            return self._new(text[:10], text[10:16].rstrip(), text[16:].rstrip())
        except ValueError:
            raise Unreadable(f"{column} is not a date and time") from None

    def _new(self, day: str, minute: str, second: str) -> int:
        day_ms = self._days[day] = _day_ms(day)
        minute_ms = self._minutes[minute] = _minute_ms(minute) if minute else 0
        second_ms = _second_ms(second) if second else 0
        if "." not in second:
            self._seconds[second] = second_ms
        return day_ms + minute_ms + second_ms


def _day_ms(text: str) -> int:
    return (date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()) * DAY


def _minute_ms(text: str) -> int:
    """Read ` 07:01` or `T07:01`."""
    hours, minutes = _below(25, text[1:3]), _below(60, text[4:])
    if text[0] not in " T" or text[3:4] != ":":
        raise ValueError(text)
    return hours * HOUR + minutes * MINUTE


def _second_ms(text: str) -> int:
    """Read `:55`, `:55.25`, `:55+08:00`, `Z`, or what of these is there."""
    clock, zone_ms = _without_zone(text)
    if not clock:
        return -zone_ms
    whole, _, fraction = clock[1:].partition(".")
    if clock[0] != ":" or (fraction and not fraction.isdigit()):
        raise ValueError(text)
    return _below(61, whole) * SECOND + int((fraction + "000")[:3]) - zone_ms


def _below(limit: int, text: str) -> int:
    """Read two digits."""
    if len(text) == 2 and text.isdigit() and int(text) < limit:
        return int(text)
    raise ValueError(text)


def _without_zone(text: str) -> tuple[str, int]:
    """Cut a zone off: `:55+08:00` gives `:55`, and 8 hours in milliseconds."""
    if text.endswith(("Z", " UTC")):
        return text.removesuffix("Z").removesuffix(" UTC"), 0
    cut = max(text.rfind("+"), text.rfind("-"))
    if cut < 0:
        return text, 0
    digits = text[cut + 1 :].replace(":", "").ljust(4, "0")
    away_ms = _below(25, digits[:2]) * HOUR + _below(60, digits[2:]) * MINUTE
    return text[:cut].strip(), away_ms if text[cut] == "+" else -away_ms
