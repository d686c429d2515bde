"""The claimant with the fewest devices for its weight comes next: max-min fairness.

Bad at: claimants that need CPUs or memory more than devices, which are not compared.
"""

from allotment.core.claimant import Claimant
from allotment.model.quantity import Instant


class MaxMin:
    """Compare parts of the cluster's devices."""

    rescales = False

    def share(self, claimant: Claimant, now: Instant) -> int:  # noqa: ARG002 - it stands still
        return claimant.devices_ppb * 1000 // claimant.weight_milli
