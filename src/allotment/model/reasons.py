"""Why a job waits, or had to go. A closed list: users and programs rely on it."""

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
    """Its queue, or one around that, is stopped: nothing in it starts."""
    USER_CAP = "user_cap"
    """Its user, or its owner's group, holds all that one may of the tenant or the queue."""
    QUEUE_LIMIT = "queue_limit"
    """Its queue, or one around that, holds all it may, or runs as many jobs as it may."""
    QUEUE_SHARE = "queue_share"
    """What is left is for other queues of its tenant: kept for them, or below a soft limit."""
    BUDGET = "budget"
    """All GPU-hours of a budget that counts it are used; it starts when that is renewed."""
    NEVER_FITS_NOW = "never_fits_now"
    """The configuration changed under it: no machine could hold it any more."""
    NODES_UNAVAILABLE = "nodes_unavailable"
    """It would fit if drained, lost or broken hardware were back."""
    QUOTA = "quota"
    """Its tenant's share is used up, and it may not borrow."""
    BEHIND = "behind"
    """Its queue is strict and an earlier job of the queue waits."""
    WAITING_FOR_VICTIMS = "waiting_for_victims"
    """Its place is reserved; those who borrow it are on their way out."""
    CAPACITY = "capacity"
    """Others hold what it needs."""
    FRAGMENTED = "fragmented"
    """Enough is free in sum, but not in the shape it needs."""
    RESUMING = "resuming"
    """Suspended; asked to go on, its devices are in use by others."""
    WINDOW = "window"
    """What it could use is set aside now, or before it would end."""
    PENDING = "pending"
    """Nothing is in its way: it starts in the next scheduling cycle."""


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
    """Somebody who holds what a waiting job could use."""

    job: JobId
    name: str
    tenant: str
    user: str
    entitlement: Entitlement
    held: Resources
    borrowed: tuple[str, ...] = ()
    """The parts of it that it has on loan."""


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
    """What else its owner should know: budgets of which more is used than is wanted."""


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
