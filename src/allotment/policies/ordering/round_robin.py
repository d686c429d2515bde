"""Higher priority first; among equals, whichever has waited longest since it last ran.

A job that had its turn goes to the end of its queue, however early it was submitted.

Bad at: jobs that lose work whenever they are sent away, if it is done often.
"""

from allotment.core.gang import Standing
from allotment.core.rank import Rank
from allotment.model.quantity import Instant


class RoundRobin:
    """Order by priority, then by when the job came to its queue, or came back to it."""

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        return Rank((-job.priority, job.queued_at))
