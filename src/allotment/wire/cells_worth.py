"""What cells hold in sum: devices, and a part of their nodes' CPU, memory and disk."""

from collections.abc import Sequence

from allotment.model.cell_quota import Shape, Span, shapes_of, span_of
from allotment.model.cells import PinnedCell, Topology
from allotment.model.cluster import Node
from allotment.model.quantity import DEVICE, NOTHING, Resources

Row = tuple[Node, tuple[int, ...]]
"""A node of a chain, and the devices that are its leaves; none for shares of the host."""


class Worth:
    """Amounts by cell. A part of a node has the part of its host that its leaves have of all.

    Nodes of a chain may differ in CPU and memory; a cell that may be any of its type counts
    as the poorest.
    """

    def __init__(self, topology: Topology, nodes: Sequence[Node]) -> None:
        self._topology = topology
        self.shapes = shapes_of(topology)
        by_id = {node.id: node for node in nodes}
        self._rows: dict[str, list[Row]] = {chain: [] for chain in self.shapes}
        for root in topology.roots:
            shape = self.shapes[root.type]
            usual = tuple(range(shape.leaves(shape.node)))
            for at, node in enumerate(root.nodes):
                listed = root.devices[at] if root.devices else usual
                found = by_id[node]
                self._rows[root.type].append((found, listed if found.devices else ()))
        self._least: dict[tuple[str, str], Resources] = {}

    def of_type(self, chain: str, kind: str) -> Resources:
        """Return the least that a cell of a type has. O(nodes) for the first time."""
        key = (chain, kind)
        if key not in self._least:
            shape = self.shapes[chain]
            place = shape.types.index(kind)
            self._least[key] = _least(
                [self._of(span) for span in self._spans(chain, shape, place)]
            )
        return self._least[key]

    def of_pin(self, pin: PinnedCell) -> Resources:
        """Return what a pinned cell has."""
        span = span_of(self._topology, self.shapes, pin)
        return self._of(span) if span else NOTHING

    def _spans(self, chain: str, shape: Shape, place: int) -> list[Span]:
        """List the cells of a place; within nodes, of one node of each kind."""
        rows, size = self._rows[chain], shape.leaves(place)
        width = shape.leaves(shape.node)
        if place <= shape.node:
            cells = len(rows) * width // size
            return [Span(chain, place, at * size, size) for at in range(cells)]
        kinds = {_kind(row): at for at, row in enumerate(rows)}
        return [
            Span(chain, place, at * width + first, size)
            for at in kinds.values()
            for first in range(0, width, size)
        ]

    def _of(self, span: Span) -> Resources:
        shape, total = self.shapes[span.chain], NOTHING
        width = shape.leaves(shape.node)
        end = span.first + span.count
        for at in range(span.first // width, (end - 1) // width + 1):
            first, last = max(span.first - at * width, 0), min(end - at * width, width)
            total += _part(self._rows[span.chain][at], first, last, width)
        return total


def _part(row: Row, first: int, last: int, width: int) -> Resources:
    """Return what some leaves of a node have."""
    node, devices = row
    part, whole = last - first, max(width, len(node.devices))
    return Resources(
        gpu_milli=part * DEVICE if devices else 0,
        cpu_milli=node.cpu_milli * part // whole,
        memory=node.memory * part // whole,
        disk=node.disk * part // whole,
        gpu_memory=sum(node.devices[index].memory for index in devices[first:last]),
    )


def _kind(row: Row) -> tuple[object, ...]:
    node, devices = row
    memory = tuple(node.devices[index].memory for index in devices)
    return node.cpu_milli, node.memory, node.disk, len(node.devices), memory


def _least(amounts: Sequence[Resources]) -> Resources:
    return Resources(
        *(
            min(int(getattr(amount, field)) for amount in amounts)
            for field in Resources.__struct_fields__
        )
    )
