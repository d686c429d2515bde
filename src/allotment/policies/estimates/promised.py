"""What users promised: a job runs no longer than its `max_run_time`.

Bad at: promises are rounded up generously, if they are given at all.
"""

from allotment.core.gang import Standing


class Promised:
    """Take the run time limit as the run time."""

    def run_ms(self, job: Standing) -> int | None:
        return job.limit_ms if job.limit_ms >= 0 else None
