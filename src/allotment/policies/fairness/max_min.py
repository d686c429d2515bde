"""Whoever holds the fewest devices for its weight comes next: max-min fairness.

Bad at: those who need CPUs or memory more than devices: what they hold of them is not seen.
"""

from allotment.core.claimant import Claimant
from allotment.model.quantity import Instant


class MaxMin:
    """Compare parts of the cluster's devices."""

    rescales = False

    def share(self, claimant: Claimant, now: Instant) -> int:  # noqa: ARG002 - it stands still
        return claimant.devices_ppb * 1000 // claimant.weight_milli
