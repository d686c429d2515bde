"""Who holds what. A placement is proposed, an allocation is committed."""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId, NodeId


class Entitlement(StrEnum):
    """On what grounds a gang holds its devices."""

    GUARANTEED = "guaranteed"
    """Out of its tenant's own share: never evicted for another tenant."""
    OPPORTUNISTIC = "opportunistic"
    """Out of what others leave idle: evicted when an owner comes back."""


class Slot(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where one task sits: a node, device indexes on it, and how much of each device.

    `gpu_milli` is the task's total; a fraction of a device names that one device.
    """

    node: NodeId
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0


Quota = tuple[str, ...]
"""The types of the cells out of which a tenant is owed its slots: one a slot, or one for all.

Empty where nothing is owed by cells. With the slots it says which cells are bound.
"""


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A proposed place for a whole gang: one slot a task, in rank order."""

    job: JobId
    slots: tuple[Slot, ...]
    entitlement: Entitlement
    quota: Quota = ()
