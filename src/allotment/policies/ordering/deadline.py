"""The job with the nearest deadline first; jobs without one after all others.

Source: textbook (earliest deadline first; Liu and Layland, JACM 1973). A deadline only orders:
no job is preempted for it, and nothing happens when it passes.

Bad at: jobs without a deadline; telling a job that can still make it from one that cannot.
"""

from allotment.core.gang import Standing
from allotment.core.rank import Rank
from allotment.model.quantity import Instant

NEVER = 1 << 62
"""When a job is due that has no deadline."""


class EarliestDeadline:
    """Order by deadline, then by priority, then by submission."""

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        due = job.due_at if job.due_at is not None else NEVER
        return Rank((due, -job.priority, job.submitted_at))
