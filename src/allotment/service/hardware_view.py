"""Hardware that is not well: who says so of what, as the API takes it and shows it."""

from typing import Literal

import msgspec

from allotment.model.health import HardwareHealth, Source
from allotment.model.ids import JobId


class HealthNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator, or a probe of the administrator's, says of hardware."""

    where: str
    """`NODE`, `NODE:DEVICE`, or a cell by its way from the root: `r1/2/0`."""
    ok: bool = False
    because: str = ""
    source: Literal["admin", "probe"] = "admin"
    """An administrator's word is final; a probe's is weighed."""
    code: str = ""
    """What the trouble is, for programs; of a probe's."""
    since: int = 0
    """Since when it is so, in milliseconds since the epoch; 0 for now. Of a probe's."""


class HardwareView(msgspec.Struct, frozen=True):
    """How a node, or one device of it, is."""

    node: str
    device: int | None
    """None for the node as a whole."""
    health: HardwareHealth
    by: Source | None = None
    """Who says so; None where all is well."""
    code: str = ""
    words: str = ""
    who: str = ""
    final: bool = False
    """An administrator's word, which holds until withdrawn."""
    since: int = 0
    """Since when there is trouble."""
    changed_at: int = 0
    """Since when it is suspect, or bad."""
    jobs: tuple[JobId, ...] = ()
    """Who is on it, and runs on."""
