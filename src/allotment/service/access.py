"""Who may do what. Everybody sees the jobs, their states and reasons; what they run and
write is private, unless the configuration opens it to all.

A job belongs to its submitter. The superuser, the service's own user and SYSTEM may do
anything. Roles and tokens come later, as data beside this table.
"""

import os

from allotment.engine.records import JobRecord
from allotment.model.errors import Code, Rejected
from allotment.model.ids import SYSTEM, Actor
from allotment.model.tenancy import Visibility


def is_admin(actor: Actor) -> bool:
    """Whether this user is an administrator of the cluster."""
    return actor == SYSTEM or actor.uid in (0, os.geteuid())


def is_own(actor: Actor, job: JobRecord) -> bool:
    """Whether this user may do with a job whatever its owner may."""
    return is_admin(actor) or actor.uid == job.owner.uid


def sees_all(actor: Actor, job: JobRecord, visibility: Visibility) -> bool:
    """Whether this user sees what a job runs and writes, apart from its secrets."""
    return visibility is Visibility.OPEN or is_own(actor, job)


def may_see(actor: Actor, job: JobRecord, visibility: Visibility) -> None:
    """Raise Rejected unless this user sees what a job runs and writes."""
    if not sees_all(actor, job, visibility):
        raise _not_yours(actor, job)


def may_change(actor: Actor, job: JobRecord) -> None:
    """Raise Rejected unless this user may change the job, or enter its tasks."""
    if not is_own(actor, job):
        raise _not_yours(actor, job)


def _not_yours(actor: Actor, job: JobRecord) -> Rejected:
    return Rejected(
        Code.FORBIDDEN,
        f"Job {job.id} belongs to {job.owner.user}; you are {actor.user}.",
        "Ask its owner or the administrator.",
    )


def may_administer(actor: Actor) -> None:
    """Raise Rejected unless this user may drain nodes, stop the service and the like."""
    if not is_admin(actor):
        raise Rejected(
            Code.FORBIDDEN,
            f"Only the administrator may do this; you are {actor.user}.",
            "The administrator is the user the service runs as, and root.",
        )
