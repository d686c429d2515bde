"""What machines have left beside what suspended gangs keep of them.

They gave up devices and CPU; they keep memory, disk and the memory of their devices.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.cells.attempt import Avoid
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.request import Request
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources


class Beside:
    """What some suspended gangs leave, on the machines where they keep anything."""

    def __init__(self, cluster: Cluster, keepers: Iterable[Gang]) -> None:
        """Subtract what they keep. O(their tasks)."""
        self.hosts: dict[NodeId, Resources] = {}
        self.memory: dict[tuple[NodeId, int], int] = {}
        """What is left of the memory of devices, by node and index."""
        self.width = 0
        """The devices of the widest of these machines."""
        for gang in keepers:
            for slot, kept in zip(gang.slots, gang.kept(), strict=True):
                node = cluster.nodes[slot.node]
                whole = Resources(memory=node.memory, disk=node.disk)
                self.hosts[slot.node] = self.hosts.get(slot.node, whole) - kept
                self.width = max(self.width, len(node.devices))
                for index in slot.devices if kept.gpu_memory else ():
                    left = self.memory.get((slot.node, index), node.devices[index].memory)
                    self.memory[slot.node, index] = left - kept.gpu_memory

    def lacking(self, need: Resources) -> Avoid:
        """Return where less is left than that: of the host, or of single devices."""
        return Avoid(
            frozenset(node for node, left in self.hosts.items() if _exceeds(need, left)),
            frozenset(at for at, left in self.memory.items() if left < need.gpu_memory),
        )

    def has(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> bool:
        """Whether a place has all it needs beside what they keep. O(tasks)."""
        hosts: dict[NodeId, Resources] = {}
        memory: dict[tuple[NodeId, int], int] = {}
        for slot, need in zip(slots, needs, strict=True):
            if slot.node in self.hosts:
                hosts[slot.node] = hosts.get(slot.node, NOTHING) + need
                for index in slot.devices:
                    at = (slot.node, index)
                    memory[at] = memory.get(at, 0) + need.gpu_memory
        return not any(
            _exceeds(need, self.hosts[node]) for node, need in hosts.items()
        ) and all(self.memory.get(at, need) >= need for at, need in memory.items())


def _exceeds(need: Resources, left: Resources) -> bool:
    """Whether a host has too little left, of what is kept of hosts."""
    return (need.memory > left.memory and need.memory > 0) or (
        need.disk > left.disk and need.disk > 0
    )


def of_one(requests: tuple[Request, ...]) -> Resources:
    """Return what any task of a gang needs at most of a host, and of a device's memory."""
    needs = [request.need for request in requests]
    return Resources(
        memory=max(need.memory for need in needs),
        disk=max(need.disk for need in needs),
        gpu_memory=max(need.gpu_memory for need in needs),
    )


def of_all(requests: tuple[Request, ...], width: int) -> Resources:
    """Return same of as many tasks as could lie together on a machine of so many devices."""
    host, memory = NOTHING, 0
    for request in requests:
        need, tasks, sharing = request.need, request.count, 1
        if need.gpu_milli:
            tasks = min(tasks, width * DEVICE // need.gpu_milli)
            sharing = min(tasks, max(1, DEVICE // need.gpu_milli))
        host += need * tasks
        memory += need.gpu_memory * sharing
    return msgspec.structs.replace(host, gpu_memory=memory)
