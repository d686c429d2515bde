"""Higher priority first; among equals, first come, first served.

Bad at: short jobs behind long ones; users who never set a priority.
"""

from allotment.core.gang import Standing
from allotment.core.rank import Rank
from allotment.model.quantity import Instant


class Fifo:
    """Order by priority, then by time of submission."""

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        return Rank((-job.priority, job.submitted_at))
