"""Devices that have a name in their cluster, and the devices of our nodes that they are. Pure.

A node keeps the name of each of its devices as its UUID: so what the core plans by index is one
certain device, as long as the node is known.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex

MOST_DEVICES = 1024


class NamedDevice(msgspec.Struct, frozen=True, gc=False):
    """A device of a node that has a name in its cluster."""

    id: str
    """DRIVER/POOL/DEVICE."""
    type: str
    memory: int
    """In bytes; 0 where that is not known."""
    of: str
    """The DeviceClass that it is asked for by."""
    classes: tuple[str, ...] = ()
    """All classes of accelerators that mean it."""
    shut: str = ""
    """The taint that keeps it from being given out; '' for none."""
    skips: tuple[str, ...] = ()
    """What its kubelet need not ask of its driver."""


NamedOn = Callable[[str], Sequence[NamedDevice]]
"""The devices of a node; none where they have no names."""


def nothing_on(node: str) -> Sequence[NamedDevice]:  # noqa: ARG001 - so of every node
    """Return no devices."""
    return ()


def in_order(devices: Iterable[NamedDevice]) -> list[NamedDevice]:
    """Return devices in the order of their names: `gpu-2` is before `gpu-10`."""
    return sorted(devices, key=lambda each: (_parts(each.id), each.id))[:MOST_DEVICES]


def _parts(text: str) -> tuple[tuple[int, str], ...]:
    return tuple(
        (int(each), "") if each.isdecimal() else (-1, each)
        for each in re.split(r"([0-9]{1,18})", text)
    )


def has_names(node: Node) -> bool:
    """Whether all devices of a node are known by name."""
    return bool(node.devices) and all(each.uuid.count("/") > 1 for each in node.devices)


def devices_of(named: Iterable[NamedDevice]) -> tuple[Device, ...]:
    """Return the devices of a node that is new."""
    return tuple(
        Device(DeviceIndex(index), each.type, each.memory, each.id, virtual=False)
        for index, each in enumerate(named)
    )


def kept(before: Sequence[Device], now: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices of a node that was known: each in the place that it had, as tasks have
    it by its index, also one that is not there now. New ones come after them."""
    there = {device.uuid: device for device in now}
    known = {device.uuid for device in before}
    new = [device for device in now if device.uuid not in known]
    both = (*(there.get(device.uuid, device) for device in before), *new)
    return tuple(
        msgspec.structs.replace(device, index=DeviceIndex(index))
        for index, device in enumerate(both[:MOST_DEVICES])
    )


def taken(
    node: Node, named: Iterable[NamedDevice], is_held: Callable[[str], bool]
) -> tuple[int, ...]:
    """Return which devices of a node are not available, by index: those that claims of others
    hold, and those that are not offered now."""
    free = {each.id for each in named if not each.shut and not is_held(each.id)}
    return tuple(device.index for device in node.devices if device.uuid not in free)


class NodesByName:
    """Finds nodes in force by their names, of which there may be thousands."""

    def __init__(self, nodes: Callable[[], Sequence[Node]]) -> None:
        self._nodes = nodes
        self._at: Sequence[Node] = ()
        self._by_name: dict[str, Node] = {}

    def find(self, name: str) -> Node | None:
        """Return a node; None where none of that name is in force. O(1) while `nodes` returns
        the same object."""
        now = self._nodes()
        if now is not self._at:
            self._at, self._by_name = now, {node.name: node for node in now}
        return self._by_name.get(name)


def by_id(devices: Iterable[NamedDevice]) -> dict[str, NamedDevice]:
    """Return devices by their ids."""
    return {each.id: each for each in devices}
