"""HiveD's physical cells, laid out: which node each is on, and which leaves it has.

Addresses follow HiveD's rules. A cell is at its parent's address, a slash, and its own, or
a default: its place counted through the cells above that were not given one, from 0 anew
on every node. A node is named by the last part, and so is a leaf, by a number.
"""

import msgspec

from allotment.wire.hived_shape import HivedCell, HivedCellType
from allotment.wire.problems import Finding
from allotment.wire.tree import Place

MOST_LEAVES = 100_000
MOST_INDEX = 1_023
UNNAMED = HivedCell.model_validate({})


class LaidNode(msgspec.Struct):
    """A machine of a root, and its leaves in the order in which they lie together."""

    name: str
    place: Place
    leaves: list[int] = []


class LaidPin(msgspec.Struct, frozen=True):
    """A pinned cell. `leaf` is the first of its leaves among those of its first node."""

    id: str
    type: str
    node: str
    leaf: int
    place: Place


class LaidRoot(msgspec.Struct):
    """A top cell with all below."""

    type: str
    address: str
    leaf: str = ""
    nodes: list[LaidNode] = []
    pins: list[LaidPin] = []
    errors: list[Finding] = []


def laid_out(cell: HivedCell, at: int, types: dict[str, HivedCellType]) -> LaidRoot:
    """Lay out the at-th top cell. There must be no circles in the types."""
    place: Place = ("physicalCluster", "physicalCells", at)
    root = LaidRoot(cell.type, cell.address or str(at))
    if cell.type not in types:
        message = f"there is no cell type {cell.type}" if cell.type else "is missing"
        root.errors.append(((*place, "cellType"), message, "name one of `cellTypes`"))
        return root
    _Layer(root, types).lay(cell, cell.type, at, place, "")
    if not root.nodes and not root.errors:
        message = f"{cell.type} is not a machine, and is not made of any"
        hint = "a top cell is a node (isNodeLevel) or has nodes in it"
        root.errors.append(((*place, "cellType"), message, hint))
    return root


class _Layer:
    """Walks down one top cell. Recursion is bounded by the number of types."""

    def __init__(self, root: LaidRoot, types: dict[str, HivedCellType]) -> None:
        self._root = root
        self._types = types
        self._count = 0
        self._inside = False

    def lay(self, cell: HivedCell, kind: str, default: int, place: Place, above: str) -> None:
        """Lay one cell; `default` is its place, `above` the address of its parent."""
        root = self._root
        address = above + (cell.address or str(default))
        if cell.type and cell.type != kind:
            message = f"is {cell.type}, and what lies here is a {kind}"
            root.errors.append(((*place, "cellType"), message, "take it out"))
        known = self._types.get(kind)
        entered = known is not None and known.is_node and not self._inside
        if entered:
            self._inside = True
            root.nodes.append(LaidNode(address.rpartition("/")[2], place))
        inside = self._inside
        first = len(root.nodes) - 1 if inside else len(root.nodes)
        leaf = len(root.nodes[-1].leaves) if inside else 0
        if known is None:
            self._leaf(kind, address, place)
        else:
            self._children(cell, known, 0 if known.is_node else default, place, address)
        if cell.pin and first < len(root.nodes) and not root.errors:
            where = (*place, "pinnedCellId")
            root.pins.append(LaidPin(cell.pin, kind, root.nodes[first].name, leaf, where))
        if entered:
            self._inside = False

    def _children(
        self, cell: HivedCell, known: HivedCellType, default: int, place: Place, address: str
    ) -> None:
        root = self._root
        children = cell.children or [UNNAMED] * known.count
        if len(children) != known.count:
            message = f"has {len(children)} cells, and there are {known.count} {known.child}"
            hint = "list all of them, or none"
            root.errors.append(((*place, "cellChildren"), message, hint))
            return
        for at, child in enumerate(children):
            if root.errors:
                return
            where = (*place, "cellChildren", at) if cell.children else place
            self.lay(child, known.child, default * known.count + at, where, f"{address}/")

    def _leaf(self, kind: str, address: str, place: Place) -> None:
        root = self._root
        root.leaf = kind
        self._count += 1
        if self._count > MOST_LEAVES:
            message = f"has more than {MOST_LEAVES:,} leaves"
            root.errors.append((place, message, "check the counts"))
        if not self._inside:
            return
        last = address.rpartition("/")[2]
        where = (*place, "cellAddress")
        if not last.isdecimal() or int(last) > MOST_INDEX:
            message = f"{last} is not the index of a device on its node"
            root.errors.append((where, message, "leaves are numbered 0, 1, 2 …"))
        elif int(last) in root.nodes[-1].leaves:
            message = f"{root.nodes[-1].name} has two leaves {last}"
            root.errors.append((where, message, "number them apart"))
        else:
            root.nodes[-1].leaves.append(int(last))
