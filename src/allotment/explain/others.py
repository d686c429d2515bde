"""A job waits because others use nodes beside Allotment, on the same engine."""

from allotment.core.cluster import Cluster
from allotment.core.ledger import NodeBook
from allotment.core.request import Shape
from allotment.core.trial import Trial
from allotment.explain.cell_words import listed
from allotment.explain.in_cells import fits_mended_cells
from allotment.explain.mended import let_others_go
from allotment.explain.question import Question
from allotment.model.health import WHOLE
from allotment.model.quantity import DEVICE, Resources, show_resources
from allotment.model.reasons import Blocked, Reason


def why_others(asked: Question) -> Blocked | None:
    """Return that it would fit if others were gone, if it would not otherwise."""
    cluster, shape = asked.cluster, asked.asking.shape
    if not cluster.ledger.shared or not asked.fits_nowhere:
        return None
    if not _fits_alone(cluster, shape):
        return None
    books = [cluster.ledger.books[node] for node in sorted(cluster.ledger.shared)]
    used = [f"{cluster.nodes[book.id].name} ({show_resources(_used(book))})" for book in books]
    return Blocked(
        Reason.OTHERS,
        f"It would fit if others did not use these nodes beside Allotment: {listed(used)}.",
        hint="It starts when they end: see `allot nodes`; `squeue`, `kubectl get pods -A`.",
    )


def _used(book: NodeBook) -> Resources:
    return book.others + Resources(gpu_milli=len(book.taken - {WHOLE}) * DEVICE)


def _fits_alone(cluster: Cluster, shape: Shape) -> bool:
    """Whether a job without a place would have one if others were gone."""
    if cluster.cells is not None:
        return fits_mended_cells(cluster, shape, let_others_go)
    with Trial(cluster) as trial:
        if cluster.find(shape.requests) is not None:
            return False  # Only its share is too small.
        let_others_go(trial)
        return cluster.find(shape.requests) is not None
