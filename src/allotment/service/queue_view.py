"""What `allot queues` shows: the present tree of each tenant's queues.

Amounts are by part, as in a configuration: `gpu`, `gpu:TYPE`, `cpu` (thousandths),
`memory`, `gpu_memory`, `disk` (bytes). A part that is not there is 0, or has no bound.
"""

from enum import StrEnum

import msgspec

from allotment.model.amounts import Vector
from allotment.model.ids import JobId
from allotment.model.tenancy import QueueOrder, QueueState, RankBy, ShareBy


class QueueStand(StrEnum):
    """How what a queue holds compares with what it may. The first that holds counts."""

    AT_LIMIT = "at_limit"
    """It holds, with its reserved places, all it may of some part, or of jobs."""
    BEYOND = "beyond"
    """It holds something borrowed."""
    WITHIN = "within"


class CapHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one user or group holds, with reserved places, in a queue with a cap."""

    held: Vector
    cap: Vector
    user: str = ""
    group: str = ""
    full: bool = False
    """Whether it holds all it may of some part."""


class QueueView(msgspec.Struct, frozen=True):
    """One queue now, with all that is in the queues inside it."""

    name: str
    """The whole path."""
    state: QueueState
    in_effect: QueueState
    """The strictest of its own state and of those of the queues around it."""
    order: QueueOrder
    rank: RankBy
    share: ShareBy
    weight_milli: int
    lends: bool
    borrows: bool
    guaranteed: Vector
    """What is its own; of a part it does not name, what is guaranteed inside it."""
    used: Vector
    """What its jobs hold, on whatever grounds."""
    reserved: Vector
    """The reserved places of its jobs."""
    borrowed: Vector
    """What of `used` is beyond its guarantee, or beyond its tenant's."""
    lent: Vector
    """What of its guarantee other queues of its tenant use now."""
    soft_limit: Vector
    limit: Vector
    stands: QueueStand
    running: int
    """Jobs that hold a place."""
    max_jobs: int | None
    waiting: int
    """Jobs that do not, held ones and those that wait for others too."""
    eligible: int
    """Of these, jobs that could start if there was room."""
    max_waiting: int | None
    oldest_job: JobId | None
    """Of the eligible ones, the one that has waited longest."""
    oldest_ms: int
    """For how long, since it was last queued; 0 without any."""
    per_user: Vector
    per_group: Vector
    capped: tuple[CapHolder, ...]
    """Users and groups that hold something with a cap; the largest first."""
    queues: "tuple[QueueView, ...]" = ()
    """The queues inside it; jobs are in those that have none."""


class TenantQueues(msgspec.Struct, frozen=True):
    """The queues of one tenant."""

    tenant: str
    share: ShareBy
    """Which of its queues comes next."""
    weight_milli: int
    borrows: bool
    guaranteed: Vector
    used: Vector
    borrowed: Vector
    running: int
    waiting: int
    per_user: Vector
    capped: tuple[CapHolder, ...]
    queues: tuple[QueueView, ...]
    """Those at the top, in the order of the configuration."""
