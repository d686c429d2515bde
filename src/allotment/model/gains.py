"""What gangs gain by a move: how fast they were, are expected to be, and are.

A rate is steps an hour, as the job tells of its steps. It is compared only with other rates of
the same job.
"""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import MINUTE, SECOND, Instant, Millis

MOST_RATE = 2**53
"""No rate is larger: programs that read JSON keep it whole, and snapshots can be written."""
LEAST_KEPT, OF_RATE = 19, 20
"""A job is worse off if it keeps less than so many parts of its rate: no reading is exact."""


ON_MANY_MILLI = 850
"""What a gang on several nodes has of its speed on one, in thousandths, unless it was measured.

Two devices on two nodes had 0.85 of the speed of two on one: Jeon et al., ATC 2019.
"""
OF_GROWTH = 4
"""A growth is kept if it brings one part in so many of what was expected, or more."""


class MoveFor(StrEnum):
    """For what a gang leaves for a place of its own."""

    TASKS = "tasks"
    """It gets more tasks where it is."""
    NEARER = "nearer"
    """Its tasks come closer together."""
    ROOM = "room"
    """It leaves a nearly empty node, which large gangs may have then."""
    IDLE = "idle"
    """Devices are idle there, and others take turns on its own."""
    BACK = "back"
    """It was faster where it was before."""


class Gain(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a gang that leaves for a place of its own is expected to gain."""

    tasks: int
    """How many it is expected to have there."""
    rate: int = 0
    """Its rate where it was; 0 where that was not measured. Of one that took turns, that part
    of it that its turns gave."""
    expected: int = 0
    """Its rate where it goes; 0 where that is not known."""
    cost_ms: Millis = Millis(0)
    """How long it is expected to do nothing, or to do again what was not saved."""
    why: MoveFor = MoveFor.TASKS

    def least(self, before: int, tasks: int) -> int:
        """Return what the rate must be, with so many tasks instead of those before.

        It may be below that by what is no more than chance (`is_worse`).
        """
        if self.why is not MoveFor.TASKS or tasks <= before:
            return self.rate
        more, asked = tasks - before, max(self.tasks, tasks) - before
        return self.rate + max(0, self.expected - self.rate) * more // asked // OF_GROWTH


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a move was found to have gained."""

    rate: int
    """Its rate since."""
    before: int
    kept: bool
    """Whether it is no slower; after a growth, whether its new tasks bring enough."""
    at: Instant
    expected: int = 0
    """What was expected; 0 where nothing was."""


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast an attempt was measured to be with so many tasks, and when."""

    tasks: int
    rate: int
    at: Instant
    ends_at: Instant = Instant(0)
    """When it will have done all its steps; 0 where it does not tell how many there are."""
    busy_milli: int = 0
    """How busy the busiest of its devices was then, in thousandths; 0 if that is not known."""


class Packing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a gang runs beside the one that has its devices, and what both gain by it."""

    beside: JobId
    at: Instant
    """When the service started."""
    alone: int
    """How fast it was alone, in steps an hour."""
    other_alone: int
    """How fast the other was."""
    expected_milli: int = 0
    """As `gain_milli`, as was predicted; 0 where nothing was known."""
    proven: bool = False
    """Whether the two were found to gain by it before."""
    gain_milli: int = 0
    """What both do at once of what they do by turns, in thousandths; 0 until measured."""
    noted_at: Instant = Instant(0)
    """When that was noted."""

    @property
    def try_ends(self) -> Instant | None:
        """Return when it ends if nothing is known of it by then; None where more is known."""
        known = self.proven or self.gain_milli
        return None if known else Instant(self.at + TRY_MS)


TRY_MS = 5 * MINUTE
"""A pair that has not told enough of its steps by then is parted."""
TRY_IN_TURN_MS = 20 * SECOND
"""A pair that its turn parts was tried if it had so long: twice what measuring takes."""
PARTS_OF_TURN = 3
"""Where gangs take turns, a third of a turn is enough: else none would ever be measured."""


class Gauge(msgspec.Struct, frozen=True):
    """How fast a placed gang was measured to be, now and before."""

    most: int = 0
    """To how many tasks it may grow; 0 in a queue whose gangs do not."""
    pace: Pace | None = None
    """Its pace in this attempt."""
    rates: tuple[tuple[int, int], ...] = ()
    """The newest rate of the job with each number of tasks."""
    moved_at: Instant = Instant(0)
    """When it left for a place of its own last."""
    stays: bool = False
    """Whether it stays where it is: moves did it no good, or did not come off."""
    is_grown: bool = False
    """Whether it grows no more: that did it no good, or did not come off."""
    together: tuple[JobId, ...] = ()
    """Beside which jobs it was found to do better than by turns."""
    apart: tuple[JobId, ...] = ()
    """Beside which it or the other was found to do worse, or that could not be told."""
    on_nodes: tuple[tuple[int, int], ...] = ()
    """Its newest rate on each number of nodes, with as many tasks as it has now."""
    back: tuple[Slot, ...] = ()
    """Its place before this one, if it was faster there and did not go back to one yet."""
    back_rate: int = 0
    """Its rate there."""

    def rate_with(self, tasks: int) -> int:
        """Return what the rate would be with so many tasks: in proportion, or as was measured.

        Between and beyond two numbers of tasks it lies on the line through the nearest two.
        """
        known = dict(self.rates)
        if tasks in known or not known:
            return known.get(tasks, 0)
        near = sorted(known, key=lambda count: (abs(count - tasks), count))[:2]
        one, other = near[0], near[-1]
        if one == other:
            return min(MOST_RATE, known[one] * tasks // one)
        slope = known[other] - known[one]
        return min(MOST_RATE, max(0, known[one] + slope * (tasks - one) // (other - one)))


BY_TURNS = 1000
"""What two gangs do by turns: half of what each does alone, summed up in thousandths."""


def together(rate: int, alone: int, other: int, other_alone: int) -> int:
    """Return what two gangs do at once of what they do by turns, in thousandths.

    That is twice as much at most: one that is faster than it was alone could be so alone now.
    """
    mine = rate * BY_TURNS // max(alone, rate)
    return mine + other * BY_TURNS // max(other_alone, other)


def beats_turns(rate: int, alone: int, other: int, other_alone: int) -> bool:
    """Whether two gangs do more at once than by turns, and neither less than by its turns."""
    return is_more_than_turns(together(rate, alone, other, other_alone)) and not (
        is_worse(2 * rate, alone) or is_worse(2 * other, other_alone)
    )


def is_more_than_turns(gain_milli: int) -> bool:
    """Whether two gangs do so much more at once than by turns that it cannot be by chance."""
    return gain_milli * LEAST_KEPT >= BY_TURNS * OF_RATE


def expected_together(busy_milli: int, other_milli: int) -> int:
    """Return what two gangs would do at once, if each went on where devices have time left.

    That is as much as can be: they also share caches and links. 0 where one was not measured.
    """
    if not busy_milli or not other_milli:
        return 0
    return 2 * BY_TURNS * 1000 // max(1000, busy_milli + other_milli)


def is_worse(rate: int, before: int) -> bool:
    """Whether a rate is so far below another that it cannot be by chance."""
    return rate * OF_RATE < before * LEAST_KEPT
