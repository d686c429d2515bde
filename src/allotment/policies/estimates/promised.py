"""What users promised: a job runs no longer than its `max_run_time`. Else what is predicted.

Predicted is, by the engine, from the runs of finished jobs of the same user and name
(`engine/run_history.py`), if it is asked to.

Bad at: promises are rounded up generously, if they are given at all.
"""

from allotment.core.gang import Standing


class Promised:
    """Take the run time limit as the run time, or the prediction where there is none."""

    def run_ms(self, job: Standing) -> int | None:
        run_ms = job.limit_ms if job.limit_ms >= 0 else job.predicted_ms
        return run_ms if run_ms >= 0 else None
