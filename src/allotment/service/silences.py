"""What is not known for certain, because the engine that runs it does not answer."""

import msgspec

from allotment.model.lifecycle import JobState
from allotment.service.ports import Backend, Distant, Silence
from allotment.service.views import JobRow, NodeView

UNDER_WAY = frozenset(
    {JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.SUSPENDED}
)


class Silences:
    """Adds to views that an engine does not answer. The books stay as they are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def of(self, node: str) -> Silence | None:
        """Return since when the engine of a node does not answer; None where it does."""
        return self._backend.silence(node) if isinstance(self._backend, Distant) else None

    def on_row(self, row: JobRow) -> JobRow:
        """Add to a job's row that its engine does not answer."""
        nodes = row.nodes if row.state in UNDER_WAY else ()
        silence = next(filter(None, map(self.of, nodes)), None)
        return msgspec.structs.replace(row, unheard=silence) if silence else row

    def on_node(self, node: NodeView) -> NodeView:
        silence = self.of(node.name)
        return msgspec.structs.replace(node, unheard=silence) if silence else node
