"""Cells: hardware that lies together, level by level, and what of it a tenant is guaranteed.

A cell type says what it is made of: `v100-node` of 2 `v100-socket` of 4 `V100`. A name that
is not the name of a type is a *leaf*: one device of that model. All cells of one top type
form a *chain*; within a chain every cell of a type has the same shape (HiveD, OSDI'20, 3.1).
"""

import msgspec

from allotment.model.ids import NodeId


class CellType(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """So many alike cells, or leaves, that lie together. One type of each chain is a node."""

    name: str
    child: str
    count: int
    is_node: bool = False
    label: str = ""
    """The label of nodes that says in which cell of this type each lies; '' where `roots` say
    it."""


class RootCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cell that is part of no other: its nodes in order, and its leaves on each.

    `devices` gives the device index of every leaf, node by node, in the order in which
    leaves lie together; empty stands for 0, 1, 2 … on each. Leaves of a machine without
    devices are equal shares of its CPU and memory.
    """

    type: str
    name: str
    nodes: tuple[NodeId, ...]
    devices: tuple[tuple[int, ...], ...] = ()


class PinnedCell(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One particular cell: that of a type which holds a leaf. One tenant has it for good."""

    id: str
    type: str
    node: NodeId
    leaf: int = 0
    """The leaf's place on its node, counted in the order in which leaves lie together."""


class Topology(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the hardware lies together; empty if that does not matter."""

    types: tuple[CellType, ...] = ()
    roots: tuple[RootCell, ...] = ()
    pins: tuple[PinnedCell, ...] = ()


class CellShare(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a tenant is guaranteed: so many whole cells of one type.

    `chain` is the top type under which they lie; it may be left out when only one has them.
    """

    type: str
    count: int
    chain: str = ""
