"""The job with the least left to do first: remaining time (SRTF), or device-time (SRSF).

Source: Gu et al., Tiresias, NSDI 2019, section 3.1 (SRTF, and SRSF that weighs remaining
time by the number of devices).

What is left is the run time that is known, less the time it ran, but for work that was lost.
So of a job that runs slower than it was measured, the work left is underrated.

Bad at: knowing run times; and every short arrival may send a long job away.
"""

from allotment.core.gang import Standing
from allotment.core.ports import Estimates
from allotment.core.rank import Rank, moving
from allotment.model.quantity import DEVICE, Instant
from allotment.policies.ordering.ran import ran_ms
from allotment.policies.ordering.sjf import UNKNOWN_MS


class LeastRemaining:
    """Order by what is left; by its product with the devices if `by_service`."""

    def __init__(self, estimates: Estimates, *, by_service: bool = False) -> None:
        self._estimates = estimates
        self._by_service = by_service

    def rank(self, job: Standing, now: Instant) -> Rank:
        run_ms = self._estimates.run_ms(job)
        if run_ms is None:
            return Rank((UNKNOWN_MS,))
        weight = max(1, job.gpu_milli // DEVICE) if self._by_service else 1
        left = max(0, run_ms - ran_ms(job, now) + job.lost_ms)
        return moving((), left * weight, -weight if job.runs else 0, now)
