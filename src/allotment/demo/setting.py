"""What the demo plays on: this machine, cut into six places, two for each of three teams.

Real GPUs are used where there are any: six, three, two or one of them, each cut so that they
make six places. Without any, six virtual devices stand in for them. The training itself is
small and runs on the CPU in both cases.
"""

from collections.abc import Sequence

import msgspec

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex
from allotment.model.quantity import DEVICE, MIB, Resources
from allotment.model.tenancy import Config, Limits, Tenant

TEAMS = ("vision", "speech", "nlp")
PLACES_EACH = 2
PLACES = PLACES_EACH * len(TEAMS)
SPARE = 2
"""Host CPU and memory are cut into so many more parts, so that only devices are ever short."""
MOST_CPU_MILLI = 1000
MOST_MEMORY = 1024 * MIB
LEAST_MEMORY = 96 * MIB
"""What one process of the training job needs, with some room."""


class Setting(msgspec.Struct, frozen=True):
    """The machine as the demo uses it. `place` is what one process asks for."""

    node: Node
    place: Resources

    @property
    def virtual(self) -> bool:
        return all(device.virtual for device in self.node.devices)

    @property
    def shared(self) -> bool:
        """Whether several processes share a device."""
        return self.place.gpu_milli < DEVICE


class TooSmall(Exception):
    """This machine cannot hold the demo."""


def setting_of(machine: Node) -> Setting:
    """Cut a machine into places. Raises TooSmall."""
    devices = _devices(machine.devices)
    parts = PLACES + SPARE
    place = Resources(
        gpu_milli=DEVICE // (PLACES // len(devices)),
        cpu_milli=min(MOST_CPU_MILLI, machine.cpu_milli // parts),
        memory=min(MOST_MEMORY, machine.memory // parts),
    )
    if place.memory < LEAST_MEMORY:
        raise TooSmall(
            f"The demo needs {LEAST_MEMORY * parts // MIB} MiB of memory, and this machine has "
            f"{machine.memory // MIB}."
        )
    return Setting(msgspec.structs.replace(machine, devices=devices), place)


def _devices(found: Sequence[Device]) -> tuple[Device, ...]:
    """Take as many devices as divide the places evenly; make virtual ones where none is."""
    if not found:
        return tuple(Device(DeviceIndex(index), "virtual") for index in range(PLACES))
    most = max(count for count in (1, 2, 3, 6) if count <= len(found))
    return tuple(found[:most])


def config_of(setting: Setting) -> Config:
    """Return three teams equal guarantees, and make retries come soon enough to watch."""
    node = setting.node
    share = Resources(
        gpu_milli=setting.place.gpu_milli * PLACES_EACH,
        cpu_milli=node.cpu_milli // len(TEAMS),
        memory=node.memory // len(TEAMS),
        gpu_memory=sum(device.memory for device in node.devices) // len(TEAMS),
    )
    return Config(
        nodes=(node,),
        tenants=tuple(Tenant(team, share) for team in TEAMS),
        limits=Limits(backoff_first_ms=500),
        default_tenant=TEAMS[0],
    )
