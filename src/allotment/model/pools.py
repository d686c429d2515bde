"""Pools of nodes that are alike, of which there can be more, and what more of them would help.

A node is of the pool that its label POOL names. Prices are in thousandths of a unit of money,
of one currency everywhere.
"""

import msgspec

from allotment.model.cluster import Node
from allotment.model.ids import JobId
from allotment.model.quantity import Instant, Millis

POOL = "pool"
"""The label of a node that names its pool."""
PRICE = "price"
"""The label of a node that says what it costs for an hour."""
UNKNOWN = -1


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the configuration says of a pool; the rest is seen of its nodes."""

    name: str
    price_milli: int = UNKNOWN
    """Of a node for an hour; UNKNOWN where that is not said."""
    most: int = UNKNOWN
    """How many nodes it may have; UNKNOWN where that is not said."""
    node: Node | None = None
    """What a node of it is like; None where it is to be seen of one that is there."""


class Growable(msgspec.Struct, frozen=True):
    """A pool to which nodes could be added."""

    name: str
    node: Node
    """What each would be like."""
    there: int
    """How many it has now."""
    price_milli: int = UNKNOWN
    most: int = UNKNOWN


class MoreQuestion(msgspec.Struct, frozen=True):
    """A live state, and the pools that could have more nodes."""

    now: Instant
    image: bytes
    """The state, as it is kept in a snapshot."""
    pools: tuple[Growable, ...]
    patience_ms: Millis
    """Real time after which no further job is looked at."""


class Added(msgspec.Struct, frozen=True):
    """So many nodes more of a pool."""

    pool: str
    nodes: int


class Way(msgspec.Struct, frozen=True):
    """Nodes that would let a job start, and what they cost for an hour together."""

    add: tuple[Added, ...]
    price_milli: int = UNKNOWN


class Helped(msgspec.Struct, frozen=True):
    """A waiting job that more nodes would let start: the ways, the cheapest first.

    Those before it in this list have the first of their ways, and what is left of it is there
    for this one.
    """

    job: JobId
    ways: tuple[Way, ...]
    """None where what those before it need is enough for this one, too."""


class MoreAnswer(msgspec.Struct, frozen=True):
    """All jobs that more nodes would let start, in the order of the queues."""

    helped: tuple[Helped, ...] = ()
    looked_at: int = 0
    """How many waiting jobs were looked at."""
    waiting: int = 0
    """How many there are that no present nodes are to let start."""
