"""Hardware that is not healthy, as the API takes reports and shows it."""

from typing import Literal

import msgspec

from allotment.model.health import HardwareHealth, Source
from allotment.model.ids import JobId
from allotment.model.quantity import Moment


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
    """The source of the report; None if it is healthy."""
    code: str = ""
    words: str = ""
    who: str = ""
    final: bool = False
    """An administrator's word, which holds until withdrawn."""
    since: Moment = 0
    """Since when there is trouble."""
    changed_at: Moment = 0
    """Since when it is suspect, or bad."""
    jobs: tuple[JobId, ...] = ()
    """The jobs on it, which run on."""
    held_back: bool = False
    """It would be suspect or bad, but more would be out of use than may be by itself: it is
    used until an administrator confirms that it is bad."""
    suspected: int = 0
    """How often it was made suspect or bad by automatic means in the last 30 days."""
