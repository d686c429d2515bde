"""What jobs hold. A placement is proposed, an allocation is committed."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allotment.model.ids import JobId, NodeId


class Entitlement(StrEnum):
    """By which entitlement a gang holds its devices."""

    GUARANTEED = "guaranteed"
    """Out of its tenant's own share: never evicted for another tenant."""
    OPPORTUNISTIC = "opportunistic"
    """Out of what others leave idle: evicted when an owner comes back."""


GUARANTEED: Final = Entitlement.GUARANTEED
OPPORTUNISTIC: Final = Entitlement.OPPORTUNISTIC
"""By names of their own: to look a member up in its enum costs as much as two calls, and every
decision asks for these again and again."""


class Slot(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where one task sits: a node, device indexes on it, and how much of each device.

    `gpu_milli` is the task's total; a fraction of a device names that one device.
    """

    node: NodeId
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    beside: tuple[int, ...] = ()
    """Leaves of the node whose share of the host it has beside that of its devices.

    Told where its tenant's cells are smaller than a node: which of them they are.
    """


Beside = tuple[tuple[int, ...], ...]
"""The leaves that each task of a gang has beside those of its devices, slot by slot."""


def having(slots: Sequence[Slot], beside: Beside) -> tuple[Slot, ...]:
    """Return slots with other leaves beside them. ValueError unless one each."""
    return tuple(
        msgspec.structs.replace(slot, beside=leaves)
        for slot, leaves in zip(slots, beside, strict=True)
    )


Quota = tuple[str, ...]
"""The types of the guaranteed cells that slots are in: one a slot, or one for all.

Empty where nothing is guaranteed in cells. With the slots it says which cells are bound.
"""


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A proposed place for a whole gang: one slot a task, in rank order."""

    job: JobId
    slots: tuple[Slot, ...]
    entitlement: Entitlement
    quota: Quota = ()
