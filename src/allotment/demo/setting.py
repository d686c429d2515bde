"""What the demo plays on: a machine or more, cut into six places, two for each of three teams.

Real GPUs are used where there are any: six, three, two or one of them, each cut so that they
make six places. Without any, six virtual devices stand in for them. The training itself is
small and runs on the CPU in both cases.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from allotment.model.cluster import Device, Node
from allotment.model.engines import EngineSetup
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


class Pods(msgspec.Struct, frozen=True):
    """What processes that are pods need besides. The service does not see their files."""

    engine: EngineSetup
    kept: str = ""
    """A folder on a volume, where checkpoints outlive a pod; '' without a volume."""


class Setting(msgspec.Struct, frozen=True):
    """The machines as the demo uses them. `place` is what one process asks for."""

    nodes: tuple[Node, ...]
    place: Resources
    pace: int = 1
    """How many times longer a step takes: jobs start later where others start them."""
    where: str = "this machine"
    pods: Pods | None = None
    """Where the processes are pods."""

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for node in self.nodes for device in node.devices)

    @property
    def virtual(self) -> bool:
        return all(device.virtual for device in self.devices)

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
    return Setting((msgspec.structs.replace(machine, devices=devices),), place)


CLUSTER_PACE = 2


def setting_on_cluster(
    found: Sequence[Node], where: str, *, divides: bool, whole_cpus: bool = False
) -> Setting:
    """Cut nodes of a cluster into places, in turn one of each. Raises TooSmall.

    GPUs are all of one type. Where they cannot be divided, each place is a whole one.
    """
    kinds = Counter(device.type for node in found for device in node.devices)
    kind, there = max(kinds.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    least = 1 if divides else PLACES
    if there < least:
        raise TooSmall(
            f"The demo needs {least} GPUs of one type, and {where} has {there} free."
        )
    count = max(count for count in (1, 2, 3, 6) if count <= there)
    nodes = _dealt(found, kind, count)
    each = PLACES // count
    parts = [(node, each * len(node.devices) + 1) for node in nodes]
    place = Resources(
        gpu_milli=DEVICE // each,
        cpu_milli=min(MOST_CPU_MILLI, *(node.cpu_milli // part for node, part in parts)),
        memory=min(MOST_MEMORY, *(node.memory // part for node, part in parts)),
    )
    if place.memory < LEAST_MEMORY or (whole_cpus and place.cpu_milli < MOST_CPU_MILLI):
        raise TooSmall(
            f"The demo needs {'a CPU and ' if whole_cpus else ''}{LEAST_MEMORY // MIB} MiB of "
            f"memory for each GPU that it uses, and a node of {where} has less."
        )
    return Setting(nodes, place, CLUSTER_PACE, where)


def _dealt(found: Sequence[Node], kind: str, count: int) -> tuple[Node, ...]:
    """Take so many devices of a type, one of each node in turn; leave out nodes without any."""
    own = {node.id: [each for each in node.devices if each.type == kind] for node in found}
    order = sorted((turn, node.id) for node in found for turn in range(len(own[node.id])))[
        :count
    ]
    taken = Counter(node for _, node in order)
    return tuple(
        msgspec.structs.replace(node, devices=tuple(own[node.id][: taken[node.id]]))
        for node in found
        if taken[node.id]
    )


def _devices(found: Sequence[Device]) -> tuple[Device, ...]:
    """Take as many devices as divide the places evenly; make virtual ones where none is."""
    if not found:
        return tuple(Device(DeviceIndex(index), "virtual") for index in range(PLACES))
    most = max(count for count in (1, 2, 3, 6) if count <= len(found))
    return tuple(found[:most])


def config_of(setting: Setting) -> Config:
    """Return three teams equal guarantees, and make retries come soon enough to watch."""
    nodes = setting.nodes
    share = Resources(
        gpu_milli=setting.place.gpu_milli * PLACES_EACH,
        cpu_milli=sum(node.cpu_milli for node in nodes) // len(TEAMS),
        memory=sum(node.memory for node in nodes) // len(TEAMS),
        gpu_memory=sum(device.memory for device in setting.devices) // len(TEAMS),
    )
    return Config(
        nodes=nodes,
        engines=(setting.pods.engine,) if setting.pods else (),
        tenants=tuple(Tenant(team, share) for team in TEAMS),
        limits=Limits(backoff_first_ms=500),
        default_tenant=TEAMS[0],
    )
