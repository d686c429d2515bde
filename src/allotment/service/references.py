"""How people name jobs: `12`, `last`, `train`, and parts of an array: `8[12-49,failed]`."""

import re

import msgspec

from allotment.model.errors import Code, Rejected
from allotment.model.lifecycle import JobState

PART = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})\[([^\[\]]{1,2000})\]")
INDEX = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Reference(msgspec.Struct, frozen=True):
    """What a reference says. Without `ranges` and `states` it means the whole."""

    base: str
    ranges: tuple[tuple[int, int], ...] = ()
    states: tuple[JobState, ...] = ()

    @property
    def is_part(self) -> bool:
        return bool(self.ranges or self.states)

    def has(self, index: int, state: JobState) -> bool:
        """Whether the reference means this job of the array."""
        return state in self.states or any(a <= index <= b for a, b in self.ranges)


def read_reference(text: str) -> Reference:
    """Read a reference. Raises Rejected where its brackets cannot be read."""
    if "[" not in text and "]" not in text:
        return Reference(text)
    found = PART.fullmatch(text)
    if found is None:
        raise _unreadable(text, "it has brackets in the wrong place")
    ranges: list[tuple[int, int]] = []
    states: list[JobState] = []
    for part in found[2].split(","):
        word = part.strip().lower().replace("-", "_")
        if number := INDEX.fullmatch(part.strip()):
            ranges.append((int(number[1]), int(number[2] or number[1])))
        elif word in tuple(JobState):
            states.append(JobState(word))
        else:
            raise _unreadable(text, f"{part.strip()[:40]!r} is neither a number nor a state")
        if ranges and ranges[-1][0] > ranges[-1][1]:
            raise _unreadable(text, f"{part.strip()} goes backwards")
    return Reference(found[1], tuple(ranges), tuple(states))


def _unreadable(text: str, why: str) -> Rejected:
    return Rejected(
        Code.BAD_REQUEST,
        f"{text[:60]!r} cannot be read: {why}.",
        "Write parts of an array as 8[3], 8[12-49], 8[1,5-9] or 8[failed].",
    )
