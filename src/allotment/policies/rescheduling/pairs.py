"""Packing: two jobs that were chosen for each other share devices; others have their own.

Rule: a job whose partner has a place joins it there, whatever its own rank. Every other
comes to wholly free devices only, however small a part of one it asks for. At a turn two
jobs that share give way together, and not before a waiting job that ranks behind one of
them: the better of the two speaks for both.
"""

from collections.abc import Iterator

import msgspec

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.ledger import Ledger
from allotment.core.plan import Evict, Place, PreemptionPlan
from allotment.core.preemption.search import awaited, leaving, search
from allotment.core.request import demand_of, devices_of, needs_of, parts_of, whole
from allotment.core.sharing import entitle, entitle_shape
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
from allotment.model.quantity import DEVICE, Instant, Resources
from allotment.policies.rescheduling.displacing import is_guaranteed
from allotment.policies.rescheduling.ports import Moving, Packing
from allotment.policies.rescheduling.running import Running


def join(
    cluster: Cluster, packing: Packing, job: JobId, now: Instant
) -> Iterator[Place | Evict]:
    """Propose that the partner of a job with a place joins it, if that partner waits."""
    partner = packing.partner(job)
    if partner is None or partner not in cluster.pending or partner in cluster.reserved:
        return
    waiting = cluster.pending[partner]
    shape = waiting.shape
    entitled = entitle_shape(cluster, shape)
    if entitled is None or capped_out(cluster, shape):
        return
    needs = needs_of(shape.requests)
    gang, reserved = cluster.gangs.get(job), cluster.reserved.get(job)
    if reserved is not None:
        slots = reserved.slots
        awaited = tuple(j for j in reserved.victims if j in cluster.gangs and j != job)
        if cluster.barred(partner, slots, now):
            return
        if awaited:
            yield Evict(ReservedPlace(partner, slots, needs, entitled, awaited), ())
            return
    elif gang is None or gang.leaving or gang.suspended:
        return
    else:
        slots = gang.slots
    if _beside(cluster, slots, needs) and not cluster.barred(partner, slots, now):
        yield Place(Placement(partner, slots, entitled))


def _beside(cluster: Cluster, slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> bool:
    """Whether there is room for such tasks on just these devices."""
    return len(slots) == len(needs) and all(
        cluster.ledger.free_milli(slot.node, index) * len(slot.devices) >= need.gpu_milli
        for slot, need in zip(slots, needs, strict=True)
        for index in slot.devices
    )


class _Unshared:
    """Devices as they look to two partners, which do not mind each other."""

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
    devices, of which the one that finds them takes its part first, and the other follows.
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


def displace_pairs(
    cluster: Cluster, order: Running, waiting: Standing, now: Instant
) -> PreemptionPlan | None:
    """Find the gangs whose turn is over so that a waiting job gets devices; None if none is.

    From the worst-ranked on, one pair or single job at a time: the two of a pair share devices,
    and the job wants whole ones. O(gangs · search).
    """
    shape, ledger = waiting.shape, cluster.ledger
    asked = whole(shape.requests)
    total = demand_of(asked)
    with Trial(cluster) as trial:
        trial.let_all_part()

        units = _behind(cluster, order, waiting, now)
        entitled: Entitlement | None = None

        def halved() -> bool:
            """Whether one of a pair is gone, and the other is not."""
            there = (sum(gang.id in cluster.gangs for gang in unit) for unit in units)
            return any(0 < n < len(unit) for n, unit in zip(there, units, strict=True))

        def fits() -> PreemptionPlan | None:
            nonlocal entitled
            if entitled is not None:
                return None  # The first place is kept: what is not in its way stays.
            enough = devices_of(asked) <= ledger.whole_free and not halved()
            slots = cluster.find(asked) if enough else None
            if slots is None:
                return None
            entitled = entitle(cluster, shape.tenant, total, preemptible=shape.preemptible)
            return PreemptionPlan(slots, needs_of(asked))

        candidates = [(gang, 0) for unit in units for gang in unit]
        plan = search(trial, candidates, fits, going=leaving(cluster))
    if plan is None or entitled is None:
        return None
    if entitled is not Entitlement.GUARANTEED and is_guaranteed(cluster, plan.evict):
        return None  # What its tenant is guaranteed stays, as in `displacing.py`.
    part = needs_of(shape.requests)
    units = [*([gang] for _, gang in sorted(cluster.placed.leaving.items())), *units]
    evict = [gang.id for unit in reversed(units) for gang in unit if gang.id in plan.evict]
    return msgspec.structs.replace(
        plan,
        slots=parts_of(plan.slots, part),
        needs=part,
        entitlement=entitled,
        evict=tuple(evict),
    )


def _behind(
    cluster: Cluster, order: Running, waiting: Standing, now: Instant
) -> list[list[Gang]]:
    """Return pairs and single jobs that all rank behind, worst first."""
    after = cluster.pending.key(waiting.id)
    going = awaited(cluster)
    units: dict[tuple[Slot, ...], list[Gang]] = {}
    for gang in cluster.gangs.values():
        units.setdefault(gang.slots, []).append(gang)
    worst_first = dict.fromkeys(
        cluster.gangs[job].slots for job in order.worst_first(after, now)
    )
    return [
        units[slots]
        for slots in worst_first
        if all(
            not (gang.leaving or gang.suspended or gang.id in going)
            and gang.tenant == waiting.shape.tenant
            and order.key(gang.id, now) > after
            for gang in units[slots]
        )
    ]
