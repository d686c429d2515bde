"""The job with the least run time first. Running jobs are left alone.

Source: textbook; in this field the lower bound of Tiresias (NSDI 2019) and Helios (SC 2021).

Bad at: unknown run times; long jobs, which may wait for ever.
"""

from allotment.core.gang import Standing
from allotment.core.ports import Estimates
from allotment.core.rank import Rank
from allotment.model.quantity import Instant

UNKNOWN_MS = 1 << 62
"""Jobs of which nothing is known come last."""


class ShortestFirst:
    """Order by expected run time, then by submission."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        run_ms = self._estimates.run_ms(job)
        return Rank((UNKNOWN_MS if run_ms is None else run_ms, job.submitted_at))
