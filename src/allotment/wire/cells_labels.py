"""Labels of cell types as written, and what cannot be."""

from collections.abc import Iterator, Mapping

from allotment.model.cells import CellType
from allotment.model.cells_by_label import EACH, word_of
from allotment.wire.cells_shape import CellsShape
from allotment.wire.cells_types import TYPES, Chain, chain_from
from allotment.wire.problems import Finding


def wrong_labels(shape: CellsShape, types: Mapping[str, CellType]) -> Iterator[Finding]:
    """Find labels that make no cells. The types must not go round in circles."""
    listed = {root.type for root in shape.roots}
    for name in (name for name, kind in types.items() if kind.label):
        place = (*TYPES, name, "label")
        chain = chain_from(name, types)
        if not isinstance(chain, Chain):
            yield place, f"is given, and {name} {chain[0]}", chain[1]
            continue
        if name in listed:
            message = f"makes the cells of {name}, and `roots` lists some, too"
            yield place, message, "take one of the two out"
        if types[name].is_node:
            if types[name].label != EACH:
                message = f"is {types[name].label}, and each node is a {name}"
                yield place, message, f"label: {EACH}"
            continue
        levels = [types[each] for each in chain.types if each in types]
        above = levels[: next(at for at, kind in enumerate(levels) if kind.is_node)]
        if without := next((kind.name for kind in above if not kind.label), ""):
            message = f"is missing: {name} of {without} is found by labels"
            hint = "name the label of nodes that says in which they lie"
            yield (*TYPES, without, "label"), message, hint
        keys = [word_of(kind.label) for kind in above]
        if len(set(keys)) < len(keys):
            yield place, "is the label of a cell within it, too", "name another label"
