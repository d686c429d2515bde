"""Whether a gang could ever start: asked at submission, and of those that wait."""

from allotment.core.cluster import Cluster
from allotment.core.entitle import may_borrow
from allotment.core.owed import owed_ever
from allotment.core.request import Shape


def ever_starts(cluster: Cluster, shape: Shape) -> bool:
    """Tell whether a gang fits the configured machines when all are idle and healthy.

    Where shares are cells: the cells of its tenant, or, if it may borrow, any.
    """
    if cluster.cells is None:
        return not shape.pin and cluster.ever_fits(shape)
    return owed_ever(cluster, shape) or (
        may_borrow(cluster, shape) and cluster.ever_fits(shape)
    )
