"""Whether a gang could ever start: asked at submission, and of those that wait."""

from allotment.core.cluster import Cluster
from allotment.core.guarantee import guarantee_of, may_borrow
from allotment.core.queue_stages import beyond_queue
from allotment.core.request import Shape


def beyond_share(cluster: Cluster, shape: Shape) -> str:
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
