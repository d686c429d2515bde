"""Cells back into what the configuration says of them."""

from collections.abc import Mapping, Sequence

from allotment.model.cell_quota import shapes_of
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.wire.tree import Plain

Written = dict[str, Plain]


def topology_to_wire(topology: Topology, nodes: Sequence[Node]) -> Written:
    """Return a topology as it is written: every type and root by itself, but for the roots
    that labels of nodes make."""
    names = {node.id: node.name for node in nodes}
    by_label = {kind.name for kind in topology.types if kind.label}
    return {
        "types": {kind.name: type_to_wire(kind) for kind in topology.types},
        "roots": [_root(root, names) for root in topology.roots if root.type not in by_label],
        "pins": [_pin(pin, topology, names) for pin in topology.pins],
    }


def type_to_wire(kind: CellType) -> Written:
    """Return a cell type as it is written."""
    label: Written = {"label": kind.label} if kind.label else {}
    return {"of": kind.child, "count": kind.count, "node": kind.is_node, **label}


def shares_to_wire(cells: Sequence[CellShare]) -> Written:
    """Return a tenant's guarantee as it is written, one entry for each type."""
    written: dict[str, int] = {}
    for share in cells:
        key = f"{share.chain}/{share.type}" if share.chain else share.type
        written[key] = written.get(key, 0) + share.count
    return dict(written)


def _root(root: RootCell, names: Mapping[NodeId, str]) -> Written:
    nodes: list[Plain] = [names[node] for node in root.nodes]
    devices: list[Plain] = [[*row] for row in root.devices]
    given: Written = {"devices": devices} if devices else {}
    return {"type": root.type, "name": root.name, "nodes": nodes, **given}


def _pin(pin: PinnedCell, topology: Topology, names: Mapping[NodeId, str]) -> Written:
    """Write a pinned cell; of one smaller than a node, a device that lies in it."""
    written: Written = {"id": pin.id, "type": pin.type, "node": names[pin.node]}
    for root in topology.roots:
        shape = shapes_of(Topology(topology.types, (root,)))[root.type]
        if pin.node not in root.nodes or pin.type not in shape.types:
            continue
        if shape.types.index(pin.type) > shape.node:
            row = root.devices[root.nodes.index(pin.node)] if root.devices else ()
            written["device"] = row[pin.leaf] if row else pin.leaf
    return written
