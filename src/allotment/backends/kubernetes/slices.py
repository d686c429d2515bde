"""ResourceSlices → the devices that nodes have, each by its name. Pure.

A device is ours to give if a DeviceClass of accelerators means it, and one task at a time can
have it as a whole.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from allotment.backends.kubernetes.device_objects import (
    DeviceClass,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
    id_of,
)
from allotment.backends.kubernetes.discover import UNTYPED, type_of
from allotment.backends.kubernetes.named import NamedDevice, in_order
from allotment.backends.kubernetes.selectors import (
    Facts,
    NotUnderstood,
    Test,
    facts_of,
    meant_by,
)

USUAL = frozenset({
    "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "tpu.google.com",
    "gpu.example.com",
})  # fmt: skip
"""Classes of whole accelerators, as their drivers name them."""
MARK = "allotment.io/devices"
"""A label: `"true"` on further classes whose devices tasks get, `"false"` on a usual one."""
KINDS = ("productName", "model", "type")
"""Attributes that name the type of a device."""
MEMORY = "memory"
"""A capacity."""
SHUTS = ("NoSchedule", "NoExecute")


class Kind(msgspec.Struct, frozen=True):
    """A class of devices that tasks get."""

    name: str
    tests: tuple[Test, ...]

    def means(self, facts: Facts) -> bool:
        return all(test(facts) for test in self.tests)


def is_wanted(found: DeviceClass) -> bool:
    """Whether tasks get devices of a class."""
    said = (found.metadata.labels or {}).get(MARK, "")
    return said == "true" or (found.metadata.name in USUAL and said != "false")


def kind_of(found: DeviceClass) -> Kind:
    """Return what a class means. Raises NotUnderstood."""
    expressions = [each.cel for each in found.spec.selectors or ()]
    if None in expressions:
        raise NotUnderstood("it has a selector that is not CEL")
    tests = tuple(meant_by(each.expression) for each in expressions if each is not None)
    return Kind(found.metadata.name, tests)


def newest(slices: Iterable[ResourceSlice]) -> tuple[Sequence[ResourceSlice], str]:
    """Return the slices that make a pool now, or none and why it is not used."""
    there = list(slices)
    last = max((each.spec.pool.generation for each in there), default=0)
    now = [each for each in there if each.spec.pool.generation == last]
    wanted = now[0].spec.pool.resource_slice_count if now else 0
    if len(now) != wanted:
        return (), f"{len(now)} of its {wanted} slices are there"
    names = [device.name for each in now for device in each.spec.devices or ()]
    if len(names) != len(set(names)):
        return (), "two of its devices have one name"
    return now, ""


def devices_in(
    slices: Iterable[ResourceSlice], kinds: Collection[Kind]
) -> dict[str, tuple[NamedDevice, ...]]:
    """Return the devices of one pool by node, in their order: those of one node only."""
    found: dict[str, list[NamedDevice]] = {}
    for each in slices:
        spec = each.spec
        for device in spec.devices or ():
            node = device.node_name or spec.node_name
            if not node or not _is_whole(device):
                continue
            facts = facts_of(spec.driver, device)
            names = [kind.name for kind in kinds if kind.means(facts)]
            if names:
                of = spec.driver if spec.driver in names else min(names)
                named = _named(spec.driver, spec.pool.name, device, facts, of)
                found.setdefault(node, []).append(
                    msgspec.structs.replace(
                        named, classes=tuple(names), skips=spec.skip_node_operations or ()
                    )
                )
    return {node: tuple(in_order(devices)) for node, devices in found.items()}


def _is_whole(device: SliceDevice) -> bool:
    """Whether one claim can have a device, as a whole, as soon as it is allocated."""
    return not (
        device.consumes_counters
        or device.allow_multiple_allocations
        or device.binding_conditions
        or device.node_allocatable_resources
    )


def _named(driver: str, pool: str, device: SliceDevice, facts: Facts, of: str) -> NamedDevice:
    own = facts.attributes.get(driver, {})
    words = (own.get(name) for name in KINDS)
    product = next((word for word in words if isinstance(word, str) and word), "")
    amount = facts.capacity.get(driver, {}).get(MEMORY, 0)
    return NamedDevice(
        id=id_of(driver, pool, device.name),
        type=type_of(product) if product else UNTYPED,
        memory=amount if isinstance(amount, int) else 0,
        of=of,
        shut=next((_words(each) for each in device.taints or () if each.effect in SHUTS), ""),
    )


def _words(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
