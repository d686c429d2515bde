"""Nodes that join, change and leave while the service runs, as their engines tell.

It concerns engines of which the configuration lists no nodes. The text of the configuration is
read again with the nodes that were found, so shares, cells and dates are those of what is
there. A node on which a job is does not leave, nor lose what the job has, before that is over.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from allotment.core.ledger import Slot
from allotment.model.cluster import Node
from allotment.model.commands import FindNodes
from allotment.model.errors import BadInput, Rejected
from allotment.model.ids import SYSTEM
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Backend, Finds
from allotment.service.reconfigure import Reconfiguring

LOOK_EVERY_S = 1.0
MOST_LOOKS = 32
"""How many looks pass at most before what was refused is tried again."""

log = structlog.get_logger("allot.service")


class RefusedNodes(msgspec.Struct, frozen=True):
    """Nodes that were not put in force, and why: tried ever more seldom, reported once."""

    nodes: tuple[Node, ...]
    why: str
    pause: int
    """In looks."""
    since: int
    """The look at which it was refused."""


class Joining:
    """Follows what engines find."""

    def __init__(
        self, pipeline: Pipeline, backend: Backend, reconfiguring: Reconfiguring
    ) -> None:
        self._pipeline, self._backend = pipeline, backend
        self._reconfiguring = reconfiguring
        self._done: dict[str, tuple[Node, ...]] = {}
        """What was put in force of each engine's nodes last."""
        self._seen: dict[str, Sequence[Node]] = {}
        """What was found then, where all of it is in force."""
        self._refusals: dict[str, RefusedNodes] = {}
        self._look = 0

    async def look(self) -> None:
        """Put in force the nodes that engines have found since the last look."""
        if not isinstance(self._backend, Finds) or self._pipeline.committer.trouble:
            return
        self._look += 1
        setups = self._pipeline.state.config.engines
        for name, found in self._backend.found_nodes().items():
            if setups and found:  # Else the configuration lists them.
                await self._follow(name or setups[0].name, found)

    async def _follow(self, engine: str, found: Sequence[Node]) -> None:
        if self._seen.get(engine) is found:
            return
        nodes = self._with_those_in_use(engine, found)
        last = self._refusals.get(engine)
        if last and last.nodes == nodes and self._look - last.since < last.pause:
            return
        if self._done.get(engine) != nodes and await self._take(engine, nodes):
            self._done[engine] = nodes
        if self._done.get(engine) == tuple(found):
            self._seen[engine] = found

    async def _take(self, engine: str, nodes: tuple[Node, ...]) -> bool:
        """Put nodes in force; return whether there is nothing to try again."""
        async with self._reconfiguring.one_at_a_time:
            try:
                config, warnings = await asyncio.to_thread(
                    self._reconfiguring.found, engine, nodes
                )
                await self._pipeline.command(FindNodes(engine, config), SYSTEM)
            except (BadInput, Rejected) as error:
                self._refused(engine, nodes, str(error))
                return isinstance(error, BadInput)
        for warning in warnings:
            log.warning("nodes changed", engine=engine, but=str(warning))
        self._refusals.pop(engine, None)
        return True

    def _refused(self, engine: str, nodes: tuple[Node, ...], why: str) -> None:
        last = self._refusals.get(engine)
        is_again = last is not None and (last.nodes, last.why) == (nodes, why)
        pause = min(2 * last.pause, MOST_LOOKS) if last and is_again else 1
        self._refusals[engine] = RefusedNodes(nodes, why, pause, self._look)
        if not is_again:
            words = "nodes changed, and the configuration in force stays"
            log.warning(words, engine=engine, because=why)

    def _with_those_in_use(self, engine: str, found: Sequence[Node]) -> tuple[Node, ...]:
        """Return the nodes that were found, and as they were those that jobs still need."""
        state = self._pipeline.state
        mine = {node.id: node for node in state.config.nodes if node.engine == engine}
        new = {node.name: node for node in found}
        losing = {
            id: node
            for id, node in mine.items()
            if node.name not in new or len(new[node.name].devices) < len(node.devices)
        }
        if not losing:
            return tuple(found)
        for gang in state.cluster.holders():
            for slot in gang.slots:
                if (node := losing.get(slot.node)) and _needs(slot, new.get(node.name)):
                    new[node.name] = node
        return tuple(new[name] for name in sorted(new))


def _needs(slot: Slot, node: Node | None) -> bool:
    """Whether a task has what its node has no longer."""
    return node is None or any(index >= len(node.devices) for index in slot.devices)
