"""For how long a gang runs at least, by what it costs to suspend it.

Where the slices of a queue are `auto`, a gang that takes long to stand still, because it moves
its memory off its devices, has turns of fifty times that. So a fiftieth of its time goes into
its turns at most, as Gandiva (OSDI 2018, section 3.1) has it with a minute for a second.
"""

from collections.abc import Mapping

from allotment.engine.records import JobRecord
from allotment.model.quantity import MINUTE, NO_TIME, Millis
from allotment.model.tenancy import Tenant

MOST_MS = 2 * MINUTE
"""What looks longer was not heard of in time: the service was down, or its node silent."""


def pause_of(tenants: Mapping[str, Tenant], job: JobRecord) -> Millis:
    """Return how long a job took to be suspended last; 0 unless its slices go by that."""
    if not job.attempts:
        return NO_TIME
    tenant = tenants.get(job.spec.tenant)
    queue = tenant.queue(job.spec.queue) if tenant is not None else None
    if queue is None or not queue.slices_by_cost:
        return NO_TIME
    took = next((each.pause_ms for each in reversed(job.attempts) if each.pause_ms), 0)
    return Millis(min(took, MOST_MS))
