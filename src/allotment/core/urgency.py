"""Which waiting job may take what a running one of its own tenant has.

Rule: the more urgent from the less urgent. Where the tenant wants it so, a job that has waited
for `starved` also from one of its own priority that has run for as long; and one whose
`max_run_time` is at most `short` from one that is not short and has run for as long.

No circle comes of it: who takes has just started, and who lost has just begun to wait, so
neither of the two rules holds for them before that much time is over again.
"""

from collections.abc import Mapping

from allotment.core.gang import Gang, Standing
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt, PreemptRules, Tenant


def outranks(
    tenants: Mapping[str, Tenant], waiting: Standing, gang: Gang, now: Instant
) -> bool:
    """Whether a job may take what a gang of its tenant's has, protected or not."""
    tenant = tenants.get(gang.tenant)
    if (
        tenant is None
        or tenant.preempt is Preempt.NONE
        or waiting.shape.tenant != gang.tenant
        or waiting.priority < gang.priority
    ):
        return False
    if waiting.priority > gang.priority:
        return True
    rules = tenant.preempt_rules
    return rules.lenient and _its_turn(rules, waiting, gang, now)


def _its_turn(rules: PreemptRules, waiting: Standing, gang: Gang, now: Instant) -> bool:
    ran = now - (gang.standing.since or gang.placed_at)
    starved, short = rules.starved_ms, rules.short_ms
    if 0 < starved <= min(ran, now - waiting.queued_at):
        return True
    return 0 < short <= ran and is_short(waiting, short) and not is_short(gang.standing, short)


def is_short(job: Standing, short_ms: int) -> bool:
    """Whether a job promised to run for no longer than that."""
    return 0 <= job.limit_ms <= short_ms


def next_turn(
    rules: PreemptRules, waiting: Standing, gang: Gang, now: Instant
) -> Instant | None:
    """Return when a job may take from one of its own priority; None if by now."""
    since = gang.standing.since or gang.placed_at
    moments = [max(since, waiting.queued_at) + rules.starved_ms] if rules.starved_ms else []
    if rules.short_ms and is_short(waiting, rules.short_ms):
        moments.append(since + rules.short_ms)
    later = [moment for moment in moments if moment > now]
    return Instant(min(later)) if later else None
