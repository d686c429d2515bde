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
from allotment.core.request import total_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant


class Turn(msgspec.Struct, frozen=True):
    """A place, on what grounds, and those whose turn is over."""

    slots: tuple[Slot, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]


def displace(cluster: Cluster, waiting: Standing, now: Instant) -> Turn | None:
    """Find whose turn is over so that a waiting job gets its own; None if nobody's is."""
    shape = waiting.shape
    total = total_of(shape.requests)
    candidates = _candidates(cluster, waiting, total.gpu_milli, now)
    if not candidates:
        return None
    with Trial(cluster) as trial:
        dropped: list[Gang] = []
        for gang in candidates:
            dropped.append(trial.drop(gang.id))
            if not cluster.ledger.may_hold(shape.requests):
                continue
            due = entitle(cluster, shape.tenant, total, preemptible=shape.preemptible)
            if due is not None and (slots := trial.find(shape.requests)) is not None:
                return Turn(slots, due, let_off(trial, dropped, slots))
    return None


def _candidates(
    cluster: Cluster, waiting: Standing, wanted_milli: int, now: Instant
) -> list[Gang]:
    """Give just enough gangs, those who leave anyway first; none when all are not enough."""
    running = cluster.running
    assert running is not None, "turns are taken only where an order of gangs is kept"
    found = [gang for _, gang in sorted(cluster.leaving.items())]
    missing = wanted_milli - cluster.ledger.whole_free * DEVICE
    missing -= sum(gang.held().gpu_milli for gang in found)
    promised = {job for r in cluster.reservations.values() for job in r.victims}
    worse: list[Gang] = []
    for job in running.worst_first(cluster.pending.key(waiting.id), now):
        gang = cluster.gangs[job]
        if gang.leaving or gang.suspended or job in promised:
            continue
        if gang.tenant == waiting.shape.tenant:
            worse.append(gang)
            missing -= gang.held().gpu_milli
    return found + worse if worse and missing <= 0 else []
