"""Gangs of queues that are sliced, by when they have had their time slice.

A stint begins when a gang gets to run on its devices, first or again after it was suspended.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from allotment.core.book import Book
from allotment.core.gang import Gang
from allotment.core.slices import SWITCHES, Slices, line_of, may_pause, slice_end
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Instant
from allotment.model.spec import GiveWay

Line = tuple[str, str]

Worth = Callable[[Gang, Instant], bool]
"""Whether a gang may be sent to another place: it loses little by it."""


class Stints(Book):
    """Running gangs in the order in which their time slices end."""

    def __init__(self, slices: Slices, packing: frozenset[Line] = frozenset()) -> None:
        """The gangs of the queues in `packing` are kept by their places, too."""
        self._slices, self._packing = slices, packing
        self.places: dict[tuple[Slot, ...], dict[JobId, Gang]] = {}
        self._place_of: dict[JobId, tuple[Slot, ...]] = {}
        """Where they were entered: a gang that is promoted may name other cells beside it."""
        self._ends: list[tuple[Instant, JobId]] = []
        self._later: list[tuple[Instant, JobId]] = []
        """When they may be sent away, too, if they have saved."""
        self._of: dict[JobId, tuple[Instant, Instant]] = {}

    def enter(self, gang: Gang) -> None:
        """Note a gang that runs; others have no stint."""
        end = None if gang.is_surplus else slice_end(self._slices, gang)
        if self._packing and self._packs(gang):
            self.places.setdefault(gang.slots, {})[gang.id] = gang
            self._place_of[gang.id] = gang.slots
        if end is not None:
            later = max(end, restart_from(gang))
            self._of[gang.id] = end, later
            insort(self._ends, (end, gang.id))
            insort(self._later, (later, gang.id))

    def leave(self, gang: Gang) -> None:
        """Remove a gang; it need not be there."""
        if gang.is_surplus:
            return
        place = self._place_of.pop(gang.id, None)
        if place is not None:
            del self.places[place][gang.id]
            if not self.places[place]:
                del self.places[place]
        moments = self._of.pop(gang.id, None)
        if moments is not None:
            for ends, at in zip((self._ends, self._later), moments, strict=True):
                del ends[bisect_left(ends, (at, gang.id))]

    def _packs(self, gang: Gang) -> bool:
        """Whether a gang may share its devices: they are all its own, and it takes turns.

        On a part of a device, jobs that were not asked would have one more beside them.
        """
        line = line_of(gang.standing.shape)
        pauses = line in self._packing and may_pause(gang) and not gang.is_surplus
        return pauses and takes_whole(gang)

    def over(self, now: Instant) -> Iterator[JobId]:
        """Return those that have had their slice, the earliest first."""
        return (job for _, job in self._ends[: _first_after(self._ends, now)])

    def any_over(self, now: Instant) -> bool:
        """Whether any has had its slice. O(1)."""
        return bool(self._ends) and self._ends[0][0] <= now

    def ended_between(self, then: Instant, now: Instant) -> bool:
        """Whether more may be preempted now than at a moment before. O(log n)."""
        return any(
            _first_after(ends, then) < _first_after(ends, now)
            for ends in (self._ends, self._later)
        )

    def next_end(self, now: Instant) -> Instant | None:
        """Return when more may be preempted than now."""
        places = ((ends, _first_after(ends, now)) for ends in (self._ends, self._later))
        return min((ends[at][0] for ends, at in places if at < len(ends)), default=None)


def _first_after(ends: list[tuple[Instant, JobId]], now: Instant) -> int:
    return bisect_right(ends, now, key=_moment)


def _moment(entry: tuple[Instant, JobId]) -> Instant:
    return entry[0]


def takes_whole(gang: Gang) -> bool:
    """Whether a gang has devices, and shares none of them."""
    return all(need.gpu_milli and not need.gpu_milli % DEVICE for need in gang.needs)


LEAST_KEPT = 10
"""A gang that lost more than a tenth of what it ran is not sent away again for turns."""


def restart_from(gang: Gang) -> Instant:
    """Return from when on a running gang ran so long that to start it anew is worth it."""
    standing = gang.standing
    return Instant((standing.since or gang.placed_at) + SWITCHES * standing.switch_ms)


def may_restart(gang: Gang, now: Instant) -> bool:
    """Whether a gang may be sent away, as it goes on from what it saved in this stint."""
    standing = gang.standing
    if standing.since is None or gang.on_eviction is GiveWay.CANCEL:
        return False
    return (
        gang.saved_at > standing.since
        and now >= restart_from(gang)
        and standing.lost_ms * LEAST_KEPT <= standing.served_ms
    )


def may_start_anew(gang: Gang, now: Instant) -> bool:
    """Whether a gang may be sent away, as it loses next to nothing.

    A suspended one has saved in this attempt, and would lose a tenth of what it ran at most if
    it did not save once more.
    """
    if gang.suspended_at is None:
        return may_restart(gang, now)
    standing, began = gang.standing, gang.placed_at + gang.standing.switch_ms
    unsaved = standing.lost_ms + max(0, gang.suspended_at - gang.saved_at)
    return (
        gang.on_eviction is not GiveWay.CANCEL
        and gang.saved_at > began
        and gang.suspended_at >= restart_from(gang)
        and unsaved * LEAST_KEPT <= standing.served_ms
    )
