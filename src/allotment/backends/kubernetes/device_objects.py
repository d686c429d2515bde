"""What we read of the objects of resource.k8s.io/v1: slices, classes and claims."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allotment.backends.kubernetes.objects import Object, Thing

GROUP = "resource.k8s.io"
PROTECTION = "resource.kubernetes.io/delete-protection"
"""A finalizer. A claim that has it is given nothing any more once its last pod is over."""
API = f"/apis/{GROUP}/v1"
SLICES, CLASSES, CLAIMS = (
    f"{API}/{each}" for each in ("resourceslices", "deviceclasses", "resourceclaims")
)

RULES = f"/apis/{GROUP}/v1beta2/devicetaintrules"


class Something(Object, frozen=True):
    """What is not read: that it is there is all that counts."""


class Attribute(Object, frozen=True):
    """What a driver says of a device: one of these. Versions and lists are not read."""

    text: str | None = msgspec.field(default=None, name="string")
    number: int | None = msgspec.field(default=None, name="int")
    flag: bool | None = msgspec.field(default=None, name="bool")


class Capacity(Object, frozen=True):
    """How much of something a device has."""

    value: str | int | float = 0


class DeviceTaint(Object, frozen=True):
    """What keeps a device from being given out, or what uses it from running on."""

    key: str = ""
    value: str = ""
    effect: str = ""


class SliceDevice(Object, frozen=True):
    """A device as its driver publishes it."""

    name: str
    attributes: Mapping[str, Attribute] | None = None
    capacity: Mapping[str, Capacity] | None = None
    consumes_counters: tuple[Something, ...] | None = None
    node_name: str | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, Something] | None = None


class Pool(Object, frozen=True):
    """Of which pool a slice is a part, and how many parts that has."""

    name: str
    generation: int
    resource_slice_count: int


class SliceSpec(Object, frozen=True):
    """What a driver publishes in one object."""

    driver: str
    pool: Pool
    node_name: str | None = None
    devices: tuple[SliceDevice, ...] | None = None
    skip_node_operations: tuple[str, ...] | None = None


class ResourceSlice(Thing, frozen=True, kw_only=True):
    """A part of a pool of devices."""

    spec: SliceSpec


class Cel(Object, frozen=True):
    """An expression in the Common Expression Language."""

    expression: str = ""


class Selector(Object, frozen=True):
    """Which devices are meant: all that an expression is true of."""

    cel: Cel | None = None


class ClassSpec(Object, frozen=True):
    """Which devices are of a class, and how they are set up."""

    selectors: tuple[Selector, ...] | None = None
    config: tuple[dict[str, Any], ...] | None = None


class DeviceClass(Thing, frozen=True, kw_only=True):
    """A kind of devices that can be asked for."""

    spec: ClassSpec = ClassSpec()


class Result(Object, frozen=True):
    """A device that a claim was given."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None

    @property
    def id(self) -> str:
        return id_of(self.driver, self.pool, self.device)


class Results(Object, frozen=True):
    """All devices that a claim was given."""

    results: tuple[Result, ...] | None = None


class Allocation(Object, frozen=True):
    """What a claim was given."""

    devices: Results = Results()


class Consumer(Object, frozen=True):
    """What may use the devices of a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(Object, frozen=True):
    """What became of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] | None = None


class Exactly(Object, frozen=True):
    """Devices of one class. Of what narrows the choice it is only known that it is there."""

    device_class_name: str = ""
    selectors: tuple[Something, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[Something, ...] | None = None
    capacity: Something | None = None


class Request(Object, frozen=True):
    """A part of what a claim asks for; a choice of several where it says nothing exactly."""

    name: str = ""
    exactly: Exactly | None = None


class Asking(Object, frozen=True):
    """The devices that a claim asks for."""

    requests: tuple[Request, ...] | None = None
    constraints: tuple[Something, ...] | None = None
    config: tuple[dict[str, Any], ...] | None = None


class ClaimSpec(Object, frozen=True):
    """What a claim asks for."""

    devices: Asking = Asking()


class ResourceClaim(Thing, frozen=True, kw_only=True):
    """Devices that are asked for, and those that were given."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def users(self) -> set[str]:
        """Return the uids of what may use it."""
        return {each.uid for each in self.status.reserved_for or ()}

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the ids of those that it holds: access for administrators holds none."""
        given = self.status.allocation
        results = given.devices.results if given is not None else None
        return tuple(each.id for each in results or () if not each.admin_access)


def id_of(driver: str, pool: str, device: str) -> str:
    """Return what names a device in its cluster. Only a pool may have slashes in its name."""
    return f"{driver}/{pool}/{device}"


def parts_of(device: str) -> tuple[str, str, str]:
    """Return driver, pool and name of a device with this id."""
    driver, _, rest = device.partition("/")
    pool, _, name = rest.rpartition("/")
    return driver, pool, name
