"""Nodes that took no work for a while: as a history tells of them, to be replayed."""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.ids import NodeId

NodeEvent = e.NodeDrained | e.NodeUndrained | e.NodeLost | e.NodeRecovered


class Outage(msgspec.Struct, frozen=True):
    """The beginning or the end of one."""

    after_ms: int
    """From the first submission of the trace; not negative."""
    event: NodeEvent


class Outages:
    """What a log says of nodes, from `since_ms` on; and how they stood then."""

    def __init__(self, since_ms: int) -> None:
        self._since = since_ms
        self._names: dict[NodeId, str] = {}
        self._before: dict[str, NodeEvent] = {}
        """Nodes that took no work when the stretch began."""
        self._found: list[tuple[int, str, NodeEvent]] = []

    def configured(self, nodes: Iterable[Node]) -> None:
        """Take note of what the nodes are called from now on."""
        self._names = {node.id: node.name for node in nodes}

    def feed(self, at: int, event: NodeEvent) -> None:
        """Take the next event of a node."""
        name = self._names.get(event.node, "")
        if at >= self._since:
            self._found.append((at, name, event))
        elif isinstance(event, e.NodeDrained | e.NodeLost):
            self._before[name] = event
        else:
            self._before.pop(name, None)

    def result(self, nodes: Sequence[Node], first_ms: int) -> tuple[Outage, ...]:
        """Return what happened to those of these nodes that are still called the same."""
        ids = {node.name: node.id for node in nodes}
        found = [*((first_ms, name, event) for name, event in self._before.items())]
        found += self._found
        return tuple(
            Outage(max(0, at - first_ms), msgspec.structs.replace(event, node=ids[name]))
            for at, name, event in found
            if name in ids
        )
