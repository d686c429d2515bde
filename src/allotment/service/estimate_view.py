"""An estimate of a job's start: when, where, by which entitlement, and how sure it is.

Instants are milliseconds since the epoch.
"""

from enum import StrEnum

import msgspec

from allotment.model.forecast import Counted
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Moment


class Outlook(StrEnum):
    """What is said, in a word."""

    STARTED = "started"
    """It has a place already."""
    NOW = "now"
    """Nothing keeps it: it starts in the next cycle."""
    LATER = "later"
    """It waits, and when it starts was worked out."""
    UNKNOWN = "unknown"
    """The start cannot be estimated: too much is unknown, or it is too far away."""
    NEVER = "never"
    """It does not start at all at present; `note` says why."""


class Place(msgspec.Struct, frozen=True):
    """Where tasks would run: the node, and which of its devices."""

    node: str
    devices: tuple[int, ...] = ()


class StartEstimate(msgspec.Struct, frozen=True):
    """When a job starts, as a range, and what that rests on."""

    job: JobId | None
    """null for one that was not submitted."""
    name: str
    outlook: Outlook
    asked_at: Moment
    earliest: Moment | None = None
    """In the best of three runs; null where it did not start in any."""
    expected: Moment | None = None
    """In the middle one."""
    latest: Moment | None = None
    """In the worst; null where that was not seen."""
    not_before: Moment | None = None
    """Up to here the middle run saw what happens, and it had not started. null where that hangs
    on something of which no end is known."""
    places: tuple[Place, ...] = ()
    """Where it starts in the expected run."""
    entitlement: Entitlement | None = None
    """Whether it would be there by right, or until an owner wants it back."""
    basis: tuple[Counted, ...] = ()
    """The jobs that hold places before it, by what their run times were taken from."""
    confidence: str = ""
    note: str = ""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Of a job that was not submitted: what its submission would warn of."""
    brings: tuple[str, ...] = ()
    """Of such a job: what would be fetched, built, mounted and kept for it, and how much."""
    endless: tuple[JobId, ...] = ()
    """Jobs in its way whose run time is unknown, so that its start cannot be estimated."""
    borrowed: tuple[str, ...] = ()
    """The parts that it would borrow: `gpu`, `cpu` …"""


class Accuracy(msgspec.Struct, frozen=True):
    """How good the estimates of a stretch were. Each that was given counts once."""

    since: Moment
    given: int
    """All that were given."""
    judged: int
    """Of those, of jobs that have started since."""
    median_error_ms: int | None = None
    """Between the expected start and the real one, either way."""
    within: int = 0
    """Starts within the range that was given, in whole seconds and up to one after it."""
    ranges: int = 0
    """Judged estimates that had a range with two ends."""
    waiting: int = 0
    """Of jobs that have not started yet."""
    never: int = 0
    """Of jobs that ended without having started."""
