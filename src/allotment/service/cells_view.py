"""Read models of cells: what `allot cells`, `allot tenants`, the API and the page show."""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import Moment


class CellState(StrEnum):
    """What a cell is used for. Of several that hold, the first in this order counts."""

    USED = "used"
    """A guaranteed job of its owner sits in it."""
    LENT = "lent"
    """A borrower uses it, and is evicted when a tenant reclaims it."""
    BAD = "bad"
    """Nothing runs there, and all of it is drained, lost or broken."""
    BOUND = "bound"
    """It belongs to a tenant now and is idle: pinned, or reserved, or beside its jobs."""
    FREE = "free"
    """It belongs to no tenant at the moment."""
    SUSPECT = "suspect"
    """As `bad`, but none of it is known to be broken: it is suspect at worst."""


class CellOwner(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tenant's own cell that this one is, is part of, or contains; later it may be another.

    `leaves` are its places in this cell, where it is no larger than a node.
    """

    tenant: str
    type: str
    pin: str = ""
    leaves: tuple[int, ...] = ()


class CellUser(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job in a cell, or with a reserved place in it."""

    job: JobId
    tenant: str
    borrows: bool = False
    reserved: bool = False
    leaves: tuple[int, ...] = ()


class CellView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One cell. Its leaves are counted by what they are used for, each once."""

    name: str
    """Its way from the root: `r1/0/2`."""
    type: str
    state: CellState
    health: str
    """`healthy`, or the worst of its parts: `suspect`, `bad`, `lost`, `drained`."""
    leaves: int
    free: int = 0
    bound: int = 0
    used: int = 0
    lent: int = 0
    bad: int = 0
    """Leaves out of use; those that are in use still count as used or lent."""
    since: Moment = 0
    """Since when it is not healthy, in ms since the epoch."""
    node: str = ""
    """The machine it is, or is part of; '' for larger ones."""
    device: str = ""
    """For a leaf that is a device: its index on the machine."""
    marks: str = ""
    """For a node or a part of one, a letter for each leaf: `.` free, `o` bound, `u` used,
    `l` lent, `x` bad."""
    owners: tuple[CellOwner, ...] = ()
    users: tuple[CellUser, ...] = ()
    cells: tuple["CellView", ...] = ()
    """The cells it is made of, down to the level asked for."""


class CellTree(msgspec.Struct, frozen=True):
    """All cells of a cluster, by chain; none where shares are counted."""

    levels: tuple[tuple[str, ...], ...]
    """The types of each chain, from the leaf up."""
    tenants: tuple[str, ...]
    roots: tuple[CellView, ...]


class DownPart(msgspec.Struct, frozen=True):
    """A node, or one device of it (`n3:5`), that takes no new work."""

    name: str
    since: Moment
    """In ms since the epoch; 0 if that is not known."""


class TenantCells(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tenant's cells of one type. `guaranteed` is its guarantee: used + free + lost."""

    type: str
    chain: str
    """The top type under which they lie."""
    pin: str = ""
    guaranteed: int = 0
    used: int = 0
    """Cells that its jobs are in, or have a reserved place in."""
    broken: int = 0
    """Those of them of which a part is out of use."""
    free: int = 0
    """Cells it is sure to get at once, by eviction of borrowers where need be."""
    lent: int = 0
    """Those of them that borrowers sit in."""
    borrowed: int = 0
    """Leaves of the chain that its jobs borrow; told with the leaf's own type."""
    lost: int = 0
    """Cells it may not get whole while hardware is down."""
    lost_with: tuple[str, ...] = ()
    """Other tenants with the same guarantee: the last one to ask does not get it."""
    hurt: tuple[DownPart, ...] = ()
    """The hardware of `broken` cells that is down."""
    down: tuple[DownPart, ...] = ()
    """Where anything is lost: the hardware of the chain that is down and in no tenant's cells;
    of a pinned cell, its own."""
