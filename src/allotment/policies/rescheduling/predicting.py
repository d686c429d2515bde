"""What a gang is expected to gain by a move, and whether that pays.

Rule: on another number of nodes a gang has the rate that it was measured to have there with as
many tasks; from several nodes to one, where that was not measured, the rate that gangs had on
the mean (`ON_MANY_MILLI`). On devices on which no other gang has turns, it has all of its rate,
not just that part which its turns gave. A move pays if the time that it saves is three times
its cost; only the next two hours count, or as long as the job still takes. What cannot be
predicted is found out by trying.

Source: three times the cost is ours: it stands for what a prediction does not know.

Bad at: a job whose steps become longer or shorter as it goes on.
"""

from collections.abc import Sequence

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.model.gains import ON_MANY_MILLI, Gain, Gauge, MoveFor, Pace, is_worse
from allotment.model.ledger import Slot
from allotment.model.quantity import HOUR, Instant, Millis

WORTH = 3
"""So many times its cost a move is to gain."""
FURTHEST = 2 * HOUR
"""What is gained later than that does not count: until then much may come between."""


def by_moving(gang: Gang, slots: Sequence[Slot], why: MoveFor, now: Instant) -> Gain | None:
    """Return what a gang gains by going to a place; None where its rate is not known."""
    gauge, pace = gang.gauge, _pace(gang)
    if gauge is None or pace is None:
        return None
    if why is MoveFor.BACK:
        expected = gauge.back_rate
    else:
        expected = _on(gauge, pace, node_count(gang.slots), node_count(slots))
    return Gain(len(slots), pace.rate, expected, _cost(gang, now), why)


def by_leaving_turns(cluster: Cluster, gang: Gang, now: Instant) -> Gain | None:
    """Return what a suspended gang gains by having devices of its own. O(gangs)."""
    pace, place = _pace(gang), _devices(gang)
    if pace is None:
        return None
    sharing = (
        each.standing.weight
        for each in cluster.gangs.values()
        if each is gang or not (each.leaving or place.isdisjoint(_devices(each)))
    )
    by_turns = pace.rate * gang.standing.weight // sum(sharing)
    return Gain(len(gang.slots), by_turns, pace.rate, _cost(gang, now), MoveFor.IDLE)


def pays(gang: Gang, gain: Gain | None, now: Instant, *, save_when_told: bool) -> bool:
    """Whether a move is expected to gain enough, as far as that can be told.

    Where jobs `save_when_told`, a restart costs them no work that is not saved.
    """
    if gain is None or not (gain.rate and gain.expected):
        return True
    if not is_worse(gain.rate, gain.expected):
        return False
    cost = gang.standing.switch_ms if save_when_told else gain.cost_ms
    return time_saved(gang, gain.rate, gain.expected, now) >= WORTH * cost


def time_saved(gang: Gang, rate: int, expected: int, now: Instant) -> int:
    """Return how much sooner a gang is done at a rate than at another; 0 if it is no faster.

    One that does not tell when it ends is taken to run for as long again as it has.
    """
    if expected <= rate:
        return 0
    pace = _pace(gang)
    ends_at = pace.ends_at if pace is not None else 0
    left = ends_at - now if ends_at else now - gang.placed_at
    left = min(max(0, left), FURTHEST)
    return left - left * rate // expected


def node_count(slots: Sequence[Slot]) -> int:
    """Return on how many nodes a place is."""
    return len({slot.node for slot in slots})


def _pace(gang: Gang) -> Pace | None:
    """Return how fast a gang is with the tasks that it has, if that is known."""
    pace = gang.gauge.pace if gang.gauge is not None else None
    known = pace is not None and pace.rate and pace.tasks == len(gang.slots)
    return pace if known else None


def _on(gauge: Gauge, pace: Pace, here: int, there: int) -> int:
    """Return the rate on another number of nodes; 0 where nothing is known of it."""
    if here == there:
        return pace.rate
    measured = dict(gauge.on_nodes).get(there, 0)
    if measured or there > 1:
        return measured
    return pace.rate * 1000 // ON_MANY_MILLI


def _cost(gang: Gang, now: Instant) -> Millis:
    """Return for how long a gang does nothing, or again what it had not saved."""
    return Millis(gang.standing.switch_ms + max(0, now - gang.saved_at))


def _devices(gang: Gang) -> set[tuple[int, int]]:
    return {(slot.node, index) for slot in gang.slots for index in slot.devices}
