"""Watches the nodes of a partition: seldom in full, and often for what is wrong with any."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from allotment.backends.slurm import client
from allotment.backends.slurm.client import SlurmNode
from allotment.backends.slurm.contact import Contact
from allotment.backends.slurm.discover import report_of
from allotment.backends.slurm.settings import Partition
from allotment.model.cluster import Node
from allotment.model.errors import BackendError
from allotment.model.ids import NodeId
from allotment.model.reports import NodeReport
from allotment.service.ports import Report

LOOK_EVERY_S = 2.0
OURS = "allotment: "
"""How the reason of our own drains begins in Slurm."""
ALL_EVERY_S = 30.0
"""How often all is asked of each node, where nothing new seems wrong."""


class NodeWatch:
    """Tells how the nodes of the configuration are, whenever that changes."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[Node]],
        partition: str,
        contact: Contact,
        sink: Callable[[Report], None],
    ) -> None:
        self._nodes, self._contact, self._sink = nodes, contact, sink
        self._name = partition
        self.partition: Partition | None = None
        """As it was when all was last asked."""
        self._told: dict[NodeId, NodeReport] = {}
        self._seen: tuple[object, ...] = ()
        """What was wrong, and for which nodes, when all was last asked."""
        self._asked = 0.0
        self._to_open: set[str] = set()
        """Nodes that are not to be drained by us, whatever became of telling Slurm."""

    async def look(self) -> None:
        """Look once. That Slurm does not answer is no news of its nodes."""
        nodes = tuple(self._nodes())
        try:
            async with self._contact:
                seen = (await client.troubles(), nodes)
                if seen == self._seen and monotonic() - self._asked < ALL_EVERY_S:
                    return
                there = {node.name: node for node in await client.nodes()}
                self.partition = await client.partition(self._name)
        except BackendError:
            return
        self._seen, self._asked = seen, monotonic()
        await self._open_again(there)
        for node in nodes:
            told = report_of(node, there.get(node.name))
            if self._told.get(node.id) != told:
                self._told[node.id] = told
                self._sink(told)

    async def _open_again(self, there: Mapping[str, SlurmNode]) -> None:
        """Resume what we drained and are to open: Slurm may not have done it when it was told,
        as it refuses while a node has not reported to a slurmctld that just started."""
        for name in sorted(self._to_open & there.keys()):
            node = there[name]
            if "DRAIN" in node.state_flags and node.reason.startswith(OURS):
                with contextlib.suppress(BackendError):
                    await client.resume(name)
                self._seen = ()  # Look again soon, whether it worked or not.

    async def close(self, node: str, reason: str) -> None:
        """Drain a node in Slurm, unless it is drained there: whose reason that is, stays."""
        self._to_open.discard(node)
        state, _ = await self._now(node)
        if "drain" not in state:
            await client.drain(node, f"{OURS}{reason or 'no reason given'}")

    async def open(self, node: str) -> None:
        """Undo our own drain of a node; what else keeps nodes closed is told once more."""
        self._to_open.add(node)
        state, reason = await self._now(node)
        if "drain" in state and reason.startswith(OURS):
            await client.resume(node)
        self._told = {id: told for id, told in self._told.items() if not told.closed}
        self._seen = ()

    async def _now(self, node: str) -> tuple[str, str]:
        async with self._contact:
            return await client.state_of(node)
