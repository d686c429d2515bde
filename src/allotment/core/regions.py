"""Which nodes lie together: by the level of a label, such as rack or switch.

One step towards cells: a gang may have to lie, or had better lie, within one of them.
"""

from collections.abc import Sequence

from allotment.model.cluster import Node
from allotment.model.ids import NodeId

NODE = "node"
"""The level of which each node is one."""


class Regions:
    """The groups of each level. Nodes without a label of that level form one group."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._levels: dict[str, tuple[tuple[NodeId, ...], ...]] = {}

    def of(self, level: str) -> tuple[tuple[NodeId, ...], ...]:
        """Return groups of a level, in the order of their first nodes. O(1) but for once."""
        found = self._levels.get(level)
        if found is None:
            groups: dict[str, list[NodeId]] = {}
            for node in self._nodes:
                name = str(node.id) if level == NODE else dict(node.labels).get(level, "")
                groups.setdefault(name, []).append(node.id)
            found = self._levels[level] = tuple(tuple(ids) for ids in groups.values())
        return found

    def together(self, level: str, nodes: set[NodeId]) -> bool:
        """Whether these nodes lie in one group of a level."""
        return any(nodes <= set(group) for group in self.of(level))
