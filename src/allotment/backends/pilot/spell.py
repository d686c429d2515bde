"""For how long a node may be held, beside Slurm's reservations. Pure: time comes in."""

import msgspec

from allotment.backends.slurm.reservations import Calendar, Holder
from allotment.model.errors import BackendError
from allotment.model.quantity import WallTime

LEAST_MIN = 5
"""For less than this a node is not held: it takes a while to be of use."""
SPARE_MIN = 1
"""A pilot that is submitted now may begin so much later, and Slurm starts none that could
reach into a reservation then."""


class Spell(msgspec.Struct, frozen=True):
    """What holding a node now would be: options of `sbatch`, or why it may not be."""

    options: tuple[str, ...] = ()
    shut: str = ""


def spell_of(node: str, calendar: Calendar, usual_min: int | None, now: WallTime) -> Spell:
    """Return how a node may be held from now on. A pilot's usual limit is in minutes."""
    named = calendar.named([node], Holder(calendar.user), now)
    try:
        left = calendar.minutes([node], named, now)
    except BackendError as error:
        return Spell(shut=str(error))
    options = (f"--reservation={named}",) if named else ()
    if left is None or (usual_min is not None and usual_min <= left):
        return Spell(options)
    if left < LEAST_MIN + SPARE_MIN:
        bound = calendar.bound([node], named, now)
        name = bound[1] if bound else ""
        return Spell(shut=f"Slurm's reservation {name} is near: it is not held before")
    return Spell((*options, f"--time={left - SPARE_MIN}"))
