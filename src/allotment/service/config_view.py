"""What `allot config` shows: the configuration in force, and what another would change."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import WallTime


class ConfigInForce(msgspec.Struct, frozen=True):
    """The configuration in force, written in full, and its digest."""

    digest: str
    text: str


class ConfigChange(msgspec.Struct, frozen=True):
    """One difference between two configurations, in words."""

    sign: str
    """`+` comes, `-` goes, `~` changes."""
    what: str
    detail: str = ""


class ComingChange(msgspec.Struct, frozen=True):
    """What differs from one date to another, in words."""

    begin: WallTime
    """0 where it holds already, from the beginning."""
    until: WallTime | None
    """None where it holds for good."""
    when: str
    """Both in words, with the zone."""
    what: str
    detail: str


class DemotedJob(msgspec.Struct, frozen=True):
    """A running job that would lose its guarantee: it runs on, and may be evicted."""

    job: JobId
    name: str
    tenant: str


class StuckJob(msgspec.Struct, frozen=True):
    """A waiting job that its queue would keep from starting, or that its tenant is gone."""

    job: JobId
    name: str
    tenant: str
    why: str
    """What keeps it, in words."""


class ConfigPlan(msgspec.Struct, frozen=True):
    """What applying a configuration would change. Nothing has happened yet."""

    current: str
    """The configuration in force, by its digest: `apply` may insist on it."""
    proposed: str
    changes: tuple[ConfigChange, ...] = ()
    refusal: str = ""
    """Why it cannot be applied now; empty when it can."""
    demoted: tuple[DemotedJob, ...] = ()
    unreserved: tuple[JobId, ...] = ()
    """Jobs that would lose their reserved place; another is searched for."""
    stranded: tuple[JobId, ...] = ()
    """Waiting jobs that would fit nowhere any more."""
    borrowing: tuple[JobId, ...] = ()
    """Waiting jobs that would no longer fit in their tenant's cells, only borrow."""
    stuck: tuple[StuckJob, ...] = ()
    """Waiting jobs that could not start any more as their queue or tenant would be."""
    warnings: tuple[str, ...] = ()
    coming: tuple[ComingChange, ...] = ()
    """What holds by date, now or later, by when it begins."""
    applied: bool = False
