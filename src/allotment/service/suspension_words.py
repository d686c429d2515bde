"""How tasks are suspended, and what of their devices' memory they keep, in words."""

from collections.abc import Sequence

from allotment.model.quantity import show_bytes
from allotment.model.suspension import MIB, Grade, Suspension

GRADES = {
    Grade.FROZEN: "frozen, with all its device memory",
    Grade.OFFLOADED: "it moved its device memory to the host",
    Grade.DRIVER_CHECKPOINT: "the driver moved its device memory to the host",
}


def suspended_words(how: Suspension) -> str:
    """Return how a task is suspended, and what it keeps."""
    if how.grade is Grade.FROZEN:
        return GRADES[how.grade]
    if not how.kept:
        return f"{GRADES[how.grade]}; the rest was not measured, so all of it counts as kept"
    most = show_bytes(max(how.kept) * MIB)
    return f"{GRADES[how.grade]}; {most} of each device is kept"


def all_suspended_words(hows: Sequence[tuple[Suspension, int]]) -> list[str]:
    """Return the same of the tasks of a gang, each with the number of its devices: one line for
    all that are alike."""
    words = [suspended_words(how) if devices else "frozen" for how, devices in hows]
    alike = {word: words.count(word) for word in words}
    if len(alike) == 1:
        return [f"Suspended: {word}." for word in alike]
    return [f"Suspended: {number} of its tasks: {word}." for word, number in alike.items()]
