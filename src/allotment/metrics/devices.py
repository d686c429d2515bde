"""Which devices are in use, where jobs hold parts of devices."""

from collections.abc import Iterable

from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE
from allotment.model.spec import JobSpec


class SharedDevices:
    """Counts the holders of each device. O(devices of a gang) a change."""

    def __init__(self) -> None:
        self._holders: dict[tuple[int, int], int] = {}

    def take(self, slots: Iterable[Slot]) -> int:
        """Add a holder to each device; return the devices that had none, in thousandths."""
        holders, new = self._holders, 0
        for slot in slots:
            for index in slot.devices:
                device = (slot.node, index)
                before = holders.get(device, 0)
                holders[device] = before + 1
                new += not before
        return new * DEVICE

    def give(self, slots: Iterable[Slot]) -> int:
        """Take a holder away; return the devices that have none left, in thousandths."""
        holders, left = self._holders, 0
        for slot in slots:
            for index in slot.devices:
                device = (slot.node, index)
                holders[device] -= 1
                if not holders[device]:
                    del holders[device]
                    left += 1
        return left * DEVICE


def wanted_by(spec: JobSpec) -> tuple[int, bool]:
    """Return the devices a job waits for, in thousandths, and if a task wants a part of one."""
    total, parts = 0, False
    for role in spec.roles:
        each = role.resources.gpu_milli
        total += role.needed * each
        if each % DEVICE:
            parts = True
    return total, parts
