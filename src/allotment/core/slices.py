"""Time slices: for how long the gangs of a queue run before others of it may have their turn.

Whole gangs take turns, those of one queue among themselves. The turn of one is as many slices
long as its weight: weighted round-robin. A gang that was suspended costs
next to nothing to switch to, or fifty times that is the least it runs, where slices are `auto`.
One that starts anew from a checkpoint costs what it takes to start, so it runs for fifty times
as long as that, and is sent away only if it has saved.
"""

from collections.abc import Iterable, Mapping

from allotment.core.gang import Gang
from allotment.core.ledger import NodeBook
from allotment.core.request import Shape
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant, Millis
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Tenant

Slices = Mapping[tuple[str, str], Millis]
"""How long slices are, by tenant and queue; other queues take no turns."""

SWITCHES = 50
"""A gang that starts anew runs for at least so many times as long as it took to start."""


def slices_of(tenants: Iterable[Tenant]) -> Slices:
    """Return the slices of all queues that have them."""
    return {
        (tenant.name, queue.name): queue.time_slice_ms
        for tenant in tenants
        for queue in tenant.queues
        if queue.time_slice_ms
    }


def line_of(shape: Shape) -> tuple[str, str]:
    """Return the tenant and the queue of a shape."""
    return shape.tenant, shape.queue


def cpus_are_spare(books: Mapping[NodeId, NodeBook], gangs: Iterable[Gang]) -> bool:
    """Whether the CPUs of gangs that run beside those with their devices are free."""
    wanted: dict[NodeId, int] = {}
    for gang in gangs:
        for slot, need in zip(gang.slots, gang.needs, strict=True):
            wanted[slot.node] = wanted.get(slot.node, 0) + need.cpu_milli
    return all(cpu <= max(0, books[node].cpu) for node, cpu in wanted.items())


def slice_end(slices: Slices, gang: Gang) -> Instant | None:
    """Return when a running gang has had its slice; None for one that has none."""
    standing = gang.standing
    slice_ms = slices.get(line_of(standing.shape))
    if slice_ms is None or gang.suspended or not standing.runs or standing.since is None:
        return None
    least_ms = SWITCHES * (standing.pause_ms if may_pause(gang) else standing.switch_ms)
    return Instant(standing.since + max(standing.weight * slice_ms, least_ms))


def may_pause(gang: Gang) -> bool:
    """Whether a gang is suspended at the end of its turn, where what it keeps lets it."""
    return gang.on_eviction in (GiveWay.AS_TENANT, GiveWay.SUSPEND)
