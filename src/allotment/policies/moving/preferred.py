"""To a device type that its job prefers, and out of shared devices into free ones.

Source: the rounds of Narayanan et al., Gavel, OSDI 2020, section 5, which deal all devices
out anew; and the unpacking of Xiao et al., Gandiva, OSDI 2018, section 4.3.

Bad at: jobs that are moved for little: what a move costs is not asked.
"""

from collections.abc import Sequence

from allotment.core.gang import Gang
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE
from allotment.policies.rescheduling.ports import Devices


class ToPreferred:
    """Move for devices of one's own or a better type, if neither is lost for the other."""

    def content(self, gang: Gang, devices: Devices) -> bool:
        return not (
            _worst_type(gang, gang.slots, devices)
            or _shared(gang, gang.slots, devices, own=True)
        )

    def better(self, gang: Gang, slots: Sequence[Slot], devices: Devices) -> bool:
        shared = _shared(gang, gang.slots, devices, own=True)
        shared_then = _shared(gang, slots, devices, own=False)
        kind, kind_then = (
            _worst_type(gang, gang.slots, devices),
            _worst_type(gang, slots, devices),
        )
        if shared_then > shared or kind_then > kind:
            return False
        return shared_then < shared or kind_then < kind


def _worst_type(gang: Gang, slots: Sequence[Slot], devices: Devices) -> int:
    """Return how far down its list of preferences a gang is; 0 if it takes any."""
    types = gang.requests[0].types
    if not types:
        return 0
    return max(
        types.index(devices.type_of(slot.node, index))
        for slot in slots
        for index in slot.devices
    )


def _shared(gang: Gang, slots: Sequence[Slot], devices: Devices, *, own: bool) -> int:
    """Count the devices that another gang has a part of; `own` when the gang is there."""
    count = 0
    for need, slot in zip(gang.needs, slots, strict=True):
        for index in slot.devices:
            free = devices.free_milli(slot.node, index)
            free += need.gpu_milli // len(slot.devices) if own else 0
            count += free < DEVICE
    return count
