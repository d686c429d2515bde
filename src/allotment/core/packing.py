"""Packing: two jobs that were chosen for each other share devices; others have their own.

Rule: a job whose partner has a place joins it there, whatever its own rank. Everybody else
comes to wholly free devices only, however small a part of one it asks for. At a turn two
jobs that share give way together, and not before a waiting job that ranks behind one of
them: the better of the two speaks for both.
"""

from collections.abc import Iterator

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.displacement import Turn
from allotment.core.entitle import entitle
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.ledger import Ledger
from allotment.core.plan import Evict, Place
from allotment.core.ports import Moving
from allotment.core.request import devices_of, needs_of, parts_of, total_of, whole
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Placement, Slot
from allotment.model.quantity import DEVICE, Instant, Resources


def everybody(cluster: Cluster) -> list[Standing]:
    """Return all jobs that wait or have a place, by their ids."""
    placed = [gang.standing for gang in cluster.gangs.values()]
    return sorted([*cluster.pending.all(), *placed], key=lambda job: job.id)


def joins(cluster: Cluster, now: Instant) -> Iterator[Place | Evict]:
    """Propose who joins a partner that has a place. O(placed jobs)."""
    if cluster.policies.packing is None:
        return
    for job in sorted(cluster.gangs.keys() | cluster.reserved.keys()):
        yield from join(cluster, job, now)


def join(cluster: Cluster, job: JobId, now: Instant) -> Iterator[Place | Evict]:
    """Propose that the partner of a job with a place joins it, if that partner waits."""
    packing = cluster.policies.packing
    partner = packing.partner(job) if packing is not None else None
    if partner is None or partner not in cluster.pending or partner in cluster.reserved:
        return
    waiting = cluster.pending[partner]
    shape = waiting.shape
    total = total_of(shape.requests)
    due = entitle(cluster, shape.tenant, total, preemptible=shape.preemptible)
    if due is None or capped_out(cluster, shape):
        return
    needs = needs_of(shape.requests)
    gang, promise = cluster.gangs.get(job), cluster.reserved.get(job)
    if promise is not None:
        slots = promise.slots
        awaited = tuple(j for j in promise.victims if j in cluster.gangs and j != job)
        if cluster.barred(partner, slots, now):
            return
        if awaited:
            yield Evict(ReservedPlace(partner, slots, needs, due, awaited), ())
            return
    elif gang is None or gang.leaving or gang.suspended:
        return
    else:
        slots = gang.slots
    if _beside(cluster, slots, needs) and not cluster.barred(partner, slots, now):
        yield Place(Placement(partner, slots, due))


def _beside(cluster: Cluster, slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> bool:
    """Whether there is room for such tasks on just these devices."""
    return len(slots) == len(needs) and all(
        cluster.ledger.free_milli(slot.node, index) * len(slot.devices) >= need.gpu_milli
        for slot, need in zip(slots, needs, strict=True)
        for index in slot.devices
    )


class _Unshared:
    """Devices as they look to two partners, who do not mind each other."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def type_of(self, node: NodeId, index: int) -> str:
        return self._ledger.type_of(node, index)

    def free_milli(self, node: NodeId, index: int) -> int:  # noqa: ARG002 - the protocol's
        return DEVICE


def place_by_partner(
    cluster: Cluster, gang: Gang, partner: Gang, moving: Moving
) -> tuple[Slot, ...] | None:
    """Find where a running gang goes because of a partner that runs; None if it stays.

    It joins the partner, unless that is better off here; together they look for better
    devices, of which the one who finds them takes its part first, and the other follows.
    """
    if partner.leaving or partner.suspended or partner.id in cluster.reserved:
        return None
    devices = _Unshared(cluster.ledger)
    if partner.slots == gang.slots:
        if moving.content(gang, devices):
            return None
        slots = cluster.find(gang.requests)
        return slots if slots is not None and moving.better(gang, slots, devices) else None
    stays = moving.better(partner, gang.slots, devices)
    return partner.slots if not stays and _beside(cluster, partner.slots, gang.needs) else None


def displace_pairs(cluster: Cluster, waiting: Standing, now: Instant) -> Turn | None:
    """Find whose turn is over so that a waiting job gets devices; None if nobody's is.

    From the worst-ranked on, one pair or single job at a time, until there is room; then
    whoever turned out not to be in the way is let off. O(gangs · search).
    """
    shape, ledger = waiting.shape, cluster.ledger
    asked = whole(shape.requests)
    with Trial(cluster) as trial:
        dropped: list[tuple[Gang, ...]] = []
        dropped += [(trial.drop(job),) for job in sorted(cluster.leaving)]
        for job in sorted(cluster.parting):
            trial.let_part(job)
        slots: tuple[Slot, ...] | None = None
        for unit in _behind(cluster, waiting, now):
            dropped.append(tuple(trial.drop(gang.id) for gang in unit))
            if devices_of(asked) <= ledger.whole_free and (slots := trial.find(asked)):
                break
        due = entitle(cluster, shape.tenant, total_of(asked), preemptible=shape.preemptible)
        if slots is None or due is None:
            return None
        place = parts_of(slots, needs_of(shape.requests))
        return Turn(place, due, _in_the_way(trial, dropped, slots))


def _in_the_way(
    trial: Trial, dropped: list[tuple[Gang, ...]], slots: tuple[Slot, ...]
) -> tuple[JobId, ...]:
    """Bring back, best-ranked first, everybody the found place can do without."""
    needed: list[JobId] = []
    for unit in reversed(dropped):
        mark = trial.mark()
        for gang in unit:
            trial.restore(gang)
        if not trial.cluster.ledger.settled(slots):
            trial.rollback(mark)
            needed += [gang.id for gang in unit]
    return tuple(needed)


def _behind(cluster: Cluster, waiting: Standing, now: Instant) -> list[tuple[Gang, ...]]:
    """Return pairs and single jobs all of whom rank behind, worst first."""
    running = cluster.running
    assert running is not None, "turns are taken only where an order of gangs is kept"
    after = cluster.pending.key(waiting.id)
    promised = {job for r in cluster.reserved.values() for job in r.victims}
    units: dict[tuple[Slot, ...], tuple[Gang, ...]] = {}
    for gang in cluster.gangs.values():
        units[gang.slots] = (*units.get(gang.slots, ()), gang)
    worst_first = dict.fromkeys(
        cluster.gangs[job].slots for job in running.worst_first(after, now)
    )
    return [
        units[slots]
        for slots in worst_first
        if all(
            not (gang.leaving or gang.suspended or gang.id in promised)
            and gang.tenant == waiting.shape.tenant
            and running.key(gang.id, now) > after
            for gang in units[slots]
        )
    ]
