"""The claimant with the smallest dominant share for its weight comes next.

The dominant share is the part held of that resource (devices, their memory, CPUs, memory or
disk) of which the largest part is held. Source: Ghodsi et al., Dominant Resource Fairness,
NSDI 2011; of a tree: Bhattacharya et al., SoCC 2013.

Bad at: the past. A claimant that used nothing for a week gets no more for it than others.
"""

from allotment.core.claimant import PPB, Claimant
from allotment.model.quantity import Instant


class Dominant:
    """Compare dominant shares."""

    rescales = True

    def share(self, claimant: Claimant, now: Instant) -> int:  # noqa: ARG002 - it stands still
        return (claimant.level + PPB // 2) // PPB
