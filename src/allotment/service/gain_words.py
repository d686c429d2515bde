"""What a move is to gain, and what it gained, in words."""

from allotment.model.gains import Gain
from allotment.model.quantity import show_millis


def move_words(gain: Gain | None) -> str:
    """Return where a gang goes that leaves for a place of its own, and for what."""
    if gain is None or not gain.expected:
        return "moves to another place"
    return (
        f"grows to {gain.tasks} task(s): {gain.expected:,} steps an hour are expected, "
        f"{gain.rate:,} are made; this costs about {show_millis(gain.cost_ms)}"
    )


def gained_words(rate: int, before: int, *, kept: bool) -> str:
    """Return what a move gained, in steps an hour."""
    verdict = "" if kept else "; it is not moved for more again"
    return f"makes {rate:,} steps an hour since it moved, {before:,} before{verdict}"
