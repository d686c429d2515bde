"""A gang's request in the form the decision works with: hashable, cheap, comparable."""

from functools import lru_cache

import msgspec

from allotment.model.quantity import DEVICE, NOTHING, Resources
from allotment.model.spec import Arch, JobSpec


class Request(msgspec.Struct, frozen=True, gc=False):
    """What `count` alike tasks need, each. `need.gpu_memory` is bytes on each device."""

    count: int
    need: Resources
    types: tuple[str, ...] = ()
    arch: Arch = Arch.ANY

    @property
    def devices(self) -> int:
        """How many devices one task touches."""
        return -(-self.need.gpu_milli // DEVICE)


class Shape(msgspec.Struct, frozen=True, gc=False):
    """All that decides whether and where a job fits: jobs of one shape fit or wait alike."""

    tenant: str
    queue: str
    requests: tuple[Request, ...]
    preemptible: bool = True


def held_by(need: Resources) -> Resources:
    """Give what one task holds in sum: its device memory counts on every device."""
    devices = -(-need.gpu_milli // DEVICE)
    if need.gpu_memory == 0 or devices == 1:
        return need
    return Resources(
        need.gpu_milli, need.cpu_milli, need.memory, need.disk, need.gpu_memory * devices
    )


@lru_cache(maxsize=4_096)
def total_of(requests: tuple[Request, ...]) -> Resources:
    """Sum up what the whole gang holds."""
    total = NOTHING
    for request in requests:
        total += held_by(request.need) * request.count
    return total


@lru_cache(maxsize=4_096)
def needs_of(requests: tuple[Request, ...]) -> tuple[Resources, ...]:
    """Give each task's need in rank order."""
    return tuple(request.need for request in requests for _ in range(request.count))


def lease_part(need: Resources) -> Resources:
    """Give what a suspended task lets go: its devices and CPU."""
    return Resources(gpu_milli=need.gpu_milli, cpu_milli=need.cpu_milli)


def shape_of(spec: JobSpec) -> Shape:
    """Reduce a spec to its shape."""
    requests = tuple(
        Request(role.count, role.resources, role.gpu_types, role.arch) for role in spec.roles
    )
    return Shape(spec.tenant, spec.queue, requests, spec.preemptible)
