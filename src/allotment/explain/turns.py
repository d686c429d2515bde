"""When it is the turn of a suspended gang again, where the gangs of its queue take turns."""

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.slices import line_of, slice_end
from allotment.explain.cell_words import listed
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import Blocked, Reason


def next_turn(cluster: Cluster, gang: Gang, now: Instant) -> Blocked | None:
    """Return when it is the turn of a gang again; None where that is not all it waits for."""
    line = line_of(gang.standing.shape)
    slice_ms = cluster.slices.get(line)
    if slice_ms is None:
        return None
    own = {(slot.node, index) for slot in gang.slots for index in slot.devices}
    there = [
        other
        for other in cluster.gangs.values()
        if other is not gang
        and own & {(slot.node, index) for slot in other.slots for index in slot.devices}
    ]
    holders = [other for other in there if not other.suspended]
    ends = [slice_end(cluster.slices, other) for other in holders]
    taking = all(
        line_of(other.standing.shape) == line and other.priority <= gang.priority
        for other in holders
    )
    if not holders or not taking:
        return None
    waited = (-gang.priority, gang.suspended_at or now, gang.id)
    before = sum(
        other.standing.weight
        for other in there
        if other.suspended
        and other.wants_resume
        and (-other.priority, other.suspended_at or now, other.id) < waited
    )
    last = max(now if end is None else max(now, end) for end in ends)
    at = Instant(last + before * slice_ms)
    weighs = any(each.standing.weight > 1 for each in there) or gang.standing.weight > 1
    times = f", times their weight (its own: {gang.standing.weight})" if weighs else ""
    named = sorted(holders, key=lambda each: each.id)
    names = listed([f"job {each.id}{_weight(each) if weighs else ''}" for each in named])
    return Blocked(
        Reason.RESUMING,
        f"It is suspended: the jobs of queue {line[1]} take turns of {show_millis(slice_ms)}"
        f"{times}, and it is the turn of {names} on its devices. It runs again in about "
        f"{show_millis(max(0, at - now))}.",
    )


def _weight(gang: Gang) -> str:
    return f" (weight {gang.standing.weight})"
