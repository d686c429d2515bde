"""Queues in words: what they keep from each other, and which job holds up those behind it."""

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.gates import (
    beyond_soft,
    bypassed_before,
    first_below,
    kept_for_others,
    waits_for_guarantee,
)
from allotment.core.request import Shape
from allotment.core.sharing import may_borrow
from allotment.model.amounts import covers, show_bare, show_part
from allotment.model.ids import JobId
from allotment.model.reasons import Blocked, Reason


class Aside(msgspec.Struct, frozen=True, gc=False):
    """Why what is left is not for a job, and whose jobs could let it have more by ending."""

    blocked: Blocked
    parts: tuple[str, ...]
    """Of which there is too little."""
    whose: str
    """The tenant whose jobs alone could; '' where any could."""


def why_aside(cluster: Cluster, shape: Shape) -> Aside | None:
    """Return for which queue what is left is kept, if it is."""
    queues = cluster.queues
    if shape.tenant not in queues.guarantees and shape.tenant not in queues.softs:
        return None
    if waits_for_guarantee(cluster, shape):
        return _beyond_guaranteed(cluster, shape)
    if (found := beyond_soft(cluster, shape)) and (other := first_below(cluster, shape)):
        branch, part = found
        held, most = branch.use.get(part, 0), branch.soft[part]
        blocked = Blocked(
            Reason.QUEUE_SHARE,
            f"Queue {branch.queue} of {shape.tenant} holds {show_bare(part, held)} of the "
            f"{show_part(part, most)} of its soft limit, and jobs of queue {other}, which "
            "is below its own, wait.",
            hint="It starts when they have what they need, or jobs of its own queue end.",
        )
        return Aside(blocked, (part,), shape.tenant)
    if (found := kept_for_others(cluster, shape)) is not None:
        kept, whose = found
        blocked = Blocked(
            Reason.QUEUE_SHARE,
            f"Queue {kept.account.queue} of {shape.tenant} does not lend: "
            f"{show_part(kept.part, kept.amount)} of the idle resources stay free for it.",
            hint="It starts when jobs of its tenant end."
            if whose
            else "It starts when enough more is idle, no matter which jobs end.",
        )
        return Aside(blocked, (kept.part,), whose)
    return None


def _beyond_guaranteed(cluster: Cluster, shape: Shape) -> Aside:
    """Return what its queue is guaranteed of a job that must stay within that, and does not."""
    too_little = beyond_queue(cluster, shape)
    blocked = Blocked(
        Reason.QUEUE_SHARE,
        f"It may not be preempted, so it must stay within what queue {shape.queue} of "
        f"{shape.tenant} is guaranteed; "
        + (f"it is guaranteed {too_little}." if too_little else "all of that is in use."),
        hint="Make it preemptible (allot edit)."
        if too_little
        else "It starts when jobs of the queue end, or make it preemptible (allot edit).",
    )
    need = cluster.queues.need_of(shape)
    chain = cluster.queues.chain(shape.tenant, shape.queue)
    could = (branch for branch in chain if covers(branch.guaranteed, need, {}))
    parts = dict.fromkeys(
        part for branch in could for part in branch.beyond(branch.guaranteed, need)
    )
    return Aside(blocked, tuple(parts), shape.tenant)


def beyond_queue(cluster: Cluster, shape: Shape) -> str:
    """Return what the queue is guaranteed of a job that must stay within that, and never can.

    '' where it could, with no other job in the queue, or need not.
    """
    if shape.preemptible or shape.tenant not in cluster.queues.guarantees:
        return ""
    chain, need = cluster.queues.chain(shape.tenant, shape.queue), cluster.queues.need_of(shape)
    if any(covers(branch.guaranteed, need, {}) for branch in chain):
        return ""
    own = chain[0].guaranteed if chain else {}
    return ", ".join(show_part(part, most) for part, most in own.items()) or "nothing"


def why_never_due(cluster: Cluster, shape: Shape) -> str:
    """Return why a gang never starts, however idle the machines are; '' if its share lets it.

    Its tenant, or its queue, is guaranteed less than it needs, and it may not borrow.
    """
    if too_little := beyond_queue(cluster, shape):
        return (
            f"with `preemptible: false` it must stay within what queue {shape.queue} is "
            f"guaranteed, which is {too_little}"
        )
    guarantee = cluster.guarantee
    if guarantee.could_fit(shape) or may_borrow(cluster, shape):
        return ""
    if shape.pin:
        if not guarantee.has_pinned(shape.tenant, shape.pin):
            return f"it is pinned to {shape.pin}, which its tenant does not have"
        return f"it is larger than {shape.pin}, to which it is pinned"
    if shape.opportunistic:
        return f"it runs only on idle resources, and {_may_not_borrow(cluster, shape)}"
    return f"it is larger than its tenant's cells, and {_may_not_borrow(cluster, shape)}"


def _may_not_borrow(cluster: Cluster, shape: Shape) -> str:
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is not None and not tenant.borrow:
        return "its tenant may not borrow"
    if not shape.preemptible:
        return "with `preemptible: false` it may not borrow"
    return "the policy in force allows no borrowing"


def why_bypassed(cluster: Cluster, waiting: Standing) -> Blocked:
    """Report which job before this one was overtaken as often as it may be."""
    first = bypassed_before(cluster, waiting)
    assert first is not None, "the gate is shut"
    assert cluster.overtaking is not None, "a job was overtaken"
    counted = cluster.overtaking.of(first)
    times = counted[1] if counted is not None else 0
    return Blocked(
        Reason.BEHIND,
        f"Job {first} is before it in queue {waiting.shape.queue}, and was overtaken {times:,} "
        "times, the most that this queue allows.",
        hint=f"See `allot why {first}`.",
    )


def overtaken_words(cluster: Cluster, job: JobId) -> str:
    """Return how often a job was overtaken, where that is bounded; '' elsewhere."""
    counted = cluster.overtaking.of(job) if cluster.overtaking is not None else None
    if counted is None:
        return ""
    count, most = counted
    if count < most:
        return f"It was overtaken {count:,} of at most {most:,} times."
    return f"It was overtaken {count:,} times, so it blocks the jobs behind it in its queue."
