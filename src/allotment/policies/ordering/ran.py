"""How long a job has run: what orders by attained service go by."""

from allotment.core.gang import Standing
from allotment.model.quantity import Instant


def ran_ms(job: Standing, now: Instant) -> int:
    """Return the run time of a job up to now."""
    if job.since is None or job.starting:
        return job.served_ms
    return job.served_ms + now - job.since
