"""How many devices there are, and how many are on nodes that take work."""

from allotment.metrics.fold import Handlers
from allotment.model import events as e
from allotment.model.ids import NodeId
from allotment.model.quantity import DEVICE, Instant


class Capacity:
    """Follows the configuration and the health of nodes."""

    def __init__(self, milli: int = 0) -> None:
        self.total_milli = milli
        """Of the whole cluster, in thousandths of a device."""
        self.open_milli = milli
        """Of the nodes that are neither drained nor lost."""
        self._nodes: dict[NodeId, int] = {}
        self._closed: set[NodeId] = set()

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.NodeDrained: self._shut,
            e.NodeLost: self._shut,
            e.NodeUndrained: self._opened,
            e.NodeRecovered: self._opened,
        }

    def _configured(self, at: Instant, event: e.ConfigApplied) -> None:
        self._nodes = {node.id: DEVICE * len(node.devices) for node in event.config.nodes}
        self.total_milli = sum(self._nodes.values())
        self._add_up()

    def _shut(self, at: Instant, event: e.NodeDrained | e.NodeLost) -> None:
        self._closed.add(event.node)
        self._add_up()

    def _opened(self, at: Instant, event: e.NodeUndrained | e.NodeRecovered) -> None:
        self._closed.discard(event.node)
        self._add_up()

    def _add_up(self) -> None:
        if not self._nodes:
            return  # No configuration was seen: only the total is known.
        self.open_milli = sum(
            milli for node, milli in self._nodes.items() if node not in self._closed
        )
