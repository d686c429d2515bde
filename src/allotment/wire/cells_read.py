"""Cells as written into the model's topology, with everything that cannot be."""

from collections.abc import Iterator, Mapping, Sequence

from allotment.model.cell_quota import Shape, Span, shapes_of, span_of
from allotment.model.cells import CellType, PinnedCell, RootCell, Topology
from allotment.model.cells_by_label import made_of
from allotment.model.cluster import Node
from allotment.wire.cells_hardware import Hardware
from allotment.wire.cells_labels import wrong_labels
from allotment.wire.cells_roots import Laid, RootReader, left_out
from allotment.wire.cells_shape import CellsShape, PinShape, RootShape
from allotment.wire.cells_types import TYPES, Chain, chain_from, circles, near, no_such_type
from allotment.wire.problems import Finding
from allotment.wire.tree import Place

PINS: Place = ("cells", "pins")
ROOTS: Place = ("cells", "roots")
MOST_ODD = 10
"""Groups of nodes that make no cell, of which there are warnings."""
MENDS = "correct the labels of its nodes, or add a type of that size"


def topology_of(
    shape: CellsShape, made: Hardware, nodes: Sequence[Node]
) -> tuple[Topology, list[Finding], list[Finding]]:
    """Return the topology of what is listed and of `hardware`, with errors and warnings."""
    types = listed_types(shape)
    errors = [*_same_types(types, made.types), *circles(types)]
    types = made.types | types
    errors += wrong_labels(shape, types) if not errors else []
    if errors:
        return Topology(), errors, []
    laid = _laid(shape, types, nodes)
    errors += [*laid.errors, *_same_roots(laid.roots, made.roots)]
    topology = Topology(tuple(types.values()), (*laid.roots, *made.roots))
    if errors:
        return topology, errors, []
    pins, errors = _pins(shape.pins, topology, nodes)
    warnings = laid.warnings
    if topology.roots:
        chains = {root.type: _chain(root.type, types) for root in topology.roots}
        outside = left_out(topology.roots, chains, nodes)
        warnings += [(ROOTS, message, "") for message in outside]
    return Topology(topology.types, topology.roots, tuple(pins)), errors, warnings


def listed_types(shape: CellsShape) -> dict[str, CellType]:
    """Return the cell types that are listed, by name."""
    return {
        name: CellType(name, kind.of, kind.count, kind.node, kind.label)
        for name, kind in shape.types.items()
    }


def _chain(top: str, types: Mapping[str, CellType]) -> Chain:
    chain = chain_from(top, types)
    if isinstance(chain, Chain):
        return chain
    raise ValueError(f"{top} {chain[0]}")


def _laid(shape: CellsShape, types: Mapping[str, CellType], nodes: Sequence[Node]) -> Laid:
    reader = RootReader(types, nodes)
    for at, root in enumerate(shape.roots):
        reader.read(root, (*ROOTS, at))
    found = made_of(types, nodes)
    for cell in found.cells:
        root = RootShape(type=cell.type, name=cell.name, nodes=list(cell.nodes))
        reader.read(root, (*TYPES, cell.type, "label"))
    for odd in found.odd[:MOST_ODD]:
        message = f"{odd.why}: in no cell of {odd.type}"
        reader.laid.warnings.append(((*TYPES, odd.type, "label"), message, MENDS))
    return reader.laid


def _same_types(
    listed: Mapping[str, CellType], made: Mapping[str, CellType]
) -> Iterator[Finding]:
    for name, kind in listed.items():
        if made.get(name, kind) != kind:
            message = f"`hardware` makes a type {name} that is not the same"
            yield (*TYPES, name), message, "choose another name"


def _same_roots(listed: Sequence[RootCell], made: Sequence[RootCell]) -> Iterator[Finding]:
    names = {root.name for root in made}
    for root in listed:
        if root.name in names:
            yield ROOTS, f"`hardware` makes a root {root.name} too", "choose another name"


# ── pinned cells ────────────────────────────────────────────────────────────────────────


def _pins(
    shapes: Sequence[PinShape], topology: Topology, nodes: Sequence[Node]
) -> tuple[list[PinnedCell], list[Finding]]:
    """Make out the pinned cells: each there, each apart from the others."""
    pins: list[PinnedCell] = []
    errors: list[Finding] = []
    spans: dict[str, Span] = {}
    chains = shapes_of(topology)
    by_name = {node.name: node for node in nodes}
    for at, shape in enumerate(shapes):
        place: Place = (*PINS, at)
        if shape.id in spans:
            errors.append(((*place, "id"), f"{shape.id} is given twice", "choose another id"))
            continue
        pin = _pin(shape, topology, chains, by_name)
        if not isinstance(pin, PinnedCell):
            errors.append(((*place, pin[0]), *pin[1:]))
            continue
        span = span_of(topology, chains, pin)
        if span is None:
            continue
        over = [name for name, other in spans.items() if span.overlaps(other)]
        if over:
            message = f"{shape.id} and {over[0]} have hardware in common"
            errors.append((place, message, "pin cells that lie apart"))
        spans[shape.id] = span
        pins.append(pin)
    return pins, errors


def _pin(
    shape: PinShape,
    topology: Topology,
    chains: Mapping[str, Shape],
    nodes: Mapping[str, Node],
) -> PinnedCell | tuple[str, str, str]:
    """Make out one; the key that is wrong, what is wrong, and a hint, where it cannot be."""
    node = nodes.get(shape.node)
    if node is None:
        hint = near(shape.node, list(nodes), "nodes")
        return "node", f"there is no node {shape.node}", hint
    tops = [top for top, chain in chains.items() if shape.type in chain.types]
    if not tops:
        types = {kind.name: kind for kind in topology.types}
        if shape.type in types:
            return (
                "type",
                f"there is no root with {shape.type} in it",
                "add one to `cells.roots`",
            )
        return "type", *no_such_type(shape.type, types)
    roots = [root for root in topology.roots if root.type in tops and node.id in root.nodes]
    if not roots:
        return "node", f"{shape.node} lies in no {shape.type}", "name a node that does"
    chain = chains[roots[0].type]
    small = chain.types.index(shape.type) > chain.node
    if shape.device is None:
        if small:
            hint = "name any of its devices, such as device: 0"
            return "device", f"is missing: {shape.node} has more than one {shape.type}", hint
        return PinnedCell(shape.id, shape.type, node.id)
    leaf = _leaf(roots[0], node, shape.device, chain.leaves(chain.node))
    if leaf is None:
        message = f"device {shape.device} of {shape.node} is in no {shape.type}"
        return "device", message, "`cells.roots` says which devices lie where"
    size = chain.leaves(chain.types.index(shape.type))
    return PinnedCell(shape.id, shape.type, node.id, leaf // size * size if small else 0)


def _leaf(root: RootCell, node: Node, device: int, width: int) -> int | None:
    """Find the place of a device among the leaves of its node."""
    if not root.devices:
        return device if device < width else None
    row = root.devices[root.nodes.index(node.id)]
    return row.index(device) if device in row else None
