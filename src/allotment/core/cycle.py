"""One scheduling cycle: proposals, each made on the live state as the one before left it.

The stages are numbered as in docs/scheduling.md. The engine commits each proposal, or
refuses it, before asking for the next; what is only thought of is undone by a trial.
"""

from functools import partial

from allotment.core.cluster import Cluster
from allotment.core.entitle import is_due, more_urgent
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.lending import kept_from_borrower
from allotment.core.molding import as_large
from allotment.core.places import Places
from allotment.core.plan import Decision, Place, Promote, Proposals, Resume, Unreserve
from allotment.core.policies import Rescheduler
from allotment.core.preemption.eviction import evict
from allotment.core.queue_pass import QueuePass
from allotment.core.resuming import WayBack
from allotment.core.trial import Trial
from allotment.model.ledger import Placement
from allotment.model.quantity import Instant


def proposals(cluster: Cluster, now: Instant) -> Proposals:
    """Yield, one by one, which gang starts, resumes, is promoted or must go."""
    # 1. Reserved places: hand over those whose last holder left; drop those on closed nodes.
    if cluster.reserved:
        yield from _use_reserved_places(cluster, now)
    # 2. Promote borrowers whose tenant has room in its guarantee again.
    if cluster.placed.borrowers and _room_may_be_back(cluster):
        yield from _promote(cluster, now)
    # 3. Suspended gangs that should resume get their own devices first; those that take turns
    #    wait like jobs.
    if cluster.placed.resuming:
        yield from _resume(cluster, now)
    # 4. In order: what tenants are guaranteed, by eviction of borrowers if need be.
    # 5. In order: what is left, to those that may borrow.
    # 6. With a rescheduler: what else running gangs give up, before, between and after these.
    rescheduler = cluster.rescheduler
    if rescheduler is not None:
        yield from rescheduler.around(_queue_pass(cluster, now), now)
    elif len(cluster.pending) and not _in_vain(cluster):
        yield from _serve(cluster, now, None)


def _queue_pass(cluster: Cluster, now: Instant) -> Proposals:
    """Go through the queues where a rescheduler may lead gangs back, or displace some."""
    rescheduler = cluster.displaces(now)
    looks = len(cluster.pending) and (rescheduler is not None or not _in_vain(cluster))
    if cluster.placed.resuming or looks:
        yield from _serve(cluster, now, rescheduler)


def _serve(cluster: Cluster, now: Instant, rescheduler: Rescheduler | None) -> Proposals:
    places = Places(cluster, now, rescheduler)
    return QueuePass(cluster, now, places, partial(in_turn, places)).serve()


def in_turn(places: Places, gang: Gang) -> Decision | None:
    """Return what lets a suspended gang resume: others may be displaced for it."""
    back, rescheduler = WayBack(places.cluster, gang, places.now), places.rescheduler
    decision = back.decision()
    if decision is not None or rescheduler is None or not back.is_in_turn:
        return decision
    plan = rescheduler.plan(gang.standing, places.now)
    return None if plan is None else evict(places.cluster, gang.id, gang.pin, plan, places.now)


def _in_vain(cluster: Cluster) -> bool:
    """Whether it is plain that no job can start where none displaces others.

    All ask for more devices than are free, and no gang has to leave. Where nothing was
    given back since the last look, and no job holds up another, it is enough that this is
    so of all that came since.
    """
    if cluster.placed.leaving or cluster.queues.any:
        return False
    free = cluster.ledger.whole_free
    if cluster.pending.all_larger(free) and cluster.is_settled():
        return True
    if not cluster.orders.all_skip or cluster.seen_version != cluster.ledger.version:
        return False
    for shape in cluster.pending.came:
        if shape.devices <= free or not (shape.opportunistic or cluster.is_settled()):
            return False  # An owner's job may send borrowers away.
    return True


# ── 1 ───────────────────────────────────────────────────────────────────────────────────


def _use_reserved_places(cluster: Cluster, now: Instant) -> Proposals:
    for job, reserved in sorted(cluster.reserved.items()):
        kept = (
            cluster.slots_open(reserved.slots)
            and is_due(cluster, reserved)
            and not cluster.barred(job, reserved.slots, now)
        )
        if not kept:
            yield Unreserve(job)
        elif job in cluster.placed.leaving:
            continue  # It moves, and is not gone yet.
        elif cluster.ledger.settled(reserved.slots):
            if job in cluster.gangs:
                yield Resume(job, reserved.entitlement, reserved=True, quota=reserved.quota)
            else:
                yield Place(_placement(cluster, reserved), reserved=True)


def _placement(cluster: Cluster, reserved: ReservedPlace) -> Placement:
    """Return where the job of a reserved place goes: a larger gang, where there is room now.

    In cells it gets that place, unless it left for it itself: to give a reserved place up
    for another could cost others what they are guaranteed while hardware is lost.
    Where reservations are near it gets that place too.
    """
    place = Placement(reserved.job, reserved.slots, reserved.entitlement, reserved.quota)
    shape = cluster.pending[reserved.job].shape
    if not shape.most or cluster.reservations.all or not cluster.guarantee.regrows(reserved):
        return place
    with Trial(cluster) as trial:
        trial.unreserve(reserved.job)
        return as_large(cluster, shape, place)


# ── 2 ───────────────────────────────────────────────────────────────────────────────────


def _room_may_be_back(cluster: Cluster) -> bool:
    """Whether anything was given back since borrowers were last looked at.

    Where urgent jobs may take what a borrower were given, their going counts too.
    """
    return cluster.seen_version != cluster.ledger.version or cluster.preempts


def _promote(cluster: Cluster, now: Instant) -> Proposals:
    guarantee = cluster.guarantee
    for tenant, gangs in sorted(cluster.placed.borrowers.items()):
        if not guarantee.may_promote(tenant):
            continue
        for gang in sorted(gangs.values(), key=lambda gang: (gang.placed_at, gang.id)):
            if gang.opportunistic or gang.leaving or more_urgent(cluster, gang, now):
                continue
            found = guarantee.promotion(gang)
            if found is not None and kept_from_borrower(cluster, gang) is None:
                yield Promote(gang.id, *found)


# ── 3 ───────────────────────────────────────────────────────────────────────────────────


def _resume(cluster: Cluster, now: Instant) -> Proposals:
    rescheduler = cluster.rescheduler
    for _, gang in sorted(cluster.placed.resuming.items()):
        if rescheduler is not None and rescheduler.deals(gang):
            continue
        decision = WayBack(cluster, gang, now).decision()
        if decision is not None:
            yield decision
