"""How many tasks a gang starts with that may be larger or smaller.

Rule: a job waits for the least it asked for, and for no more: others are sent away for that
alone. Once there is room for it, it starts at once with as many tasks as find a free place
by the same entitlement: what its tenant is guaranteed, if the least is, else what may be
borrowed; within its user's cap. A gang that goes before a blocked job of an EASY queue starts
with the least.
"""

import msgspec

from allotment.core.caps import capped_out, narrowed
from allotment.core.cluster import Cluster
from allotment.core.lending import kept_of_idle, kept_of_share, of_types_lent
from allotment.core.request import Shape, fixed, needs_of
from allotment.model.ledger import GUARANTEED, Entitlement, Placement, Quota, Slot


def as_large(cluster: Cluster, shape: Shape, place: Placement) -> Placement:
    """Return the place of the largest gang of this shape, by the same entitlement.

    It is the place itself where there is room for no more. O(log of the tasks · search).
    """
    last = shape.requests[-1]
    step = last.group or 1
    tasks = last.count + len(place.slots) - len(needs_of(shape.requests))
    fewest, most = 0, (shape.most - tasks) // step
    best = place
    while fewest < most:
        middle = (fewest + most + 1) // 2
        found = _found(cluster, fixed(shape, len(place.slots) + middle * step), place)
        if found is None:
            most = middle - 1
        else:
            fewest = middle
            best = msgspec.structs.replace(place, slots=found[0], quota=found[1])
    return best


def _found(
    cluster: Cluster, shape: Shape, place: Placement
) -> tuple[tuple[Slot, ...], Quota] | None:
    """Find a free place for a gang of just this size, by the entitlement of another place."""
    if capped_out(cluster, shape):
        return None
    shape = narrowed(cluster, shape)
    if cluster.queues.keeps:
        if _is_kept(cluster, shape, place.entitlement):
            return None
        shape = of_types_lent(cluster, shape, place.entitlement)
    return cluster.guarantee.free_place(shape, place.entitlement)


def _is_kept(cluster: Cluster, shape: Shape, entitled: Entitlement) -> bool:
    """Whether so much would take what another queue keeps for itself."""
    if shape.tenant not in cluster.queues.keeps:
        return False
    of_share = entitled is GUARANTEED and kept_of_share(cluster, shape) is not None
    return of_share or kept_of_idle(cluster, shape, entitled) is not None
