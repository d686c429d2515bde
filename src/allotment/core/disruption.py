"""Which waiting job may take what a running one of its tenant has, and what protects that.

Rule: the more urgent from the less urgent. Where the tenant wants it so, a job that has waited
for `starved` also from one of its own priority that has run for as long; and one whose
`max_run_time` is at most `short` from one that is not short and has run for as long. No circle
comes of it: what takes has just started, and what lost has just begun to wait, so neither of
the two rules holds for them before that much time is over again.

A gang that has run for less than its tenant's `min_run` keeps what it has. Once so many gangs,
or so much work, were lost within the interval, no other loses anything until a part of that is
over. What is only reserved is not protected: it costs no work. Reclaiming what a tenant is
guaranteed from borrowers asks none of this (docs/scheduling.md).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allotment.core.gang import Gang, Standing
from allotment.model.ledger import GUARANTEED
from allotment.model.quantity import DEVICE, Instant, earlier
from allotment.model.tenancy import Preempt, PreemptRules, Tenant


class Loss(msgspec.Struct, frozen=True, gc=False):
    """A gang that lost its share to a more urgent one of its tenant, and what work it lost."""

    tenant: str
    at: Instant
    device_ms: int


class DisruptionBudget:
    """What tenants lost of late, and when a protected gang may be asked again."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self.rules: dict[str, PreemptRules] = {
            tenant.name: tenant.preempt_rules
            for tenant in tenants
            if tenant.preempt_rules != PreemptRules()
        }
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._lost: dict[str, deque[Loss]] = {}
        self.wake_at: Instant | None = None
        """When a gang that was protected at the last look of the queue pass is so no longer."""

    def is_protected(self, gang: Gang, now: Instant) -> bool:
        """Whether a gang has run too short a time to be preempted."""
        return self._runs_until(gang) > now

    def gives_way(self, waiting: Standing, gang: Gang, now: Instant) -> bool:
        """Whether a job of its tenant may preempt a gang now."""
        return may_preempt(self._tenants, waiting, gang, now) and not self.is_protected(
            gang, now
        )

    def exhausted(self, tenant: str, now: Instant) -> bool:
        """Whether a tenant's jobs lost all they may lose for now."""
        return self._exhausted_until(tenant, now) is not None

    def look_again(self, waiting: Standing, gangs: Iterable[Gang], now: Instant) -> None:
        """Wake when the first of these that is protected from a job is so no longer.

        Asked by the queue pass alone: a question about a job sets no timer.
        """
        tenant = waiting.shape.tenant
        rules = self.rules.get(tenant)
        if rules is None or self._tenants[tenant].preempt is Preempt.NONE:
            return
        if (until := self._exhausted_until(tenant, now)) is not None:
            moments = [until]
        else:
            moments = [
                until
                for gang in gangs
                if may_lose(waiting, gang)
                and (until := self._protected_until(rules, waiting, gang, now)) is not None
            ]
        for until in moments:
            self.wake_at = earlier(self.wake_at, until)

    def _protected_until(
        self, rules: PreemptRules, waiting: Standing, gang: Gang, now: Instant
    ) -> Instant | None:
        """Return when a gang may be preempted; None if now, or if that is not known."""
        if not may_preempt(self._tenants, waiting, gang, now):
            return next_turn(rules, waiting, gang, now)
        until = self._runs_until(gang)
        return until if until > now else None

    def _runs_until(self, gang: Gang) -> Instant:
        rules = self.rules.get(gang.tenant)
        return Instant(_since(gang) + rules.min_run_ms if rules is not None else 0)

    def _exhausted_until(self, tenant: str, now: Instant) -> Instant | None:
        """Return until when a tenant's jobs lost all they may lose; None if they did not."""
        rules = self.rules.get(tenant)
        lost = self._lost.get(tenant)
        if rules is None or not lost:
            return None
        recent = [loss for loss in lost if loss.at > now - rules.per_ms]
        work = sum(loss.device_ms for loss in recent)
        if not (0 < rules.evictions <= len(recent) or 0 < rules.lost_device_ms <= work):
            return None
        return Instant(recent[0].at + rules.per_ms)

    def note(self, gang: Gang, now: Instant, *, goes_on: bool = False) -> None:
        """Count a gang that loses its devices now, or some of them and keeps the rest."""
        rules = self.rules.get(gang.tenant)
        if rules is None or not rules.bounded:
            return
        lost = self._lost.setdefault(gang.tenant, deque())
        while lost and lost[0].at <= now - rules.per_ms:
            lost.popleft()
        work = now - gang.saved_at if gang.standing.runs and not goes_on else 0
        devices = sum(need.gpu_milli for need in gang.needs)
        lost.append(Loss(gang.tenant, now, max(0, work) * devices // DEVICE))

    def losses(self) -> tuple[Loss, ...]:
        """Return what is counted, by tenant and time."""
        return tuple(loss for _, lost in sorted(self._lost.items()) for loss in lost)

    def recall(self, losses: Sequence[Loss]) -> None:
        """Continue from what was counted before, if it still counts."""
        for loss in losses:
            rules = self.rules.get(loss.tenant)
            if rules is not None and rules.bounded:
                self._lost.setdefault(loss.tenant, deque()).append(loss)

    def woken(self, now: Instant) -> bool:
        """Whether, asked once, a gang is protected no longer."""
        if self.wake_at is None or self.wake_at > now:
            return False
        self.wake_at = None
        return True


def _since(gang: Gang) -> Instant:
    return gang.standing.since or gang.placed_at


def may_lose(waiting: Standing, gang: Gang) -> bool:
    """Whether a gang may ever lose its share to a job of its tenant, by what both are."""
    return (
        gang.tenant == waiting.shape.tenant
        and gang.entitlement is GUARANTEED
        and gang.priority <= waiting.priority
        and not gang.leaving
        and not gang.suspended
    )


def disruption_budget(tenants: Sequence[Tenant]) -> DisruptionBudget | None:
    """Return what protects jobs of these tenants; None where nothing does."""
    ruled = any(tenant.preempt_rules != PreemptRules() for tenant in tenants)
    return DisruptionBudget(tenants) if ruled else None


# ── urgency ───────────────────────────────────────────────────────────────────────────────


def may_preempt(
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
    """Whether a job is limited to run for no longer than that."""
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
