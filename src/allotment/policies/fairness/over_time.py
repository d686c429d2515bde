"""Whoever has used least of late, for its weight, comes next: fair share over time.

Use is the dominant share, added up over time; half of it is forgotten in every half-life.
What is held now counts as if it were held for a 64th of that more, so that nobody gets
all at once because nothing of it has been used yet.

Source: Kay and Lauder, A fair share scheduler, CACM 1988; Slurm's fair-share factor.

Bad at: telling anybody when they will be served: it depends on what everybody did last week.
"""

from allotment.core.claimant import Claimant
from allotment.model.quantity import Instant


class OverTime:
    """Compare use that fades."""

    rescales = False

    def share(self, claimant: Claimant, now: Instant) -> int:
        used = claimant.used(now) + claimant.dominant_ppb * claimant.step_ms
        return used * 1000 // claimant.weight_milli
