"""Who may do what. Everybody sees the jobs, their states and reasons; output is private.

A job belongs to its submitter. The superuser, the service's own user and SYSTEM may do
anything. Roles and tokens come later, as data beside this table.
"""

import os

from allotment.engine.records import JobRecord
from allotment.model.errors import Code, Rejected
from allotment.model.ids import SYSTEM, Actor


def is_admin(actor: Actor) -> bool:
    """Tell whether this actor runs the cluster."""
    return actor == SYSTEM or actor.uid in (0, os.geteuid())


def may_change(actor: Actor, job: JobRecord) -> None:
    """Raise Rejected unless this actor may change the job or look inside it."""
    if is_admin(actor) or actor.uid == job.owner.uid:
        return
    raise Rejected(
        Code.FORBIDDEN,
        f"Job {job.id} belongs to {job.owner.user}; you are {actor.user}.",
        "Ask its owner or the administrator.",
    )


def may_administer(actor: Actor) -> None:
    """Raise Rejected unless this actor may drain nodes, stop the service and the like."""
    if not is_admin(actor):
        raise Rejected(
            Code.FORBIDDEN,
            f"Only the administrator may do this; you are {actor.user}.",
            "The administrator is the user the service runs as, and root.",
        )
