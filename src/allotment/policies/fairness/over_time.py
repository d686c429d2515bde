"""The claimant that has used least recently, for its weight, comes next: fair share over time.

Use is the dominant share, added up over time; half of it is forgotten in every half-life.
What is held now counts as if it were held for a 64th of that more, so that no claimant gets
everything at once because it has not used anything yet.

Source: Kay and Lauder, A fair share scheduler, CACM 1988; Slurm's fair-share factor.

Bad at: predicting when a claimant is served: it depends on what all did last week.
"""

from allotment.core.claimant import Claimant
from allotment.model.quantity import Instant


class OverTime:
    """Compare use that fades."""

    rescales = False

    def share(self, claimant: Claimant, now: Instant) -> int:
        used = claimant.used(now) + claimant.dominant_ppb * claimant.step_ms
        return used * 1000 // claimant.weight_milli
