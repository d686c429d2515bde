"""What protects running jobs from more urgent ones of their own tenant.

Rule: who has run for less than its tenant's `min_run` keeps what it has, and once so many
gangs, or so much work, were lost within the interval, nobody else loses anything until a part
of that is over. What is only promised is not protected: it costs no work. Reclaiming what a
tenant is owed from borrowers asks none of this (docs/scheduling.md).
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from allotment.core.gang import Gang, Standing
from allotment.core.urgency import next_turn, outranks
from allotment.model.quantity import DEVICE, Instant
from allotment.model.tenancy import PreemptRules, Tenant


class Loss(msgspec.Struct, frozen=True, gc=False):
    """A gang that lost its share to a more urgent one of its tenant, and what work it lost."""

    tenant: str
    at: Instant
    device_ms: int


class Mercy:
    """What tenants lost of late, and when somebody protected may be asked again."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self.rules: dict[str, PreemptRules] = {
            tenant.name: tenant.preempt_rules
            for tenant in tenants
            if tenant.preempt_rules != PreemptRules()
        }
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._lost: dict[str, deque[Loss]] = {}
        self.wake_at: Instant | None = None
        """When somebody who was protected at the last look is so no longer."""

    def spares(self, gang: Gang, now: Instant) -> bool:
        """Whether a gang has run too short a time to make way; note until when."""
        rules = self.rules.get(gang.tenant)
        if rules is None or not rules.min_run_ms:
            return False
        until = Instant(_since(gang) + rules.min_run_ms)
        if until <= now:
            return False
        self._look_again(until)
        return True

    def yields(self, waiting: Standing, gang: Gang, now: Instant) -> bool:
        """Whether a gang gives way to a job of its tenant now; note when that changes."""
        if not outranks(self._tenants, waiting, gang, now):
            rules = self.rules.get(gang.tenant)
            turn = next_turn(rules, waiting, gang, now) if rules is not None else None
            if turn is not None:
                self._look_again(turn)
            return False
        return not self.spares(gang, now)

    def exhausted(self, tenant: str, now: Instant) -> bool:
        """Whether a tenant's jobs lost all they may lose for now; note until when."""
        rules = self.rules.get(tenant)
        lost = self._lost.get(tenant)
        if rules is None or not lost:
            return False
        recent = [loss for loss in lost if loss.at > now - rules.per_ms]
        work = sum(loss.device_ms for loss in recent)
        if not (0 < rules.evictions <= len(recent) or 0 < rules.lost_device_ms <= work):
            return False
        self._look_again(Instant(recent[0].at + rules.per_ms))
        return True

    def note(self, gang: Gang, now: Instant, *, goes_on: bool = False) -> None:
        """Count a gang that loses its share now, or some of it and goes on with the rest."""
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
        """Go on from what was counted before, where it still counts."""
        for loss in losses:
            rules = self.rules.get(loss.tenant)
            if rules is not None and rules.bounded:
                self._lost.setdefault(loss.tenant, deque()).append(loss)

    def woken(self, now: Instant) -> bool:
        """Whether, asked once, somebody is protected no longer."""
        if self.wake_at is None or self.wake_at > now:
            return False
        self.wake_at = None
        return True

    def _look_again(self, at: Instant) -> None:
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at


def _since(gang: Gang) -> Instant:
    return gang.standing.since or gang.placed_at


def mercy_of(tenants: Sequence[Tenant]) -> Mercy | None:
    """Return what protects jobs of these tenants; None where nothing does."""
    ruled = any(tenant.preempt_rules != PreemptRules() for tenant in tenants)
    return Mercy(tenants) if ruled else None
