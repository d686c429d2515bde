"""Higher priority first; among equals running jobs continue, then first come, first served.

With turns at once only jobs of lower priority are preempted: a large job does not take the
place of an equal that came later and overtook it, as it would if arrival alone decided.

Bad at: large jobs, which equals overtake for as long as these keep coming.
"""

from allotment.core.gang import Standing
from allotment.core.rank import Rank
from allotment.model.quantity import Instant


class ByPriority:
    """Order by priority, then jobs with a place before waiting ones, then by submission."""

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        return Rank((-job.priority, int(job.since is None), job.submitted_at))
