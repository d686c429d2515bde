"""Cells in the configuration, as pydantic models: how the hardware lies together."""

from typing import Annotated

from pydantic import Field, PlainValidator

from allotment.wire import amounts
from allotment.wire.fields import Name, NodeName, NodeNameOrNone, Truth, Word
from allotment.wire.job_shape import Shape

MOST_PARTS = 100_000
"""Cells, or leaves, that a cell is made of."""
MOST_INDEX = 1_023
"""The highest index of a device on its node."""


def read_parts(value: object) -> int:
    """Read of how many cells a cell is made."""
    return amounts.read_whole(value, 1, MOST_PARTS)


def read_share_count(value: object) -> int:
    """Read how many cells of a type a tenant is guaranteed; 0 is a number like others."""
    return amounts.read_whole(value, 0, amounts.MOST_TASKS)


def read_index(value: object) -> int:
    """Read the index of a device on its node."""
    return amounts.read_whole(value, 0, MOST_INDEX)


Parts = Annotated[int, PlainValidator(read_parts, json_schema_input_type=int)]
ShareCount = Annotated[int, PlainValidator(read_share_count, json_schema_input_type=int)]
Index = Annotated[int, PlainValidator(read_index, json_schema_input_type=int)]


class CellTypeShape(Shape):
    """A type of cells: so many of another type, or of a device, that lie together."""

    of: Word = Field(examples=["V100"])
    count: Parts = Field(examples=["8"])
    node: Truth = False
    label: Word = Field(default="", examples=["topology.kubernetes.io/zone"])


class RootShape(Shape):
    """A cell that is part of no other."""

    type: Name = Field(examples=["v100-rack"])
    name: NodeNameOrNone = ""  # By default that of its only node.
    nodes: list[NodeName] = Field(examples=["[n1, n2]"])
    devices: list[list[Index]] = Field(default=[], examples=["[[0, 1, 2, 3]]"])


class PinShape(Shape):
    """One particular cell, to be given to one tenant for good."""

    id: Name = Field(examples=["vision-own"])
    type: Word = Field(examples=["v100-socket"])
    node: NodeName = Field(examples=["n3"])
    device: Index | None = None


class CellsShape(Shape):
    """How the hardware lies together."""

    types: dict[Name, CellTypeShape] = Field(
        default={}, examples=["{v100-node: {of: V100, count: 8, node: true}}"]
    )
    roots: list[RootShape] = Field(default=[], examples=["[{type: v100-node, nodes: [n1]}]"])
    pins: list[PinShape] = Field(
        default=[], examples=["[{id: own, type: v100-node, node: n1}]"]
    )
