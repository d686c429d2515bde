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
from allotment.core.request import Request, total_of
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
    candidates = _candidates(cluster, waiting, now)
    if not candidates:
        return None
    shape = waiting.shape
    requests = shape.requests
    total = total_of(requests)
    with Trial(cluster) as trial:
        dropped = [trial.drop(gang.id) for gang in candidates]
        due = entitle(cluster, shape.tenant, total, preemptible=shape.preemptible)
        if due is None:
            return None
        # First by numbers alone: a place is found around those who can stay.
        mark = trial.mark()
        gone = _by_numbers(trial, dropped, requests)
        slots = trial.find(requests)
        if slots is not None:
            return Turn(slots, due, gone)
        # The numbers suffice, but not where one task needs it together.
        trial.rollback(mark)
        slots = trial.find(requests)
        return None if slots is None else Turn(slots, due, let_off(trial, dropped, slots))


def _by_numbers(
    trial: Trial, dropped: list[Gang], requests: tuple[Request, ...]
) -> tuple[JobId, ...]:
    """Bring back, best-ranked first, whom the numbers of free devices allow to stay."""
    ledger = trial.cluster.ledger
    gone: list[JobId] = []
    for gang in reversed(dropped):
        mark = trial.mark()
        trial.restore(gang)
        if not ledger.may_hold(requests):
            trial.rollback(mark)
            gone.append(gang.id)
    return tuple(reversed(gone))


def _candidates(cluster: Cluster, waiting: Standing, now: Instant) -> list[Gang]:
    """Give just enough gangs, those who leave anyway first; none when all are not enough."""
    running = cluster.running
    assert running is not None, "turns are taken only where an order of gangs is kept"
    missing = waiting.gpu_milli - cluster.ledger.whole_free * DEVICE
    for gang in cluster.leaving.values():
        missing -= gang.held().gpu_milli
    worse: list[Gang] = []
    promised: set[JobId] | None = None
    for job in running.worst_first(cluster.pending.key(waiting.id), now):
        if worse and missing <= 0:
            break
        if promised is None:
            promised = {job for r in cluster.reservations.values() for job in r.victims}
        gang = cluster.gangs[job]
        if gang.leaving or gang.suspended or job in promised:
            continue
        if gang.tenant == waiting.shape.tenant:
            worse.append(gang)
            missing -= gang.held().gpu_milli
    if not worse or missing > 0:
        return []
    return [gang for _, gang in sorted(cluster.leaving.items())] + worse
