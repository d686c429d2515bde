"""Why a job waits, or was stopped. A closed list: users and programs rely on it."""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Instant, Resources


class Reason(StrEnum):
    """Why a job waits. Of several that hold, the first in this order is the dominant one."""

    HELD = "held"
    DEPENDENCY = "dependency"
    BACKOFF = "backoff"
    ARRAY_CAP = "array_cap"
    QUEUE_STOPPED = "queue_stopped"
    """Its queue, or a queue around that, is stopped: no job in it starts."""
    USER_CAP = "user_cap"
    """Its user, or the user's group, holds all that the cap of the tenant or queue allows."""
    QUEUE_LIMIT = "queue_limit"
    """Its queue, or a queue around that, is at its limit of resources or of jobs."""
    QUEUE_SHARE = "queue_share"
    """The rest is for other queues of its tenant: not lent, or they are below a soft limit."""
    BUDGET = "budget"
    """All GPU-hours of a budget that counts it are used; it can start after the renewal."""
    NEVER_FITS_NOW = "never_fits_now"
    """No machine that is there can hold it: the configuration has changed, or a pool of nodes
    may have more."""
    NODES_UNAVAILABLE = "nodes_unavailable"
    """It would fit if drained, lost or broken hardware were available."""
    OTHERS = "others"
    """It would fit if others did not use nodes beside Allotment, on the same engine."""
    QUOTA = "quota"
    """Its tenant's guarantee is used up, and it may not borrow."""
    BEHIND = "behind"
    """An earlier job of its queue waits, and it may not overtake that job."""
    WAITING_FOR_VICTIMS = "waiting_for_victims"
    """Its place is reserved; the jobs that hold it are being evicted."""
    CAPACITY = "capacity"
    """Other jobs hold what it needs."""
    FRAGMENTED = "fragmented"
    """Enough is free in sum, but not together in the way it needs."""
    RESUMING = "resuming"
    """It is suspended and should resume, but other jobs use its devices."""
    RESERVATION = "reservation"
    """The nodes it could use are set aside now, or will be before it would end."""
    PENDING = "pending"
    """It can start in the next scheduling cycle."""

    @classmethod
    def _missing_(cls, value: object) -> "Reason | None":
        """Read what older logs have."""
        return cls.RESERVATION if value == "window" else None


ENDS_WITH_JOBS = frozenset(
    {
        Reason.USER_CAP,
        Reason.QUEUE_LIMIT,
        Reason.QUEUE_SHARE,
        Reason.QUOTA,
        Reason.BEHIND,
        Reason.WAITING_FOR_VICTIMS,
        Reason.CAPACITY,
        Reason.FRAGMENTED,
        Reason.RESUMING,
    }
)
"""Reasons for which a job in line waits until other jobs end."""


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that holds what a waiting job could use."""

    job: JobId
    name: str
    tenant: str
    user: str
    entitlement: Entitlement
    held: Resources
    borrowed: tuple[str, ...] = ()
    """The parts of it that are borrowed."""


class Blocked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The full answer to "why is my job waiting?".

    `need` and `free` are gang totals; `position` counts from 1 in its queue, 0 when it is
    not in line; `until` is set where waiting ends by the clock.
    """

    reason: Reason
    message: str
    need: Resources = NOTHING
    free: Resources = NOTHING
    holders: tuple[Holder, ...] = ()
    position: int = 0
    ahead: JobId | None = None
    until: Instant | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()
    """What else its user should know: budgets beyond their soft limit."""


class StopCause(StrEnum):
    """Why a running attempt was told to stop."""

    CANCELLED = "cancelled"
    EVICTED = "evicted"
    RUN_TIME = "run_time"
    START_TIME = "start_time"
    """A phase of starting took too long."""
    ROLE_FAILED = "role_failed"
    ROLES_SUCCEEDED = "roles_succeeded"
    NODE_LOST = "node_lost"
