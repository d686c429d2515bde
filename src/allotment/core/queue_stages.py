"""In what order the jobs of a tenant's queues come, and which stand aside for others.

Where no queue has a guarantee or a soft limit none of this is asked.
"""

from collections.abc import Iterator
from enum import Enum

import msgspec

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.entitle import due_of
from allotment.core.guarantee import guarantee_of, may_borrow
from allotment.core.lending import kept_of_idle, kept_of_share
from allotment.core.quota import Account, Kept
from allotment.core.reclaim import need_of, within
from allotment.core.request import Shape
from allotment.model.amounts import show_bare, show_part
from allotment.model.ledger import Entitlement
from allotment.model.reasons import Blocked, Reason


class Stage(Enum):
    """Whose turn it is, of the queues that share a tenant."""

    WITHIN = 1
    """Jobs within their queue's guarantee."""
    REST = 2
    """Jobs below the soft limit of the queue."""
    BEYOND_SOFT = 3
    """Those beyond it, if no other queue has a job in line below its own."""


def stages(cluster: Cluster) -> Iterator[Stage]:
    """Return the stages that there are."""
    if cluster.queues.guarantees:
        yield Stage.WITHIN
    yield Stage.REST
    if cluster.queues.softs:
        yield Stage.BEYOND_SOFT


def stage_of(cluster: Cluster, shape: Shape) -> Stage:
    """Return the last stage in which it is the turn of a job."""
    beyond = shape.tenant in cluster.queues.softs and _soft(cluster, shape) is not None
    return Stage.BEYOND_SOFT if beyond else Stage.REST


def aside(cluster: Cluster, shape: Shape, stage: Stage) -> bool:
    """Whether it is not the turn of a job, though it may come in another stage."""
    if stage is Stage.WITHIN:
        return not within(cluster, shape)
    return stage_of(cluster, shape) is not stage


def barred(cluster: Cluster, shape: Shape, stage: Stage) -> bool:
    """Whether what is left is for others now; such a job holds up none."""
    queues = cluster.queues
    if shape.tenant not in queues.guarantees and shape.tenant not in queues.softs:
        return False
    if _unowed(cluster, shape) or _kept(cluster, shape) is not None:
        return True
    return stage is Stage.BEYOND_SOFT and _first_below(cluster, shape) is not None


class Aside(msgspec.Struct, frozen=True, gc=False):
    """Why what is left is not for a job, and whose jobs could let it have more by ending."""

    blocked: Blocked
    parts: tuple[str, ...]
    """Of which there is too little."""
    whose: str
    """The tenant whose jobs alone could; '' where anybody's could."""


def why_aside(cluster: Cluster, shape: Shape) -> Aside | None:
    """Return for which queue what is left is kept, if it is."""
    queues = cluster.queues
    if shape.tenant not in queues.guarantees and shape.tenant not in queues.softs:
        return None
    if _unowed(cluster, shape):
        return _beyond_owed(cluster, shape)
    if (found := _soft(cluster, shape)) and (other := _first_below(cluster, shape)):
        branch, part = found
        held, most = branch.use.get(part, 0), branch.soft[part]
        blocked = Blocked(
            Reason.QUEUE_SHARE,
            f"Queue {branch.queue} of {shape.tenant} holds {show_bare(part, held)} of the "
            f"{show_part(part, most)} of its soft limit, and jobs of queue {other} wait that "
            "are below theirs.",
            hint="It starts when they have what they need, or jobs of its own queue end.",
        )
        return Aside(blocked, (part,), shape.tenant)
    if (found := _kept(cluster, shape)) is not None:
        kept, whose = found
        blocked = Blocked(
            Reason.QUEUE_SHARE,
            f"Queue {kept.account.queue} of {shape.tenant} does not lend: "
            f"{show_part(kept.part, kept.amount)} of what is left is kept for it.",
            hint="It starts when jobs of its tenant end."
            if whose
            else "It starts when enough more is idle, whoever's jobs end.",
        )
        return Aside(blocked, (kept.part,), whose)
    return None


