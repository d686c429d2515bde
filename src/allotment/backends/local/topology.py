"""How this machine's devices lie together, as its driver sees it: cell types and a root.

The driver names the closest thing two devices share: a board, a switch, several switches,
a host bridge, a socket, or only the machine. Devices that share something close form a
cell; a level counts only where all its cells are of one size, and say something new.
"""

from collections.abc import Callable, Sequence

import pynvml as _untyped  # pyright: ignore[reportMissingTypeStubs]

from allotment.backends.local.machine import nvml
from allotment.model.cells import CellType, RootCell, Topology
from allotment.model.cluster import Device, Node

Distance = Callable[[int, int], int]
"""What two devices share at closest, by index: a level of `LEVELS`; less is closer."""

LEVELS: tuple[tuple[int, str], ...] = (
    (_untyped.NVML_TOPOLOGY_INTERNAL, "board"),
    (_untyped.NVML_TOPOLOGY_SINGLE, "switch"),
    (_untyped.NVML_TOPOLOGY_MULTIPLE, "switches"),
    (_untyped.NVML_TOPOLOGY_HOSTBRIDGE, "bridge"),
    (_untyped.NVML_TOPOLOGY_NODE, "socket"),
)
"""Closest first; what is farther is the machine."""
MACHINE: int = _untyped.NVML_TOPOLOGY_SYSTEM


def this_topology(node: Node) -> Topology:
    """Describe how the devices of this machine lie together.

    Virtual devices, and those of a driver that cannot tell, lie side by side; a machine
    without any is its cores.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return topology_of(node, _unknown)
    try:
        return topology_of(node, _asked())
    finally:
        nvml.nvmlShutdown()


def _unknown(one: int, other: int) -> int:  # noqa: ARG001 - a Distance
    return MACHINE


def _asked() -> Distance:
    """Ask the driver, once for each device it lets us see."""

    def distance(one: int, other: int) -> int:
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in (one, other)]
            return int(nvml.nvmlDeviceGetTopologyCommonAncestor(*handles))
        except nvml.NVMLError:
            return MACHINE

    return distance


def topology_of(node: Node, distance: Distance) -> Topology:
    """Make the cells of one machine: a chain for each type of device, or for its cores."""
    if not node.devices:
        cores = max(1, node.cpu_milli // 1000)
        kind = CellType(f"cpu-{cores}-node", "core", cores, is_node=True)
        return Topology((kind,), (RootCell(kind.name, node.name, (node.id,)),))
    types: list[CellType] = []
    roots: list[RootCell] = []
    for leaf in dict.fromkeys(device.type for device in node.devices):
        own = [device for device in node.devices if device.type == leaf]
        levels, order = _levels(own, distance)
        child, prefix = leaf, f"{len(own)}x{_word(leaf)}"
        for name, count in levels:
            types.append(CellType(f"{prefix}-{name}", child, count, is_node=name == "node"))
            child = f"{prefix}-{name}"
        usual = order == list(range(len(order)))
        name = node.name if not roots else f"{node.name}.{child}"
        roots.append(RootCell(child, name, (node.id,), () if usual else (tuple(order),)))
    return Topology(tuple(types), tuple(roots))


def _levels(
    devices: Sequence[Device], distance: Distance
) -> tuple[list[tuple[str, int]], list[int]]:
    """Find the levels from the device up, each with its number of parts; and the order.

    A level is left out where its cells are of several sizes, or the same as those below.
    """
    cells = [[int(device.index)] for device in devices]
    levels: list[tuple[str, int]] = []
    for farthest, name in (*LEVELS, (MACHINE, "node")):
        joined = _joined(cells, distance, farthest)
        sizes = {len(group) for group in joined}
        if name != "node" and (len(sizes) > 1 or len(joined) in (1, len(cells))):
            continue
        levels.append((name, sizes.pop() if name != "node" else len(cells)))
        cells = [[index for cell in group for index in cell] for group in joined]
        if name == "node":
            cells = [[index for cell in cells for index in cell]]
    return levels, cells[0]


def _joined(
    cells: Sequence[list[int]], distance: Distance, farthest: int
) -> list[list[list[int]]]:
    """Group cells of which some devices are no farther apart than this."""
    groups: list[list[list[int]]] = []
    for cell in cells:
        near = [
            group
            for group in groups
            if any(
                distance(one, other) <= farthest
                for there in group
                for one in there
                for other in cell
            )
        ]
        merged = [there for group in near for there in group] + [cell]
        groups = [group for group in groups if group not in near]
        groups.append(merged)
    return sorted(groups, key=lambda group: min(cell[0] for cell in group))


def _word(leaf: str) -> str:
    """Make a type of device part of a name."""
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in leaf)
