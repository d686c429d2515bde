"""The nodes of a partition as they are now, with the switches above them as labels."""

from collections.abc import Collection, Sequence

from allotment.backends.slurm import client
from allotment.backends.slurm.calls import Calls
from allotment.backends.slurm.discover import nodes_of, report_of
from allotment.backends.slurm.switches import labelled, switches_of
from allotment.backends.slurm.told import SlurmNode
from allotment.model.cluster import Node


class Finder:
    """Keeps what was found last. That none was found at all is believed no answer."""

    def __init__(self, partition: str, slurm: Calls = client) -> None:
        self._partition, self._slurm = partition, slurm
        self._seen: tuple[Node, ...] = ()
        self.nodes: tuple[Node, ...] = ()
        """Empty before the first look."""

    async def look(self, there: Sequence[SlurmNode], known: Collection[str]) -> None:
        """Look at all nodes there are. Raises BackendError; then the last nodes stay.

        A node that is not `known` counts once it takes work, not while it is down.
        """
        by_name = {node.name: node for node in there}
        found = tuple(
            node
            for node in nodes_of(there, self._partition)
            if node.name in known or _takes_work(node, by_name[node.name])
        )
        if not found or found == self._seen:
            return
        self.nodes = labelled(found, switches_of(await self._slurm.switches()))
        self._seen = found


def _takes_work(node: Node, found: SlurmNode) -> bool:
    told = report_of(node, found)
    return told.alive and not told.closed
