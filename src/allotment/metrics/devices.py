"""What jobs want of devices, and which are in use where they hold parts of them."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Resources
from allotment.model.spec import TaskRole

ONE_DEVICE = Resources(gpu_milli=DEVICE)


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


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """What a job wants of devices."""

    milli: int
    """What it waits for, in thousandths: the least, if that may vary."""
    varies: bool
    """Whether it may have more tasks than it waits for."""
    parts: bool
    """Whether a task wants a part of a device, so that others may be on the same one."""
    loose: bool
    """Whether every task needs one whole device of any type, and nothing else."""


@lru_cache(maxsize=4_096)
def wanted_by(roles: tuple[TaskRole, ...]) -> Wanted:
    """Return what a job with these roles wants: most jobs have the roles of another."""
    return Wanted(
        sum(role.needed * role.resources.gpu_milli for role in roles),
        roles[-1].least > 0,
        any(role.resources.gpu_milli % DEVICE for role in roles),
        all(role.resources == ONE_DEVICE and not role.gpu_types for role in roles),
    )
