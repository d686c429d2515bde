"""Which cells tenants have lost to broken, drained and lost hardware, and since when."""

from allotment.engine.state import State
from allotment.explain.lost_cells import losses
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant


def lost_counts(state: State) -> dict[tuple[str, str], int]:
    """Count, by tenant and cell type, the cells lost for sure; fast, for figures."""
    found: dict[tuple[str, str], int] = {}
    cells = state.cluster.cells
    for loss in losses(cells, None) if cells is not None else ():
        key = (loss.tenant, loss.type)
        found[key] = found.get(key, 0) + loss.count
    return found


def broken_since(state: State) -> dict[tuple[NodeId, int], Instant]:
    """Return since when devices, and whole nodes at -1, are not to be used."""
    since = {part: condition.since for part, condition in state.health.items()}
    for node, moment in state.shut_since.items():
        since[node, -1] = min(moment, since.get((node, -1), moment))
    return since
