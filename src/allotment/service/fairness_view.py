"""What `allot fairness` shows: what each tenant deserves now, and what it has."""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING, Moment, Resources


class Served(StrEnum):
    """How what a tenant has compares with what it deserves. The first that holds counts."""

    STARVED = "starved"
    """A job of it waits though it would be within what its tenant deserves."""
    OVER = "over"
    UNDER = "under"
    """It has less, but no job that waits fits in the difference."""
    EVEN = "even"


class TenantFairness(msgspec.Struct, frozen=True, gc=False):
    """One tenant now."""

    tenant: str
    guaranteed: Resources
    deserved: Resources
    """Its part by dominant resource fairness, rounded down: docs/metrics.md."""
    wanted: Resources
    """What its jobs hold, and what eligible ones ask for."""
    used: Resources
    """What its jobs hold."""
    borrowed: Resources
    lent: Resources
    """What of its guarantee others use now."""
    deserved_ppm: int
    """The dominant share it deserves, in millionths of the cluster."""
    used_ppm: int
    """The dominant share it has."""
    served: Served
    eligible: int
    """Jobs that could start now if there was room."""
    starved_jobs: int
    """Of those, jobs that, one alone, would be within what it deserves."""
    starved_ms: int
    """For how long the first of these has been eligible; 0 without any."""
    starved_job: JobId | None = None
    """That one."""
    smallest: Resources = NOTHING
    """What the smallest eligible job asks for; nothing where none is eligible."""


class FairnessReport(msgspec.Struct, frozen=True):
    """What each tenant deserves of the cluster now, and has."""

    at: Moment
    capacity: Resources
    """Machines that take work, and what is held on the others."""
    tenants: tuple[TenantFairness, ...]
    """By name."""
