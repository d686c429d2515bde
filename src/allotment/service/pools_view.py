"""Pools of nodes, and how many more nodes would let waiting jobs start.

Prices are in thousandths of a unit of money for an hour, null where they are not known.
"""

import msgspec

from allotment.model.ids import JobId
from allotment.model.pools import Added
from allotment.model.quantity import Moment, Resources


class PoolView(msgspec.Struct, frozen=True):
    """A pool: what a node of it is like, how many there are, how many more are wanted."""

    name: str
    nodes: int
    """How many it has."""
    each: Resources
    """What a node of it has."""
    device_type: str
    """'' where its nodes have no devices."""
    engine: str
    price_milli: int | None
    """Of a node."""
    most: int | None
    """How many nodes it may have; null where nothing bounds that."""
    wanted: int
    """How many more would let the jobs start that more nodes help."""


class WayView(msgspec.Struct, frozen=True):
    """Nodes that would let a job start."""

    add: tuple[Added, ...]
    price_milli: int | None
    """Of all of them."""


class HelpedJob(msgspec.Struct, frozen=True):
    """A waiting job that no present nodes let start, and more nodes would."""

    job: JobId
    name: str
    tenant: str
    queue: str
    need: Resources
    """Of all its tasks."""
    ways: tuple[WayView, ...]
    """The cheapest first, which is what those after it count with. Empty where the nodes that
    those before it need are enough for this one, too."""


class MoreNodes(msgspec.Struct, frozen=True):
    """Which pools there are, and which jobs wait for more nodes, in the order of the queues."""

    asked_at: Moment
    pools: tuple[PoolView, ...]
    jobs: tuple[HelpedJob, ...]
    waiting: int
    """Jobs that wait for a place; those that start by themselves are not among them."""
    looked_at: int
    """How many of these were looked at, the first ones."""
