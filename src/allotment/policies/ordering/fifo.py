"""Higher priority first; among equals, first come, first served.

Bad at: short jobs behind long ones; anybody who never learns to set a priority.
"""

from allotment.core.gang import Waiting


class Fifo:
    """Order by priority, then by time of submission."""

    def key(self, job: Waiting) -> tuple[int, ...]:
        return (-job.priority, job.submitted_at)
