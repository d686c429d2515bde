"""The machines: nodes, their devices, and what state they are in."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from allotment.model.engines import Ability
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import Resources
from allotment.model.spec import Arch

OF_MIG = "MIG-"
"""How the UUID begins of a part of a device that MIG divides."""


class Device(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One accelerator. `memory` in bytes, 0 when unknown; `uuid` empty for a virtual one."""

    index: DeviceIndex
    type: str
    memory: int = 0
    uuid: str = ""
    virtual: bool = True


class Nic(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A network card for traffic between devices: its name, and the devices nearest to it.

    It goes with these devices: a task that has one of them may use it.
    """

    name: str
    near: tuple[int, ...]


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine, as configured or discovered. `labels` are free words for people."""

    id: NodeId
    name: str
    cpu_milli: int
    memory: int
    disk: int
    devices: tuple[Device, ...] = ()
    arch: Arch = Arch.X86_64
    address: str = "127.0.0.1"
    labels: tuple[tuple[str, str], ...] = ()
    nics: tuple[Nic, ...] = ()
    engine: str = ""
    """The engine that runs its tasks; '' where there is but one."""
    lacks: tuple[Ability, ...] = ()
    """What that engine cannot do."""

    def nics_of(self, devices: Sequence[int]) -> tuple[str, ...]:
        """Name the network cards nearest to any of these devices, in the node's order."""
        return tuple(nic.name for nic in self.nics if not set(nic.near).isdisjoint(devices))

    def total(self) -> Resources:
        """Sum up what the node has."""
        return Resources(
            gpu_milli=1000 * len(self.devices),
            cpu_milli=self.cpu_milli,
            memory=self.memory,
            disk=self.disk,
            gpu_memory=sum(device.memory for device in self.devices),
        )


class NodeState(StrEnum):
    """Whether a node takes new work."""

    READY = "ready"
    DRAINED = "drained"
    """An administrator asked for it: running work stays, nothing new starts."""
    LOST = "lost"
    """Its backend no longer answers for it."""


BY_ENGINE = "engine: "
"""How the reason begins of a drain that an engine told: it ends when the engine says so, and
that of an administrator does not."""
