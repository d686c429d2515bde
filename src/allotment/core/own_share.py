"""What is left of a tenant's guarantee where shares are counted: now, and when its own end.

A gang of the tenant's that would fit in the whole guarantee waits for this alone when others
of the tenant hold it. Counted are devices, in thousandths.
"""

from collections.abc import Iterator

from allotment.core.cluster import Cluster
from allotment.core.ends import Ends
from allotment.core.ports import Estimates
from allotment.core.request import sum_of
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Instant

GUARANTEED = Entitlement.GUARANTEED


def left_of(cluster: Cluster, name: str) -> int | None:
    """Say what a tenant may still hold as its own; None where that bounds nothing.

    So it is in cells, and where a tenant is owed more than there is.
    """
    tenant = cluster.tenants.get(name)
    if tenant is None or cluster.cells is not None:
        return None
    used = cluster.guaranteed_use.get(name, NOTHING) + cluster.reserved_use(name)
    left = tenant.guaranteed.gpu_milli - used.gpu_milli
    return left if left < cluster.ledger.device_milli else None


def enough_of(
    cluster: Cluster, ends: Ends, name: str, wanted: int, left: int, now: Instant
) -> tuple[Instant, int] | None:
    """Say when a tenant's own will have left it `wanted`, and how much in all; None if never.

    Who ends at one instant ends together. O(gangs that end by then).
    """
    at = int(now)
    for soonest, job, milli in ends.soonest(now):
        if soonest != at and left >= wanted:
            break
        gang = cluster.gangs[job]
        at = soonest
        if gang.tenant == name and gang.entitlement is GUARANTEED:
            left += milli
    return (Instant(at), left) if left >= wanted else None


def given_back(
    cluster: Cluster, name: str, now: Instant, estimates: Estimates
) -> Iterator[tuple[int, int]]:
    """Say when gangs of a tenant that hold its own, or are promised it, give back how much."""
    for gang in cluster.gangs.values():
        if gang.tenant == name and gang.entitlement is GUARANTEED:
            run_ms = estimates.run_ms(gang.standing)
            if gang.leaving:
                yield now + 1, gang.held().gpu_milli
            elif run_ms is not None and not gang.suspended:
                end = gang.standing.end_of(run_ms, gang.placed_at, now)
                yield end, gang.held().gpu_milli
    for job, promise in cluster.reservations.items():
        if promise.entitlement is not GUARANTEED or job not in cluster.pending:
            continue
        standing = cluster.pending[job]
        run_ms = estimates.run_ms(standing)
        if standing.shape.tenant == name and run_ms is not None:
            left = max(1, standing.left_of(run_ms))
            yield now + left, sum_of(promise.needs).gpu_milli
