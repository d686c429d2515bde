"""Amounts as people write them, to integers with units and back.

Memory `8GiB`, time `2h30m`, CPUs `0.5` or `500m`, devices `0.5` or `2`. Every reader
raises Amiss; every writer gives what its reader turns into the same number. Decimal
fractions are read exactly, never through binary floats.
"""

import math
import re
from fractions import Fraction

from allotment.model.quantity import DAY, GIB, HOUR, KIB, MIB, MINUTE, SECOND, TIB, Millis
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.text import shown

MOST_TASKS = 1_000_000
MOST_EACH = 1_000_000
"""CPUs or devices of one task."""
MOST_BYTES = 1 << 60
MOST_RETRIES = 1_000_000
MOST_GPUS_IN_ALL = 10_000_000
MOST_WEIGHT_MILLI = 1_000_000_000
LONGEST = 36_500 * DAY
LONGEST_TIME = 100
"""Characters of a length of time."""
MOST_HOURS = 10**9

SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30}) ?([A-Za-z]{0,3})")
DECIMAL = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30}")
TIME_PART = re.compile(r" ?([0-9]{1,20}(?:\.[0-9]{1,20})?) ?(ms|s|min|m|h|d)")

BINARY = {"PiB": 1 << 50, "TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB}
DECIMAL_UNITS = {"PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "KB": 10**3}
UNITS = {
    **BINARY,
    **{unit.removesuffix("B"): size for unit, size in (BINARY | DECIMAL_UNITS).items()},
    **DECIMAL_UNITS,
    "B": 1,
}
ANY_CASE = {unit.lower(): size for unit, size in UNITS.items() if len(unit) > 1} | {"b": 1}
TIMES = {"d": DAY, "h": HOUR, "min": MINUTE, "m": MINUTE, "s": SECOND, "ms": 1}
WRITTEN_TIMES = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))


# ── bytes ───────────────────────────────────────────────────────────────────────────────


def read_size(value: object) -> int:
    """Read an amount of memory or disk, at least one byte."""
    amount = read_size_or_none(value)
    if amount == 0:
        raise Amiss("must be more than 0", "write an amount such as 512MiB or 8GiB")
    return amount


def read_size_or_none(value: object) -> int:
    """Read an amount in bytes, or 0. A part of a byte counts as a whole one."""
    if type(value) is int or type(value) is float:
        return _unitless(value)
    if not isinstance(value, str):
        raise not_a("an amount with a unit", value, "write it like 512MiB or 8GiB")
    found = SIZE.fullmatch(value.strip())
    if not found:
        raise _no_size(value)
    number, unit = found.groups()
    size = UNITS.get(unit) or ANY_CASE.get(unit.lower())
    if not unit:
        return _unitless(Fraction(number))
    if size is None:
        raise _no_such_unit(number, unit)
    return _at_most_bytes(math.ceil(_decimal(number) * size), value)


def _unitless(value: float | Fraction) -> int:
    if value == 0:
        return 0
    if value < 0:
        raise Amiss(f"must not be negative: {shown_number(value)}", "write it like 8GiB")
    text = shown_number(value)
    raise Amiss(
        f"{text} has no unit, and could be bytes as well as gigabytes",
        f"write {text}MiB or {text}GiB" if len(text) < 8 else "add a unit: B, KiB, MiB or GiB",
    )


def _no_size(value: str) -> Amiss:
    if value.strip().startswith("-"):
        return Amiss(f"must not be negative: {shown(value)}", "write it like 8GiB")
    return not_a("an amount with a unit", value, "write it like 512MiB or 8GiB")


def _no_such_unit(number: str, unit: str) -> Amiss:
    big = unit.upper()
    if big in UNITS and len(unit) == 1:
        return Amiss(
            f"the unit `{unit}` could be taken in two ways",
            f"write {number}{big}iB (times 1024) or {number}{big}B (times 1000)",
        )
    return Amiss(
        f"there is no unit `{unit}`", "units are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB"
    )


