"""What Slurm says of its nodes → nodes of ours, and whether they take work. Pure."""

import re
from collections.abc import Sequence

from allotment.backends.slurm.told import SlurmNode
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import GIB, MIB
from allotment.model.reports import NodeReport
from allotment.model.spec import Arch

UNTYPED = "gpu"
"""The type of a device of which Slurm names none."""
GRES = re.compile(r"(?<![^,])gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)")
FEATURES = "features"
"""The label that has all features of a node: those with the same ones lie together."""
ARCHS = {"x86_64": Arch.X86_64, "aarch64": Arch.ARM64}
DISK = 1024 * GIB
"""Slurm counts no disk unless it is told to; what it does not count is not what is short."""

LOST = {
    "DOWN": "is down",
    "ERROR": "has an error",
}
CLOSED = {
    "DRAIN": "drained",
    "FAIL": "failing",
    "MAINTENANCE": "in maintenance",
    "NOT_RESPONDING": "not responding",
    "POWERED_DOWN": "powered down",
    "POWER_DOWN": "powered down",
    "POWERING_DOWN": "powered down",
    "INVALID_REG": "with less hardware than configured",
    "REBOOT_ISSUED": "rebooting",
    "FUTURE": "not there yet",
}


def nodes_of(found: Sequence[SlurmNode], partition: str) -> tuple[Node, ...]:
    """Return the nodes of a partition, by name."""
    mine = sorted(
        (node for node in found if partition in node.partitions), key=lambda node: node.name
    )
    return tuple(
        Node(
            id=NodeId(place),
            name=node.name,
            cpu_milli=node.cpus * 1000,
            memory=node.real_memory * MIB,
            disk=DISK,
            devices=_devices(node.gres),
            arch=ARCHS.get(node.architecture.lower(), Arch.ANY),
            address=node.address or node.name,
            labels=((FEATURES, ",".join(node.tags)),) if node.tags else (),
        )
        for place, node in enumerate(mine)
    )


def _devices(gres: str) -> tuple[Device, ...]:
    """Read `gpu:a100:8(S:0-1),gpu:v100:2`: devices in the order in which they are named."""
    named = list(GRES.finditer(gres))
    types = [each["type"] or UNTYPED for each in named for _ in range(int(each["count"]))]
    return tuple(
        Device(DeviceIndex(index), kind, virtual=False) for index, kind in enumerate(types)
    )


def report_of(node: Node, found: SlurmNode | None, partition: str = "") -> NodeReport:
    """Return the state of a node: lost with all that runs there, or only closed to new work.

    With a partition, the node must be in it, with as many devices as configured.
    """
    if found is None:
        return NodeReport(node.id, alive=True, closed="Slurm has no such node")
    said = f": {found.reason}" if found.reason else ""
    lost = next((LOST[word] for word in found.words if word in LOST), "")
    if lost:
        return NodeReport(node.id, alive=False, reason=f"it {lost} in Slurm{said}")
    closed = next((CLOSED[word] for word in found.words if word in CLOSED), "")
    if closed:
        return NodeReport(node.id, alive=True, closed=f"{closed} in Slurm{said}")
    return NodeReport(node.id, alive=True, closed=_otherwise(node, found, partition))


def _otherwise(node: Node, found: SlurmNode, partition: str) -> str:
    """Return what of a node is otherwise in Slurm, such that it cannot be used."""
    if not partition:
        return ""
    if partition not in found.partitions:
        return f"not in Slurm's partition {partition}"
    there = len(_devices(found.gres))
    if there < len(node.devices):
        return f"it has {there} GPUs in Slurm, not {len(node.devices)}"
    return ""
