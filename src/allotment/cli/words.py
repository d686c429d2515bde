"""How values look on a screen: ages, amounts, states. Short, and the same in every table."""

from collections.abc import Mapping, Sequence

from allotment.model.lifecycle import JobState
from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND, show_milli
from allotment.service.ports import Silence

NOTHING_THERE = "-"
"""In a table, where there is nothing to say."""

STATE_STYLES: dict[str, str] = {
    JobState.HELD: "dim",
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "green",
    JobState.SUSPENDED: "magenta",
    JobState.STOPPING: "yellow",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "dim",
    JobState.TIMED_OUT: "bold red",
    "ready": "green",
    "drained": "yellow",
    "lost": "bold red",
    "evicted": "yellow",
}
"""Colours repeat what the word says; nothing is told by colour alone."""


def show_span(ms: int) -> str:
    """Write a length of time in at most six characters: 12s, 3m20s, 45m, 2h5m, 31h, 3d4h."""
    if ms < 0:
        return NOTHING_THERE
    if ms < MINUTE:
        return f"{ms // SECOND}s"
    if ms < 10 * MINUTE:
        return _two(ms, MINUTE, "m", SECOND, "s")
    if ms < HOUR:
        return f"{ms // MINUTE}m"
    if ms < 10 * HOUR:
        return _two(ms, HOUR, "h", MINUTE, "m")
    if ms < 2 * DAY:
        return f"{ms // HOUR}h"
    if ms < 10 * DAY:
        return _two(ms, DAY, "d", HOUR, "h")
    return f"{ms // DAY}d"


def _two(ms: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = ms % large // small
    return f"{ms // large}{large_name}" + (f"{rest}{small_name}" if rest else "")


def show_age(then: int, now: int) -> str:
    """Write how long ago something was; `-` for what has not happened."""
    return show_span(max(0, now - then)) if then else NOTHING_THERE


def show_gpus(milli: int) -> str:
    """Write a number of devices; `-` for none."""
    return show_milli(milli) if milli else NOTHING_THERE


def plain(code: str) -> str:
    """Write a code as words: `waiting_for_victims` becomes `waiting for victims`."""
    return OTHER_WORDS.get(code) or code.replace("_", " ")


OTHER_WORDS = {"never_fits_now": "no node can hold it"}
"""Of codes that say too much: what fits no node may fit those that a pool will have."""


def pairs(words: Mapping[str, str]) -> str:
    """Write keys with their values: `team=vision stage=test`."""
    return " ".join(f"{key}={value}" for key, value in words.items())


def some(names: Sequence[str]) -> str:
    """Write a list in the width of its first name: `n1 +2`."""
    if not names:
        return NOTHING_THERE
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def count(number: int, noun: str) -> str:
    """Write a number with its noun: 1 job, 2 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def harmless(text: str) -> str:
    """Make text from a job safe for a terminal: control characters are written out."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1]
        for letter in text
    )


PARTS = {"gpu": "GPU", "cpu": "CPU", "gpu_memory": "GPU memory"}
"""How parts are called that are not words."""


def borrows(parts: Sequence[str]) -> str:
    """Return which parts are on loan."""
    return "borrows " + ", ".join(PARTS.get(part, part) for part in parts)


def not_heard(silence: Silence) -> str:
    """Return that an engine does not answer, without a full stop."""
    return f"{silence.engine} has not answered for {show_span(silence.for_ms)}"