def _at_most_bytes(amount: int, value: object) -> int:
    if amount > MOST_BYTES:
        raise Amiss(
            f"{shown(value)} is more than 1 EiB, which no machine has", "check the unit"
        )
    return amount


def write_size(amount: int) -> str:
    """Write bytes exactly, in the largest unit that divides them."""
    for unit, size in BINARY.items():
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount}B"


# ── time ────────────────────────────────────────────────────────────────────────────────


def read_duration(value: object) -> Millis:
    """Read a length of time of at least a millisecond, in milliseconds."""
    length = read_duration_or_none(value)
    if length == 0:
        raise Amiss("must be more than 0", "write it like 90s or 2h30m")
    return length


def read_limit(value: object) -> Millis:
    """Read a limit in milliseconds, at least 1; leaving it out means none."""
    length = read_duration_or_none(value)
    if length == 0:
        raise Amiss(
            "must be more than 0", "write it like 90s or 2h30m; leave it out for no limit"
        )
    return length


def read_duration_or_none(value: object) -> Millis:
    """Read milliseconds, or 0, from `90s`, `2h30m`, `1d`, or a number of seconds."""
    if type(value) is int or type(value) is float:
        return _in_reach(_exact(value) * SECOND, value)
    if not isinstance(value, str):
        raise not_a("a length of time", value, "write it like 90s, 2h30m or 1d")
    text = value.strip()
    if DECIMAL.fullmatch(text):
        return _in_reach(_decimal(text) * SECOND, value)
    length: int | Fraction = 0
    at = 0
    while len(text) <= LONGEST_TIME and (found := TIME_PART.match(text, at)):
        length += _decimal(found[1]) * TIMES[found[2]]
        at = found.end()
    if at != len(text) or not text:
        raise not_a("a length of time", value, "write it like 90s, 2h30m or 1d")
    return _in_reach(length, value)


def _in_reach(length: int | Fraction, value: object) -> Millis:
    if length < 0:
        raise Amiss(f"must not be negative: {shown(value)}", "write it like 90s or 2h30m")
    if length > LONGEST:
        raise Amiss(f"{shown(value)} is more than a hundred years", "leave it out for no limit")
    return Millis(math.ceil(length))


