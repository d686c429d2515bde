"""Taking turns: a waiting job takes the place of gangs of its tenant that rank behind it.

Rule: from the worst-ranked gang on, one whole gang at a time, until there is room; then
whoever turned out not to be in the way is let off, best-ranked first. The outcome is that
of dealing the devices out anew to all jobs in order, leaving out whoever does not fit, at
the cost of looking only at those who must go. No two jobs can chase each other at one
moment: a job displaces only such as rank behind it, and ranks are a total order.
"""

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.entitle import entitle
from allotment.core.gang import Gang, Standing
from allotment.core.preemption import let_off
from allotment.core.request import Request, devices_of, total_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant


class Turn(msgspec.Struct, frozen=True):
    """A place, on what grounds, and those whose turn is over."""

    slots: tuple[Slot, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]


def displace(cluster: Cluster, waiting: Standing, now: Instant) -> Turn | None:
    """Find whose turn is over so that a waiting job gets its own; None if nobody's is."""
    candidates = _candidates(cluster, waiting, now)
    if not candidates:
        return None
    requests = waiting.shape.requests
    gone = _by_numbers(cluster, candidates, requests)
    with Trial(cluster) as trial:
        # First by numbers alone: a place is found around those who can stay.
        for gang in gone:
            trial.drop(gang.id)
        due = _due(cluster, waiting)
        slots = trial.find(requests) if due is not None else None
        if due is not None and slots is not None:
            return Turn(slots, due, tuple(gang.id for gang in gone))
        # The numbers suffice, but not where one task needs it together.
        dropped = [trial.drop(g.id) if g.id in cluster.gangs else g for g in candidates]
        due = _due(cluster, waiting)
        slots = trial.find(requests) if due is not None else None
        if due is None or slots is None:
            return None
        return Turn(slots, due, let_off(trial, dropped, slots))


def _due(cluster: Cluster, waiting: Standing) -> Entitlement | None:
    shape = waiting.shape
    need = total_of(shape.requests)
    return entitle(cluster, shape.tenant, need, preemptible=shape.preemptible)


def _by_numbers(
    cluster: Cluster, candidates: list[Gang], requests: tuple[Request, ...]
) -> list[Gang]:
    """Say who must go, worst first, if only the numbers of whole free devices counted."""
    spare = cluster.ledger.whole_free - devices_of(requests)
    spare += sum(devices_of(gang.requests) for gang in candidates)
    gone: list[Gang] = []
    for gang in reversed(candidates):
        devices = devices_of(gang.requests)
        if devices <= spare:
            spare -= devices
        else:
            gone.append(gang)
    gone.reverse()
    return gone


def _candidates(cluster: Cluster, waiting: Standing, now: Instant) -> list[Gang]:
    """Give just enough gangs, those who leave anyway first; none when all are not enough."""
    running = cluster.running
    assert running is not None, "turns are taken only where an order of gangs is kept"
    place = cluster.pending.key(waiting.id)
    missing = waiting.gpu_milli - (cluster.ledger.whole_free + _coming_free(cluster)) * DEVICE
    worse: list[Gang] = []
    promised: set[JobId] | None = None
    for job in running.worst_first(place, now):
        if worse and missing <= 0:
            break
        if promised is None:
            promised = {job for r in cluster.reservations.values() for job in r.victims}
            if any(_comes_before(cluster, victim, waiting, now) for victim in promised):
                return []
        gang = cluster.gangs[job]
        if gang.leaving or gang.suspended or job in promised:
            continue
        if gang.tenant == waiting.shape.tenant:
            worse.append(gang)
            missing -= gang.held().gpu_milli
    if not worse or missing > 0:
        return []
    return [gang for _, gang in sorted(cluster.leaving.items())] + worse


def _coming_free(cluster: Cluster) -> int:
    """Count the devices that those who leave will free, and that are promised to nobody."""
    freed: dict[tuple[NodeId, int], int] = {}
    for gang in cluster.leaving.values():
        for slot in () if gang.suspended else gang.slots:
            for index in slot.devices:
                each = slot.gpu_milli // len(slot.devices)
                freed[slot.node, index] = freed.get((slot.node, index), 0) + each
    books = cluster.ledger.books
    return sum(
        books[node].device_milli[index] + milli == DEVICE
        for (node, index), milli in freed.items()
    )


def _comes_before(cluster: Cluster, victim: JobId, waiting: Standing, now: Instant) -> bool:
    """Tell whether a gang that was sent away will stand in line before a job.

    Then the job waits until it is gone: what it leaves may be its own again.
    """
    gang, running = cluster.gangs.get(victim), cluster.running
    return (
        gang is not None
        and running is not None
        and gang.tenant == waiting.shape.tenant
        and running.key(victim, now) < cluster.pending.key(waiting.id)
    )
