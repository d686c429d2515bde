"""A job runs for its time limit, `max_run_time`; a job without one as long as is predicted.

The engine predicts, if it is asked to, from the runs of finished jobs of the same user and name
(`engine/run_history.py`).

Bad at: users set limits far above the real run time, if they set any.
"""

from allotment.core.gang import Standing


class TimeLimit:
    """Take the time limit as the run time, or the prediction where there is no limit."""

    def run_ms(self, job: Standing) -> int | None:
        run_ms = job.limit_ms if job.limit_ms >= 0 else job.predicted_ms
        return run_ms if run_ms >= 0 else None
