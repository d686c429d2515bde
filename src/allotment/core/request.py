"""A gang's request in the form the decision works with: hashable, cheap, comparable."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from allotment.model.amounts import vector_of
from allotment.model.engines import Ability, asked_by, asks_of
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources, is_part_of_device
from allotment.model.spec import Arch, JobSpec, TaskRole


class Request(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What `count` alike tasks need, each. `need.gpu_memory` is bytes on each device."""

    count: int
    need: Resources
    types: tuple[str, ...] = ()
    arch: Arch = Arch.ANY
    within: str = ""
    """The level of which one region must hold the whole gang: the same for all its requests."""
    prefer: str = ""
    """The level of which one region should."""
    group: int = 0
    """Tasks, in rank order, that one region of `group_within` must hold; 0 for no groups."""
    group_within: str = ""
    asks: tuple[Ability, ...] = ()
    """What its engine must be able to do."""
    engine: str = ""
    """Its engine; '' for whichever, but one for the whole gang; ANY_ENGINE for any."""

    @property
    def devices(self) -> int:
        """Return how many devices one task touches."""
        return -(-self.need.gpu_milli // DEVICE)


class Shape(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All that decides whether and where a job fits: jobs of one shape fit or wait alike."""

    tenant: str
    queue: str
    requests: tuple[Request, ...]
    preemptible: bool = True
    devices: int = 0
    """Whole devices of the gang, counted once; fractions count for nothing."""
    pin: str = ""
    opportunistic: bool = False
    user: str = ""
    """Whose it is, where there is a cap on what one user may hold; '' elsewhere."""
    most: int = 0
    """The tasks of its last request at most; 0 where it needs just what `requests` say, which
    otherwise is the least it starts with."""
    span_ms: int = 0
    """How long it may run, -1 for ever: told where reservations are set, 0 elsewhere."""
    enters: tuple[str, ...] = ()
    """The reservations it may use."""
    group: str = ""
    """The group it is charged to, where there is a cap on what one may hold; '' elsewhere."""

    @property
    def who(self) -> tuple[str, str, str, str]:
        """Return the accounts it is charged to: tenant, queue, user, group."""
        return self.tenant, self.queue, self.user, self.group


@lru_cache(maxsize=4_096)
def sized(shape: Shape, tasks: int) -> tuple[Request, ...]:
    """Return the requests of a gang of this shape with so many tasks in all."""
    if not shape.most:
        return shape.requests
    last = shape.requests[-1]
    count = tasks - sum(request.count for request in shape.requests[:-1])
    return (*shape.requests[:-1], msgspec.structs.replace(last, count=count))


def fixed(shape: Shape, tasks: int) -> Shape:
    """Return the shape of a gang that has a place, with so many tasks."""
    if not shape.most:
        return shape
    requests = sized(shape, tasks)
    return msgspec.structs.replace(
        shape, requests=requests, devices=devices_of(requests), most=0
    )


def held_by(need: Resources) -> Resources:
    """Return what one task holds in sum: its device memory counts on every device."""
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
def demand_of(requests: tuple[Request, ...]) -> Mapping[str, int]:
    """Return what the whole gang holds, as a vector."""
    return vector_of(total_of(requests))


@lru_cache(maxsize=4_096)
def devices_of(requests: tuple[Request, ...]) -> int:
    """Count the whole devices of a gang; fractions count for nothing."""
    return sum(request.count * (request.need.gpu_milli // DEVICE) for request in requests)


@lru_cache(maxsize=4_096)
def needs_of(requests: tuple[Request, ...]) -> tuple[Resources, ...]:
    """Return each task's need in rank order."""
    return tuple(request.need for request in requests for _ in range(request.count))


@lru_cache(maxsize=4_096)
def sum_of(needs: tuple[Resources, ...]) -> Resources:
    """Sum up what tasks with these needs hold."""
    total = NOTHING
    for need in needs:
        total += held_by(need)
    return total


def parts_of(slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> tuple[Slot, ...]:
    """Return the same place with no more of each device than what tasks need."""
    return tuple(
        msgspec.structs.replace(slot, gpu_milli=need.gpu_milli)
        for slot, need in zip(slots, needs, strict=True)
    )


@lru_cache(maxsize=4_096)
def whole(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return same gang as if each task asked for a whole device instead of a part of one."""
    return tuple(
        msgspec.structs.replace(
            request, need=msgspec.structs.replace(request.need, gpu_milli=DEVICE)
        )
        if is_part_of_device(request.need)
        else request
        for request in requests
    )


def one_group(request: Request) -> Request:
    """Return what a single group of a role needs, wherever it is."""
    return msgspec.structs.replace(request, count=request.group, group=0, group_within="")


@lru_cache(maxsize=4_096)
def bound_to(engine: str, requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return the same gang as if it had asked for one engine."""
    return tuple(msgspec.structs.replace(request, engine=engine) for request in requests)


def lease_part(need: Resources, keeps: int) -> Resources:
    """Return what a suspended task lets go that keeps so much memory of each device."""
    freed = need.gpu_memory - keeps
    return Resources(gpu_milli=need.gpu_milli, cpu_milli=need.cpu_milli, gpu_memory=freed)


def shape_of(spec: JobSpec, user: str = "", group: str = "") -> Shape:
    """Reduce a spec to its shape. Equal specs mostly give the same object.

    `user` and `group` are given only where there are caps on them: they do not wait alike.
    """
    return _shape(
        spec.tenant,
        spec.queue,
        spec.roles,
        spec.preemptible,
        spec.within,
        spec.prefer,
        spec.pin,
        spec.opportunistic,
        asked_by(spec),
        spec.engine,
        user,
        group,
    )


@lru_cache(maxsize=4_096)
def _shape(  # noqa: PLR0913, PLR0917 - the parts of the key of a cache
    tenant: str,
    queue: str,
    roles: tuple[TaskRole, ...],
    preemptible: bool,
    within: str,
    prefer: str,
    pin: str,
    opportunistic: bool,  # noqa: FBT001 - the parts of the key
    asks: tuple[Ability, ...],
    engine: str,
    user: str,
    group: str,
) -> Shape:
    requests = tuple(
        Request(
            role.needed,
            role.resources,
            role.gpu_types,
            role.arch,
            within,
            prefer,
            role.group,
            role.group_within,
            asks_of(role.resources, asks),
            engine,
        )
        for role in roles
    )
    devices, most = devices_of(requests), roles[-1].count if roles[-1].least else 0
    return Shape(
        tenant,
        queue,
        requests,
        preemptible,
        devices,
        pin,
        opportunistic,
        user,
        most,
        group=group,
    )
