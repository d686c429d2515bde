"""What the tables of several batch systems are made of: readers of one value into the draft."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from allotment.model.spec import GiveWay
from allotment.wire.batch.draft import Draft
from allotment.wire.batch.options import Option, Read, Takes, refused, without_effect
from allotment.wire.labels import LONGEST_VALUE
from allotment.wire.labels import read_value as read_label

ONE_SIZE = "asks for a whole node; a job here must name its amounts"
NO_TUNING = without_effect("machines are not tuned for a job")
NO_MAIL = without_effect("no mail is sent")


def sets(field: str, read: Callable[[str], Any], *variables: str) -> Read:
    """Return a reader of a value into a field of the draft, and into variables of its job."""

    def reader(draft: Draft, value: str) -> None:
        found = read(value)
        setattr(draft, field, found)
        draft.variables |= dict.fromkeys(variables, str(found))

    return reader


def hold(draft: Draft, value: str) -> None:
    """Submit the job held."""
    draft.is_held = True


def wait(draft: Draft, value: str) -> None:
    """Wait for the end of the job."""
    draft.waits = True


def requeue(draft: Draft, value: str) -> None:
    """Queue the job again after an eviction, where its tenant wants that."""
    draft.on_eviction = GiveWay.AS_TENANT


def no_requeue(draft: Draft, value: str) -> str:
    """End the job with its eviction."""
    draft.on_eviction = GiveWay.CANCEL
    return "it ends when it is evicted; after the loss of its machine it is tried again"


def label(key: str) -> Read:
    """Read a text for people into a label, cut where it is too long."""

    def reader(draft: Draft, value: str) -> str | None:
        text = " ".join(value.split())
        draft.labels[key] = read_label(text[:LONGEST_VALUE].strip())
        is_cut = len(text) > LONGEST_VALUE
        return f"is cut to {LONGEST_VALUE} characters" if is_cut else None

    return reader


def no(name: str, why: str, short: str = "", takes: Takes = Takes.VALUE) -> Option:
    """Return the row of an option that is refused, unless its user has it ignored."""
    return Option(name, refused(why, f"or submit it with --ignore {name}"), "", short, takes)


def step_of(indices: Sequence[int]) -> int:
    """Return how far apart the indices of an array lie; 1 where that differs."""
    steps = {b - a for a, b in pairwise(indices)}
    return steps.pop() if len(steps) == 1 else 1
