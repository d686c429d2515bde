"""A simulated cluster from a short description: `16x8`, `4x8xV100+8x4xK80`, `64x8/4`.

`/4` puts every four nodes into a rack, behind one switch; all racks are full.
"""

import re

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import CPU, GIB, TIB
from allotment.sim.bad import BadScenario

PART = re.compile(r"(\d{1,12})x(\d{1,12})(?:x([A-Za-z0-9][\w.-]{0,40}))?(?:/(\d{1,5}))?")
MOST_NODES, MOST_ON_A_NODE, MOST_DEVICES = 100_000, 9_999, 10_000_000

UNTYPED = "gpu"
"""The type of devices of which none is named."""

CPUS_A_DEVICE, MEMORY_A_DEVICE = 16 * CPU, 128 * GIB
"""What a node has; of jobs that ask for no CPU and memory devices alone are counted."""


class BadCluster(BadScenario):
    """A cluster that cannot be: what is wrong, and how to write it."""


def cluster_of(text: str) -> tuple[Node, ...]:
    """Read `NODESxDEVICES[xTYPE]`, several joined by `+`. Raises BadCluster."""
    nodes: list[Node] = []
    racks = 0
    for part in text.split("+"):
        count, devices, kind, rack = _part(part.strip(), text)
        is_too_large = devices > MOST_ON_A_NODE or count * devices > MOST_DEVICES
        if not count or len(nodes) + count > MOST_NODES or is_too_large:
            raise BadCluster(
                f"{part.strip()!r}: a cluster has at least one node, and at most "
                f"{MOST_NODES:,} nodes and {MOST_DEVICES:,} devices, {MOST_ON_A_NODE:,} on a "
                "node."
            )
        for place in range(count):
            label = f"rack{racks + place // rack}" if rack else ""
            nodes.append(_node(len(nodes), devices, kind, label))
        racks += count // rack if rack else 0
    return tuple(nodes)


def _part(part: str, text: str) -> tuple[int, int, str, int]:
    """Read `64x8xA100/4`: nodes, devices of each, their type, nodes of a rack or 0."""
    match = PART.fullmatch(part)
    if match is None:
        raise BadCluster(
            f"{text!r} is not a cluster: write NODESxDEVICES, such as 16x8, "
            "8x8xA100+4x4xV100, or 64x8/4 (racks of 4 nodes), or name a cluster file."
        )
    count, devices, rack = int(match[1]), int(match[2]), int(match[4] or 0)
    if match[4] and not rack:
        raise BadCluster(f"{part!r}: a rack has at least one node.")
    if rack and count % rack:
        each, alike = part.rpartition("/")[0].partition("x")[2], count // rack * rack
        fewer = f"{alike}x{each}/{rack}+" if alike else ""
        raise BadCluster(
            f"{part!r}: {count} nodes do not fill racks of {rack}. Write "
            f"{alike + rack}x{each}/{rack}, or {fewer}{count - alike}x{each}/{count - alike} "
            "for a rack that is smaller."
        )
    return count, devices, match[3] or UNTYPED, rack


def _node(number: int, devices: int, kind: str, rack: str) -> Node:
    shares = max(1, devices)
    return Node(
        NodeId(number),
        f"node{number}",
        CPUS_A_DEVICE * shares,
        MEMORY_A_DEVICE * shares,
        TIB,
        tuple(Device(DeviceIndex(place), kind) for place in range(devices)),
        labels=(("rack", rack), ("switch", rack)) if rack else (),
    )


def words_of(nodes: tuple[Node, ...]) -> str:
    """Describe a cluster: 64 nodes × 8 A100, 8 nodes × 4 V100."""
    kinds: dict[tuple[int, str], int] = {}
    for node in nodes:
        types = sorted({device.type for device in node.devices})
        kind = (len(node.devices), "+".join(types) or "no device")
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(
        f"{count} {'node' if count == 1 else 'nodes'} × {devices} {kind}"
        for (devices, kind), count in kinds.items()
    )