def _beyond_owed(cluster: Cluster, shape: Shape) -> Aside:
    """Return what its queue is guaranteed of a job that must stay within that, and does not."""
    too_little = beyond_queue(cluster, shape)
    blocked = Blocked(
        Reason.QUEUE_SHARE,
        f"It may not be preempted, so it must stay within what queue {shape.queue} of "
        f"{shape.tenant} is guaranteed; "
        + (f"it is guaranteed {too_little}." if too_little else "that is in use."),
        hint="Make it preemptible (allot edit)."
        if too_little
        else "It starts when jobs of the queue end, or make it preemptible (allot edit).",
    )
    need = need_of(cluster, shape)
    chain = cluster.queues.chain(shape.tenant, shape.queue)
    could = (branch for branch in chain if branch.could_cover(need))
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
    chain, need = cluster.queues.chain(shape.tenant, shape.queue), need_of(cluster, shape)
    if any(branch.could_cover(need) for branch in chain):
        return ""
    own = chain[0].guaranteed if chain else {}
    return ", ".join(show_part(part, most) for part, most in own.items()) or "nothing"


def _unowed(cluster: Cluster, shape: Shape) -> bool:
    """Whether a job that is never evicted would be beyond its queue's guarantee."""
    if shape.preemptible or shape.tenant not in cluster.queues.guarantees:
        return False
    return not within(cluster, shape)


def _soft(cluster: Cluster, shape: Shape) -> tuple[Account, str] | None:
    need = need_of(cluster, shape)
    return cluster.queues.beyond_soft(shape.tenant, shape.queue, need)


def _first_below(cluster: Cluster, shape: Shape) -> str | None:
    """Name another queue of the tenant that has a job in line below its soft limit."""
    found = _soft(cluster, shape)
    around = found[0] if found is not None else None
    names = {
        other.queue
        for other, _ in cluster.pending.heads()
        if other.tenant == shape.tenant
        and other.queue != shape.queue
        and around not in cluster.queues.chain(other.tenant, other.queue)
        and _soft(cluster, other) is None
        and not capped_out(cluster, other)
        and not _unowed(cluster, other)
        and not _all_promised(cluster, other)
    }
    return min(names, default=None)


def _all_promised(cluster: Cluster, shape: Shape) -> bool:
    promised = cluster.reserved
    return bool(promised) and all(job in promised for job in cluster.pending.of(shape))


def _kept(cluster: Cluster, shape: Shape) -> tuple[Kept, str] | None:
    """Return what a job would take of what others do not lend; None if it leaves enough.

    With it comes whose jobs alone could let it have more by ending; '' for anybody's.
    """
    if shape.tenant not in cluster.queues.keeps:
        return None
    due = due_of(cluster, shape)
    if due is Entitlement.GUARANTEED and (kept := kept_of_share(cluster, shape)) is not None:
        return kept, shape.tenant
    kept = kept_of_idle(cluster, shape, due)
    whose = shape.tenant if due is None else ""
    return None if kept is None else (kept, whose)


def why_never_due(cluster: Cluster, shape: Shape) -> str:
    """Return why a gang never starts, however idle the machines are; '' if its share lets it.

    Its tenant, or its queue, is owed less than it needs, and it may not borrow.
    """
    if too_little := beyond_queue(cluster, shape):
        return (
            f"with `preemptible: false` it must stay within what queue {shape.queue} is "
            f"guaranteed, which is {too_little}"
        )
    guarantee = guarantee_of(cluster)
    if guarantee.could_fit(shape) or may_borrow(cluster, shape):
        return ""
    if shape.pin:
        if not guarantee.has_pinned(shape.tenant, shape.pin):
            return f"it is pinned to {shape.pin}, which its tenant has not"
        return f"it is larger than {shape.pin}, to which it is pinned"
    if shape.opportunistic:
        return f"it runs only on what is idle, and {_may_not_borrow(cluster, shape)}"
    return f"it is larger than what its tenant owns, and {_may_not_borrow(cluster, shape)}"


def _may_not_borrow(cluster: Cluster, shape: Shape) -> str:
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is not None and not tenant.borrow:
        return "its tenant may not borrow"
    if not shape.preemptible:
        return "with `preemptible: false` it may not borrow"
    return "nobody may borrow under the policy in force"
