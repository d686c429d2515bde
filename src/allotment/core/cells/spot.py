"""Where a task lies in a chain of cells."""

import msgspec


class Spot(msgspec.Struct, frozen=True, gc=False):
    """Where one slot lies: on which leaves of which node of which chain."""

    chain: int
    node: int
    mask: int
    milli: int
    """What it uses of each leaf, in thousandths: of the device or of its memory, whichever
    is more."""
    claim: int
    """Leaves whose share of the host it needs beside those it sits on."""
    beside: int = 0
    """Which these are, where its tenant's cells are smaller than a node."""
    is_part: bool = False
    """Whether it asks for a part of a device: then others may sit on the same leaf."""
