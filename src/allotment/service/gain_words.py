"""What a move is to gain, and what it gained, in words."""

from collections.abc import Mapping
from typing import Final

from allotment.model.events import PackingMeasured, Parted
from allotment.model.gains import Gain, MoveFor, Packing, is_more_than_turns
from allotment.model.ids import JobId
from allotment.model.quantity import show_millis


def move_words(gain: Gain | None) -> str:
    """Return where a gang goes that leaves for a place of its own, and for what."""
    if gain is None or not tells_why(gain):
        return "moves to another place"
    if not gain.expected:
        return GOES[gain.why]
    goes = f"grows to {gain.tasks} task(s)" if gain.why is MoveFor.TASKS else GOES[gain.why]
    made = "its turns give" if gain.why is MoveFor.IDLE else "are made"
    return (
        f"{goes}: {gain.expected:,} steps an hour are expected, "
        f"{gain.rate:,} {made}; this costs about {show_millis(gain.cost_ms)}"
    )


def tells_why(gain: Gain) -> bool:
    """Whether it is known for what a gang moved: an old log does not say it of all."""
    return bool(gain.expected) or gain.why is not MoveFor.TASKS


GOES: Final[Mapping[MoveFor, str]] = {
    MoveFor.NEARER: "moves closer together",
    MoveFor.ROOM: "leaves a nearly empty node to others",
    MoveFor.IDLE: "moves to idle devices",
    MoveFor.BACK: "moves back to where it was faster",
}


def packed_words(beside: JobId, expected_milli: int, *, proven: bool) -> str:
    """Return that a gang runs beside another, and what is expected of it."""
    if proven:
        return f"runs beside job {beside} on its devices: both gained by it before"
    told = ""
    if expected_milli:
        told = f": by how busy these were, up to {times(expected_milli)} what turns give"
    return f"runs beside job {beside} on its devices, to measure what both gain{told}"


def packing_words(event: PackingMeasured) -> str:
    """Return what two gangs do at once of what they do by turns."""
    verdict = ""
    if not event.kept:
        is_enough = is_more_than_turns(event.gain_milli)
        why = "one of them loses by it" if is_enough else "that is too little"
        verdict = f": {why}, and they are not packed again"
    return (
        f"makes {event.rate:,} steps an hour beside job {event.beside}, which makes "
        f"{event.other_rate:,}: {times(event.gain_milli)} what turns give{verdict}"
    )


def beside_words(packing: Packing) -> str:
    """Return beside which job another runs, and what is known of it, in a sentence."""
    if packing.gain_milli:
        known = f"Together they do {times(packing.gain_milli)} what they do by turns."
    elif packing.proven:
        known = "Both gained by it before."
    else:
        known = "The gain is not known yet: both must report more steps."
    return f"It runs beside job {packing.beside}, which has its devices now. {known}"


def times(milli: int) -> str:
    """Return a multiple in words: `1.85 times`."""
    return f"{milli / 1000:.2f} times"


PARTED: Final[Mapping[Parted, str]] = {
    Parted.WORSE: "turns are better for them",
    Parted.UNMEASURED: "they reported too few steps; they are not packed again",
    Parted.OVER: "that is over",
    Parted.LEFT: "that job no longer runs there",
    Parted.CPU: "others hold the CPUs that it used",
    Parted.QUEUE: "their queue no longer packs",
}


def gained_words(rate: int, before: int, expected: int, *, kept: bool) -> str:
    """Return what a move gained, in steps an hour."""
    verdict = "" if kept else "; it is not moved for more speed again"
    hoped = f", {expected:,} were expected" if expected not in (0, before) else ""
    return f"makes {rate:,} steps an hour since it moved, {before:,} before{hoped}{verdict}"
