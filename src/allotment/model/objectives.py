"""The service objectives of a tenant, as figures. docs/metrics.md defines each."""

from enum import StrEnum

import msgspec

from allotment.model.quantity import Millis

PPM = 1_000_000
"""Shares are in millionths."""


class Objective(StrEnum):
    """The kinds of objectives, by their keys in the configuration."""

    GUARANTEE_BACK = "guarantee_back_within"
    """What was lent is returned within so long of being asked for."""
    WAIT = "wait_within_guarantee"
    """A job within its tenant's guarantee waits so long at most."""
    AVAILABILITY = "availability"
    """So much of the guarantee is healthy and available."""


class Objectives(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One tenant's objectives; None where it has none."""

    guarantee_back_ms: Millis | None = None
    wait_ms: Millis | None = None
    availability_ppm: int | None = None
    """Millionths of the guarantee, over time."""

    def target(self, objective: Objective) -> int | None:
        """Return the target value: milliseconds, or millionths; None where there is none."""
        match objective:
            case Objective.GUARANTEE_BACK:
                return self.guarantee_back_ms
            case Objective.WAIT:
                return self.wait_ms
            case Objective.AVAILABILITY:
                return self.availability_ppm


NO_OBJECTIVES = Objectives()
