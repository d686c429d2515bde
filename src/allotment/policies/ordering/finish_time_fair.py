"""The job that is worst off against a private share of the cluster first.

rho is the time a job will have taken, if it ran undisturbed from now on, over the time it
would take alone. While it runs its rho stays; while it waits or starts it grows, faster for
short jobs. Rank by rho, largest first, asked anew once a round for jobs that do not run, and
for those that run for longer than was told.

Source: Mahajan et al., Themis, NSDI 2020, sections 3 and 4. Left out: the auction, and the
filter that offers devices to a share of the worst off only.

Bad at: long jobs under load, whose rho grows slowly; and it must be told run times.
"""

from allotment.core.gang import Standing
from allotment.core.ports import Estimates
from allotment.core.rank import Rank
from allotment.model.quantity import Instant
from allotment.policies.ordering.ran import ran_ms

SCALE = 1_000_000
"""rho is compared in millionths."""

UNKNOWN = Rank((1,))
"""Jobs of which nothing is known come last."""


class FinishTimeFair:
    """Order by rho; `every_ms` is how often that of jobs that do not run is asked anew."""

    def __init__(self, estimates: Estimates, every_ms: int) -> None:
        self._estimates = estimates
        self._every_ms = every_ms

    def rank(self, job: Standing, now: Instant) -> Rank:
        run_ms = self._estimates.run_ms(job)
        if not run_ms:
            return UNKNOWN
        left = max(0, run_ms - ran_ms(job, now) + job.lost_ms)
        rho = (now - job.submitted_at + left) * SCALE // run_ms
        anew = (now // self._every_ms + 1) * self._every_ms
        if job.runs and left:
            anew = now + left  # Should it run for longer than was told.
        return Rank((-rho,), until=Instant(anew))