def write_duration(length: int) -> str:
    """Write milliseconds exactly: 1d, 2h30m, 60500ms."""
    if length == 0 or length % SECOND:
        return f"{length}ms" if length else "0s"
    parts: list[str] = []
    for unit, size in WRITTEN_TIMES:
        count, length = divmod(length, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


# ── hours of devices and CPUs ───────────────────────────────────────────────────────────


def read_hours(value: object, what: str = "GPU-hours") -> int:
    """Read GPU- or CPU-hours, to the thousandth, in thousandths × milliseconds."""
    if type(value) not in (int, float) or not math.isfinite(value):  # pyright: ignore[reportArgumentType]
        raise not_a(f"a number of {what}", value, "write it like 5000 or 12.5")
    hours = Fraction(repr(value))
    if hours <= 0:
        raise Amiss(f"must be more than 0, not {shown(value)}", "leave it out for no limit")
    if hours > MOST_HOURS:
        raise Amiss(f"{shown(value)} is more than {MOST_HOURS:,} {what}", "check it")
    if (hours * 1000).denominator != 1:
        raise Amiss(f"{shown(value)} is finer than a thousandth", "round it to three places")
    return int(hours * 1000 * HOUR)


def write_hours(amount: int) -> int | float:
    """Write an amount as a number that reads back as the same."""
    milli = amount // HOUR
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


# ── thousandths and counts ──────────────────────────────────────────────────────────────


def read_weight(value: object) -> int:
    """Read the weight of a claimant, in thousandths."""
    hint = "write it like 1, 2.5 or 0.1"
    milli = _milli(value, "a weight", hint)
    if not 0 < milli <= MOST_WEIGHT_MILLI:
        raise Amiss(f"{shown(value)} is not a weight", "stay within 0.001 and 1000000")
    return milli


def read_price(value: object) -> int:
    """Read a price for an hour, in thousandths of a unit of money."""
    return _milli(value, "a price for an hour", "write it like 32.77, without a currency")


def read_cpu(value: object) -> int:
    """Read CPUs, in thousandths: 4, 0.5 or "500m"."""
    if isinstance(value, str) and (text := value.strip()).endswith("m"):
        digits = text[:-1]
        if not digits.isdecimal() or len(digits) > 30:
            raise not_a("a number of CPUs", value, "write it like 4, 0.5 or 500m")
        milli = int(digits)
    else:
        milli = _milli(value, "a number of CPUs", "write it like 4, 0.5 or 500m")
    if milli == 0:
        raise Amiss("must be more than 0", "a task needs some CPU: write at least 0.1")
    return _at_most_each(milli, value, "CPUs")


def read_gpu(value: object) -> int:
    """Read devices, in thousandths: whole ones, or a part of one."""
    milli = _milli(value, "a number of GPUs", "write it like 0.5, 1 or 8")
    if milli > 1000 and milli % 1000:
        whole = milli // 1000
        raise Amiss(
            f"{shown(value)} is neither whole nor part of one GPU",
            f"write {whole} or {whole + 1}, or less than 1 to share a GPU",
        )
    return _at_most_each(milli, value, "GPUs")


def read_gpus(value: object) -> int:
    """Read the devices of many tasks together, in thousandths: 8, or 1.5."""
    milli = _milli(value, "a number of GPUs", "write it like 1.5 or 8")
    if milli > MOST_GPUS_IN_ALL * 1000:
        raise Amiss(f"{shown(value)} GPUs is more than {MOST_GPUS_IN_ALL:,}", "check it")
    return milli


def _milli(value: object, what: str, hint: str) -> int:
    if type(value) is int:
        milli = value * 1000
    elif type(value) is float:
        milli = _exact(value) * 1000
    elif isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
        milli = _decimal(value.strip()) * 1000
    else:
        raise not_a(what, value, hint)
    if milli < 0:
        raise Amiss(f"must not be negative: {shown(value)}", hint)
    if milli.denominator != 1:
        raise Amiss(f"{shown(value)} is finer than a thousandth", "round it to three places")
    return milli.numerator


def _at_most_each(milli: int, value: object, what: str) -> int:
    if milli > MOST_EACH * 1000:
        raise Amiss(
            f"{shown(value)} {what} for one task is more than {MOST_EACH:,}", "check it"
        )
    return milli


def write_milli(milli: int) -> int | float:
    """Write thousandths as a number that reads back as the same."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def read_whole(value: object, least: int, most: int, what: str = "a whole number") -> int:
    """Read an integer between bounds."""
    if type(value) is not int:
        raise not_a(what, value, _unquote(value))
    if value < least:
        raise Amiss(f"must be at least {least}, not {shown(value)}")
    if value > most:
        raise Amiss(f"{shown(value)} is more than the {most:,} that are accepted")
    return value


def read_truth(value: object) -> bool:
    """Read true or false."""
    if type(value) is not bool:
        raise not_a("true or false", value, "write true or false, without quotes")
    return value


def shown_number(value: float | Fraction) -> str:
    """Write a number for a message, without a fraction where there is none."""
    if isinstance(value, int):
        return shown(value)
    return f"{float(value):g}"


def _unquote(value: object) -> str:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return "write it without quotes"
    if isinstance(value, float) and value.is_integer():
        return "write it without a decimal point"
    return ""


def _decimal(digits: str) -> int | Fraction:
    """Read digits with or without a point, exactly; a whole amount fast, as most are."""
    return int(digits) if digits.isdigit() else Fraction(digits)


def _exact(value: float) -> int | Fraction:
    """Take a number for the decimal that its writer saw."""
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        raise Amiss(f"must be a finite number, not {shown(value)}")
    return Fraction(repr(value))
