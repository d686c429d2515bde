"""Higher priority first; among equals who runs goes on, then first come, first served.

With turns at once only those of lower priority make way: a large job does not take the place
of an equal that came later and passed it, as it would if arrival alone decided.

Bad at: large jobs, which equals pass for as long as these keep coming.
"""

from allotment.core.gang import Standing
from allotment.core.rank import Rank
from allotment.model.quantity import Instant


class ByPriority:
    """Order by priority, then who has a place before who waits, then by submission."""

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - it stands still
        return Rank((-job.priority, int(job.since is None), job.submitted_at))
