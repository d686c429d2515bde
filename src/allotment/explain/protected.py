"""Which gangs an urgent job may not preempt yet, and from when on it may.

Rule: the question the cycle asks, asked of later moments: the first one at which a gang that
is protected now would be preempted is when the job gets a place, if nothing changes.
"""

from collections.abc import Iterator

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.disruption import DisruptionBudget, may_preempt, next_turn
from allotment.core.gang import Standing
from allotment.core.preemption.room import losers, preempt_lower
from allotment.explain.cell_words import listed
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import Blocked, Reason

WAITS_FOR_OTHERS = frozenset({Reason.CAPACITY, Reason.FRAGMENTED, Reason.QUOTA})


def with_protected(
    cluster: Cluster, waiting: Standing, blocked: Blocked, now: Instant
) -> Blocked:
    """Add which gangs are protected from a job, and until when, if it only waits for that."""
    budget, shape = cluster.disruption, waiting.shape
    if (
        budget is None
        or blocked.reason not in WAITS_FOR_OTHERS
        or shape.opportunistic
        or shape.tenant not in budget.rules
    ):
        return blocked
    found = _first_way(cluster, waiting, budget, now)
    if found is None:
        return blocked
    until, jobs = found
    return msgspec.structs.replace(
        blocked,
        message=f"{blocked.message} {_words(cluster, waiting, budget, jobs, until, now)}",
        until=until if blocked.until is None else min(until, blocked.until),
    )


def _first_way(
    cluster: Cluster, waiting: Standing, budget: DisruptionBudget, now: Instant
) -> tuple[Instant, tuple[JobId, ...]] | None:
    """Find the first later moment at which gangs can be preempted, and which these are.

    A gang that can be preempted once can be ever after, so a few looks are enough.
    """
    moments = sorted({at for at in _moments(cluster, waiting, budget) if at > now})
    if not moments or _who_goes(cluster, waiting, now):
        return None
    low, high = 0, len(moments) - 1
    if not _who_goes(cluster, waiting, moments[high]):
        return None
    while low < high:
        middle = (low + high) // 2
        if _who_goes(cluster, waiting, moments[middle]):
            high = middle
        else:
            low = middle + 1
    return moments[low], _who_goes(cluster, waiting, moments[low])


def _moments(
    cluster: Cluster, waiting: Standing, budget: DisruptionBudget
) -> Iterator[Instant]:
    """Return the moments at which a gang is protected no longer."""
    tenant = waiting.shape.tenant
    rules = budget.rules[tenant]
    for gang in cluster.gangs.values():
        if (
            gang.tenant != tenant
            or gang.entitlement is not Entitlement.GUARANTEED
            or gang.priority > waiting.priority
        ):
            continue
        since = gang.standing.since or gang.placed_at
        yield Instant(since + rules.min_run_ms)
        if gang.priority == waiting.priority:
            turn = next_turn(rules, waiting, gang, Instant(0))
            if turn is not None:
                yield turn
                yield Instant(since + max(rules.starved_ms, rules.short_ms))
                yield Instant(waiting.queued_at + rules.starved_ms)
    for loss in budget.losses():
        if loss.tenant == tenant:
            yield Instant(loss.at + rules.per_ms)


def _who_goes(cluster: Cluster, waiting: Standing, at: Instant) -> tuple[JobId, ...]:
    """Name the gangs of its own tenant that would be preempted, or shrink, at a moment."""
    plan = preempt_lower(cluster, waiting, at)
    if plan is None:
        return ()
    return tuple(dict.fromkeys((*losers(cluster, waiting, plan), *dict(plan.shrink))))


def _words(
    cluster: Cluster,
    waiting: Standing,
    budget: DisruptionBudget,
    jobs: tuple[JobId, ...],
    until: Instant,
    now: Instant,
) -> str:
    who = listed([f"job {job}" for job in jobs])
    rules = budget.rules[waiting.shape.tenant]
    when = f"in {show_millis(until - now)}"
    if budget.exhausted(waiting.shape.tenant, now):
        return (
            f"It may preempt {who} of its own tenant {when}: until then the disruption budget "
            "of the tenant is used up (preempt_rules)."
        )
    gangs = [cluster.gangs[job] for job in jobs]
    short = any((g.standing.since or g.placed_at) + rules.min_run_ms > now for g in gangs)
    if short and all(may_preempt(cluster.tenants, waiting, gang, now) for gang in gangs):
        return (
            f"It may preempt {who} of its own tenant {when}, when the minimum run time there "
            f"({show_millis(rules.min_run_ms)}, min_run) is over."
        )
    return f"It may preempt {who} of its own tenant {when} (preempt_rules)."
