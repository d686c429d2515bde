"""Sets of nodes as runs of their ids, so that thousands of neighbours are one entry."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from allotment.model.ids import NodeId

NodeRuns = tuple[tuple[NodeId, NodeId], ...]
"""The first and the last id of each run, in order."""

MOST_RUNS = 256
"""Of one set: an event that says which nodes these are has some 3 KiB at most."""


def runs_of(nodes: Iterable[NodeId]) -> NodeRuns:
    """Return the runs of some nodes; of very scattered ones the first `MOST_RUNS`."""
    runs: list[tuple[NodeId, NodeId]] = []
    for node in sorted(nodes):
        if runs and node <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], node
        elif len(runs) == MOST_RUNS:
            break
        else:
            runs.append((node, node))
    return tuple(runs)


def is_in(runs: NodeRuns, node: NodeId) -> bool:
    """Whether a node is in one of the runs. O(log runs)."""
    at = bisect_right(runs, (node, node))
    return (at < len(runs) and runs[at][0] == node) or (at > 0 and node <= runs[at - 1][1])


def nodes_from(runs: NodeRuns, first: NodeId) -> Iterator[NodeId]:
    """Yield the nodes of the runs in order, those from `first` on before those below it."""
    for begin, end in runs:
        yield from map(NodeId, range(max(begin, first), end + 1))
    for begin, end in runs:
        yield from map(NodeId, range(begin, min(end + 1, first)))


def size_of(runs: NodeRuns) -> int:
    """Count the nodes."""
    return sum(end - begin + 1 for begin, end in runs)
