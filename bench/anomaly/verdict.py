"""What must hold: cells are worth a private cluster, and a quota of devices is not."""

from collections.abc import Iterable

import msgspec

from allotment.model.quantity import MINUTE, SECOND
from bench.anomaly.arms import ALONE, Arm
from bench.anomaly.measure import Result

WITHIN = 0.01
"""By how much a mean delay in cells may exceed that of the private cluster."""
NEGLIGIBLE_MS = SECOND
"""Means closer than this are the same."""


class Excess(msgspec.Struct, frozen=True):
    """The tenant that fares worst beside its private cluster."""

    where: str
    tenant: str
    private_ms: float
    shared_ms: float

    @property
    def times(self) -> float:
        return self.shared_ms / max(1.0, self.private_ms)

    @property
    def is_more(self) -> bool:
        """Whether it is worse by more than the tolerance."""
        allowed = self.private_ms * (1 + WITHIN) + NEGLIGIBLE_MS
        return self.shared_ms > allowed

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.tenant} waits {self.shared_ms / MINUTE:,.1f} min on "
            f"average, {self.private_ms / MINUTE:,.1f} min alone ({self.times:.2f} times)"
        )


def excesses(shared: Result, private: Result) -> list[Excess]:
    """List tenants by how much longer they wait than alone, the worst first."""
    found = [
        Excess(str(shared.arm), tenant, private.delays[tenant].mean, delay.mean)
        for tenant, delay in shared.delays.items()
        if tenant and tenant in private.delays
    ]
    return sorted(found, key=lambda each: (each.private_ms - each.shared_ms, each.tenant))


def find(results: Iterable[Result], load: str, kind: str, scheduler: str) -> Result | None:
    """Find what does not borrow."""
    for result in results:
        arm = result.arm
        if (arm.load, arm.kind, arm.scheduler, arm.borrow) == (load, kind, scheduler, False):
            return result
    return None


def alone(results: Iterable[Result], arm: Arm) -> Result | None:
    """Find the tenants alone, with the order of jobs that they have in an arm."""
    kind = ALONE.get(arm.kind)
    return find(results, arm.load, kind, arm.scheduler) if kind else None


def broken(results: list[Result]) -> list[str]:
    """Return where a tenant in cells waits longer than alone; and if quotas show no anomaly."""
    wrong: list[str] = []
    quotas: list[Excess] = []
    compared = False
    for result in results:
        arm = result.arm
        wrong += [f"{arm}: {result.unfinished} jobs did not end"] if result.unfinished else []
        wrong += _unfair(result)
        private = alone(results, arm)
        if arm.borrow or private is None:
            continue
        more = [each for each in excesses(result, private) if each.is_more]
        if arm.kind in ("quota", "counted", "spread"):
            compared = True
            quotas += more
        elif arm.kind == "cells":
            wrong += [str(each) for each in more]
    if compared and not quotas:
        wrong.append("no tenant with a quota of devices waits longer than alone")
    return wrong


def _unfair(result: Result) -> list[str]:
    """Return where jobs pass earlier ones of their tenant, so that arms do not compare."""
    arm = result.arm
    if arm.scheduler != "FIFO" or arm.borrow or arm.kind in ("owned", "counted", "spread"):
        return []
    passed = sum(idle.overtakers for idle in result.idle.values())
    return [f"{arm}: {passed} jobs passed earlier ones of their tenant"] if passed else []
