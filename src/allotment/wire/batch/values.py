"""Values as batch systems write them. Every reader raises Amiss."""

import re

from allotment.model.quantity import DAY, HOUR, KIB, MIB, MINUTE, SECOND, Millis
from allotment.model.spec import NEVER
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import LONGEST, MOST_BYTES, MOST_EACH
from allotment.wire.words import NAME, SIGNALS, read_signal

WHOLE = re.compile(r"[0-9]{1,12}")
SIZE = re.compile(r"([0-9]{1,15})(?:([KMGTkmgt])(?:i?[Bb])?)?")
POWERS = {"k": KIB, "m": MIB, "g": MIB << 10, "t": MIB << 20}
ENDLESS = frozenset({"infinite", "unlimited", "-1", "0"})
UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
NUMBERS = {
    "1": "HUP", "2": "INT", "3": "QUIT", "10": "USR1", "12": "USR2", "14": "ALRM",
    "15": "TERM",
}  # fmt: skip


def read_count(value: str, least: int = 1, most: int = MOST_EACH) -> int:
    """Read a whole number."""
    if not WHOLE.fullmatch(value):
        raise not_a("a whole number", value)
    number = int(value)
    if not least <= number <= most:
        raise Amiss(f"must be from {least:,} to {most:,}, not {number:,}")
    return number


def read_megabytes(value: str) -> int:
    """Read an amount of memory, in bytes; a number without a unit is MiB."""
    found = SIZE.fullmatch(value)
    if found is None:
        raise not_a("an amount of memory", value, "write a whole number and K, M, G or T: 16G")
    amount = int(found[1]) * POWERS[(found[2] or "M").lower()]
    if amount > MOST_BYTES:
        raise Amiss(f"{value} is more than any machine has", "check the unit")
    return amount


TIME = "write minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm or d-hh:mm:ss"
PARTS = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")


def read_time_limit(value: str) -> Millis:
    """Read a time limit of Slurm, in milliseconds: `90`, `1:30:00`, `2-12`; or none."""
    if value.lower() in ENDLESS:
        return NEVER
    found = PARTS.fullmatch(value)
    if found is None:
        raise not_a("a time limit", value, TIME)
    first, second, third = int(found[2]), int(found[3] or 0), int(found[4] or 0)
    if found[1] is not None:
        length = int(found[1]) * DAY + first * HOUR + second * MINUTE + third * SECOND
    elif found[4] is not None:
        length = first * HOUR + second * MINUTE + third * SECOND
    else:
        length = first * MINUTE + second * SECOND
    return in_reach(length, value)


def in_reach(length: int, value: str) -> Millis:
    """Refuse a time limit that is out of bounds."""
    if length == 0:
        return NEVER
    if length > LONGEST:
        raise Amiss(f"{value} is more than a hundred years", "leave it out for no limit")
    return Millis(length)


def read_signal_name(value: str) -> str:
    """Read a signal by its name or number."""
    if value.isdecimal() and value not in NUMBERS:
        known = ", ".join(SIGNALS)
        raise Amiss(f"signal {value[:9]} cannot be the warning here", f"take one of {known}")
    return read_signal(NUMBERS.get(value, value))


def read_job_name(value: str) -> str:
    """Read the name of a job: characters that names cannot have become `_`."""
    name = UNFIT.sub("_", value).lstrip("._-")[:128]
    if not NAME.fullmatch(name):
        raise not_a("the name of a job", value, "use letters and digits")
    return name
