"""A simulated cluster from a short description: `16x8`, `4x8xV100+8x4xK80`, `64x8/4`.

`/4` puts every four nodes into a rack, behind one switch.
"""

import re

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import CPU, GIB, TIB
from allotment.sim.bad import BadScenario

PART = re.compile(r"(\d{1,7})x(\d{1,4})(?:x([A-Za-z0-9][\w.-]{0,40}))?(?:/(\d{1,5}))?")
MOST_DEVICES = 10_000_000

CPUS_A_DEVICE, MEMORY_A_DEVICE = 16 * CPU, 128 * GIB
"""Ample: a trace without CPU and memory is counted in devices alone."""


class BadCluster(BadScenario):
    """A cluster that cannot be: what is wrong, and how to write it."""


def cluster_of(text: str) -> tuple[Node, ...]:
    """Read `NODESxDEVICES[xTYPE]`, several joined by `+`. Raises BadCluster."""
    nodes: list[Node] = []
    for part in text.split("+"):
        match = PART.fullmatch(part.strip())
        if match is None:
            raise BadCluster(
                f"{text!r} is no cluster: write NODESxDEVICES, such as 16x8, "
                "8x8xA100+4x4xV100, or 64x8/4 (racks of 4 nodes), or name a cluster file."
            )
        count, devices, kind = int(match[1]), int(match[2]), match[3] or "gpu"
        if not count or count * max(1, devices) > MOST_DEVICES:
            raise BadCluster(
                f"{part.strip()!r}: a cluster has at least one node and at most "
                f"{MOST_DEVICES:,} devices."
            )
        rack = int(match[4] or 0)
        if match[4] and not rack:
            raise BadCluster(f"{part.strip()!r}: a rack has at least one node.")
        nodes += [_node(len(nodes) + place, devices, kind, rack) for place in range(count)]
    return tuple(nodes)


def _node(number: int, devices: int, kind: str, rack: int) -> Node:
    shares = max(1, devices)
    return Node(
        NodeId(number),
        f"node{number}",
        CPUS_A_DEVICE * shares,
        MEMORY_A_DEVICE * shares,
        TIB,
        tuple(Device(DeviceIndex(place), kind) for place in range(devices)),
        labels=(("rack", f"{kind}{number // rack}"), ("switch", f"{kind}{number // rack}"))
        if rack
        else (),
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
