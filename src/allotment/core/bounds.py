"""What may not start, as a job before it in its queue was overtaken as often as it may be.

A job that waits for something else than a place holds up none: for a cap or a budget, or for a
configuration in which it fits. Nor does one with a reserved place.
"""

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.rank import Key
from allotment.core.request import total_of
from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING
from allotment.model.reasons import Blocked, Reason


class Bounds:
    """The bounds on overtaking during one cycle."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.overtaking is not None, "asked only where a queue has a bound"
        self._cluster = cluster
        self._overtaking = cluster.overtaking

    def holds_up(self, waiting: Standing) -> bool:
        """Whether a job may not start before one that was overtaken often enough."""
        return self.first(waiting) is not None

    def first(self, waiting: Standing) -> JobId | None:
        """Name the first that holds it up, if any does. O(those that hold up none now)."""
        full = self._overtaking.full((waiting.shape.tenant, waiting.shape.queue))
        if not full:
            return None
        place = self._cluster.pending.key(waiting.id)
        return next((key[1] for key in full if key < place and self._counts(key)), None)

    def _counts(self, key: Key) -> bool:
        """Whether a place is all that a job waits for."""
        cluster, job = self._cluster, key[1]
        shape = cluster.pending[job].shape
        tenant = cluster.tenants.get(shape.tenant)
        if job in cluster.reserved or tenant is None or capped_out(cluster, shape):
            return False
        need = total_of(shape.requests)
        right = cluster.policies.sharing.entitle(
            need, NOTHING, tenant, preemptible=shape.preemptible
        )
        return right is not None and guarantee_of(cluster).fits_machines(shape)


def why_bypassed(cluster: Cluster, waiting: Standing) -> Blocked:
    """Report which job before this one was overtaken as often as it may be."""
    first = Bounds(cluster).first(waiting)
    assert first is not None, "the gate is shut"
    assert cluster.overtaking is not None, "a job was overtaken"
    counted = cluster.overtaking.of(first)
    times = counted[1] if counted is not None else 0
    return Blocked(
        Reason.BEHIND,
        f"Job {first} is before it in queue {waiting.shape.queue}, and was overtaken {times:,} "
        "times, as often as a job of that queue may be.",
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
    return f"It was overtaken {count:,} times, so it holds up those behind it in its queue."
