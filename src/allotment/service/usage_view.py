"""What `allot usage` shows: what was held in a period of the service's own history."""

from enum import StrEnum

import msgspec

from allotment.model.budget import Every
from allotment.model.quantity import Moment


class By(StrEnum):
    """What a row is about."""

    TENANT = "tenant"
    QUEUE = "queue"
    USER = "user"
    JOB = "job"
    TYPE = "type"


class UsageRow(msgspec.Struct, frozen=True, gc=False):
    """What a tenant, user or job held, in hours of a whole device or CPU: docs/metrics.md.

    A name is empty, and `job` 0, where the row sums over it.
    """

    tenant: str = ""
    queue: str = ""
    user: str = ""
    job: int = 0
    name: str = ""
    """Of the job."""
    type: str = ""
    """Of the devices; empty also for what is held without any."""
    jobs: int = 0
    """Jobs that held anything."""
    evictions: int = 0
    gpu_h: float = 0.0
    gpu_h_guaranteed: float = 0.0
    gpu_h_borrowed: float = 0.0
    gpu_h_lost: float = 0.0
    """The part of `gpu_h` that evictions threw away."""
    cpu_h: float = 0.0
    cpu_h_guaranteed: float = 0.0
    cpu_h_borrowed: float = 0.0
    cpu_h_lost: float = 0.0
    cpu_h_used: float = 0.0
    """What ended tasks used, as their machine counted it; 0 if it did not count."""
    gpu_h_seen: float = 0.0
    """What ended tasks held of devices whose use was looked at; 0 if none was."""
    gpu_h_busy: float = 0.0
    """The part of `gpu_h_seen` at work, at most: as if it was so all the time as in the
    look that saw most."""


class BudgetState(StrEnum):
    """The present state of a budget."""

    OK = "ok"
    WARNED = "warned"
    """More is used than is wanted."""
    SPENT = "spent"
    """All of it is used: nothing more is started."""
    NOT_NOW = "not_now"
    """It limits another stretch of time."""


class BudgetUse(msgspec.Struct, frozen=True, gc=False):
    """A budget, and what of it is used in the period of now."""

    tenant: str
    queue: str
    """Empty where it counts jobs of any queue; so `user`."""
    user: str
    every: Every
    since: int
    until: int
    """When it is renewed, or ends; 0 for never."""
    used_gpu_h: float
    soft_gpu_h: float
    """0 without such a limit; so `hard_gpu_h`."""
    hard_gpu_h: float
    state: BudgetState


class UsageReport(msgspec.Struct, frozen=True):
    """What was held, the largest first."""

    since: Moment
    """When the stretch begins: not before `known_since`."""
    until: Moment
    known_since: Moment
    """From when on nothing was forgotten."""
    forgotten: int
    """Jobs that ended before then and are no longer known."""
    by: tuple[By, ...]
    capacity_gpu_h: float
    """Devices of the cluster, by its newest configuration, for the whole stretch."""
    rows: tuple[UsageRow, ...]
    total: UsageRow
    budgets: tuple[BudgetUse, ...] = ()
    """As they are now, whatever the period."""
