"""How often each part of the hardware was suspected of late, healthy or not by now.

Counted is what was believed: each time that automatic means made a part suspect or bad, or
would have. What the jobs of one user say alone is not.
"""

from collections.abc import Iterable

import msgspec

from allotment.model.health import WHOLE, Part
from allotment.model.ids import NodeId
from allotment.model.quantity import DAY, Instant

KEPT_MS = 30 * DAY
MOST_KEPT = 100
"""Of one part."""
OFTEN = 3
"""A part that was suspected so often is shown, healthy or not."""

Times = tuple[Instant, ...]


class Suspected(msgspec.Struct, frozen=True):
    """When a part was suspected, as it is kept in a snapshot."""

    node: NodeId
    place: int
    times: Times


class Suspicions:
    """When each part was suspected, by node and place."""

    def __init__(self, kept: Iterable[Suspected] = ()) -> None:
        self._times: dict[NodeId, dict[int, Times]] = {}
        for each in kept:
            self._times.setdefault(each.node, {})[each.place] = each.times

    def add(self, part: Part, now: Instant) -> None:
        """Take note that a part is suspected."""
        places = self._times.setdefault(part[0], {})
        recent = (at for at in places.get(part[1], ()) if at > now - KEPT_MS)
        places[part[1]] = (*recent, now)[-MOST_KEPT:]

    def of(self, part: Part, now: Instant) -> int:
        """Count how often a part was suspected in the last 30 days.

        A node is so when any of its devices is; what came at once counts once.
        """
        places = self._times.get(part[0], {})
        those = places if part[1] == WHOLE else [part[1]]
        times = {at for place in those for at in places.get(place, ())}
        return sum(at > now - KEPT_MS for at in times)

    def parts(self) -> list[Part]:
        """List the parts that were suspected, in order."""
        return [
            (node, place) for node in sorted(self._times) for place in sorted(self._times[node])
        ]

    def keep_only(self, parts: set[Part]) -> None:
        """Forget the others: they are no longer in the configuration."""
        self.__init__(each for each in self.all() if (each.node, each.place) in parts)

    def all(self) -> list[Suspected]:
        """Return all that is kept, in order."""
        return [
            Suspected(node, place, self._times[node][place]) for node, place in self.parts()
        ]
