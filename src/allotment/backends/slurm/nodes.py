"""Watches the nodes of a partition: a line of each again and again, and all where that changes.

What others run there is told, too: it is what is allocated and not ours.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from allotment.backends.contact import Contact
from allotment.backends.slurm.calls import Calls
from allotment.backends.slurm.discover import report_of
from allotment.backends.slurm.finding import Finder
from allotment.backends.slurm.reservations import SlurmReservation
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.status import Rows
from allotment.backends.slurm.told import SlurmNode
from allotment.backends.slurm.usage import NodeLine, others_on
from allotment.model.cluster import Node
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import NodeId
from allotment.model.others import NOBODY, Others
from allotment.model.reports import NodeReport, OthersReport
from allotment.service.ports import Report

LOOK_EVERY_S = 8.0
SOON_S = 2.0
"""When the next look is, where something waits for it."""
FORGOTTEN_S = 20.0
"""For how long a node must be missing in Slurm before what ran there is given up."""
OURS = "allotment: "
"""How the reason of our own drains begins in Slurm."""
RESERVATIONS_EVERY_S = 30.0
"""How often Slurm is asked for its reservations, while it lets no job wait for one."""
ALL_EVERY_S = 60.0
"""How often all is asked of each node, where nothing new seems wrong."""


class NodeWatch:
    """Reports how the nodes of the configuration are, whenever that changes."""

    def __init__(
        self,
        slurm: Calls,
        nodes: Callable[[], Sequence[Node]],
        partition: str,
        contact: Contact,
        sink: Callable[[Report], None],
    ) -> None:
        self._slurm = slurm
        self._nodes, self._contact, self._sink = nodes, contact, sink
        self._name = partition
        self.finder = Finder(partition, slurm)
        self.partition: Partition | None = None
        """As it was when all was last asked."""
        self._told: dict[tuple[NodeId, str], NodeReport] = {}
        self._missing: dict[str, float] = {}
        """Since when Slurm does not know nodes of ours."""
        self._seen: tuple[object, ...] = ()
        """What was wrong, and for which nodes, when all was last asked."""
        self._asked = 0.0
        self._looked = -LOOK_EVERY_S
        self._is_hurried = self._is_full = False
        """Whether to look soon, and at all there is to see."""
        self._others: dict[NodeId, Others] = {}
        """What others use of nodes, as it was told."""
        self._changed: dict[str, float] = {}
        """When it was reported last that less of a node is available, by name."""
        self.reservations: Sequence[SlurmReservation] | None = None
        """As they were when asked for last; None before."""
        self._asked_for_reservations = -RESERVATIONS_EVERY_S
        self._to_open: set[str] = set()
        """Nodes that are not to be drained by us, whatever became of telling Slurm."""

    @property
    def is_due(self) -> bool:
        """Whether to look now."""
        pause_s = SOON_S if self._is_hurried else LOOK_EVERY_S
        return monotonic() - self._looked >= pause_s

    def hurry(self, *, full: bool = False, reserved: bool = False) -> None:
        """Look soon: a task waits for a node that Slurm does not give, or has `reserved`."""
        self._is_hurried, self._is_full = True, self._is_full or full
        if reserved:
            self._asked_for_reservations = -RESERVATIONS_EVERY_S

    def shut_since(self, node: str, since: float) -> bool:
        """Whether less of a node was available since then than before, as reported."""
        return self._changed.get(node, 0.0) > since

    async def look(self) -> Sequence[NodeLine]:
        """Look once; return a line for each node. No answer of Slurm changes nothing."""
        nodes = tuple(self._nodes())
        wants_all = self._is_full or monotonic() - self._asked >= ALL_EVERY_S
        self._looked, self._is_hurried, self._is_full = monotonic(), False, False
        try:
            async with self._contact:
                lines = await self._slurm.lines(self._name)
                await self._look_for_reservations()
                seen = (frozenset(line.standing for line in lines), nodes)
                if seen == self._seen and not wants_all:
                    return lines
                there = {node.name: node for node in await self._slurm.nodes()}
                self.partition = await self._slurm.partition(self._name)
                await self.finder.look(list(there.values()), {node.name for node in nodes})
        except BackendError:
            self._is_full = self._is_full or wants_all
            return ()
        self._seen, self._asked = seen, monotonic()
        self._forget_all_but(nodes)
        await self._open_again(there)
        for node in nodes:
            told = self._report(node, there.get(node.name))
            if self._told.get((node.id, node.name)) != told:
                self._told[node.id, node.name] = told
                if told.closed or not told.alive:
                    self._changed[node.name] = monotonic()
                self._sink(told)
        return lines

    async def _look_for_reservations(self) -> None:
        """Ask for all reservations, if it is time. Raises EngineAway.

        Where Slurm refuses to tell, what it told of last counts, be it before a restart.
        """
        if monotonic() - self._asked_for_reservations < RESERVATIONS_EVERY_S:
            return
        try:
            self.reservations = await self._slurm.reservations()
        except BackendError as error:
            if isinstance(error, EngineAway):
                raise
        self._asked_for_reservations = monotonic()

    def _forget_all_but(self, nodes: Sequence[Node]) -> None:
        """Forget what was told of nodes that have left."""
        here = {(node.id, node.name) for node in nodes}
        names = {node.name for node in nodes}
        self._told = {node: told for node, told in self._told.items() if node in here}
        self._missing = {name: at for name, at in self._missing.items() if name in names}
        self._changed = {name: at for name, at in self._changed.items() if name in names}

    def _report(self, node: Node, found: SlurmNode | None) -> NodeReport:
        """Return how a node is; one that Slurm has forgotten for a while is lost."""
        if found is not None:
            self._missing.pop(node.name, None)
            return report_of(node, found, self._name)
        since = self._missing.setdefault(node.name, monotonic())
        if monotonic() - since < FORGOTTEN_S:
            self.hurry(full=True)
            return report_of(node, None)
        return NodeReport(node.id, alive=False, reason="Slurm does not know it any more")

    def tell_others(
        self, lines: Sequence[NodeLine], before: Rows, after: Rows, prefix: str
    ) -> None:
        """Report what others use of our nodes. `lines` lie between two looks at all jobs."""
        nodes = self._nodes()
        # One that left and came back is told of as one that was never there: it has another id.
        told = {node.id: self._others[node.id] for node in nodes if node.id in self._others}
        self._others = told
        names = {node.name: told[node.id] for node in nodes if node.id in told}
        found = others_on(lines, before, after, prefix, names)
        for node in nodes:
            use, known = found.get(node.name), told.get(node.id)
            if use is None or use == known:
                continue
            told[node.id] = use
            if not use.total.fits_in((known or NOBODY).total):
                self._changed[node.name] = monotonic()
            self._sink(OthersReport(node.id, use))

    async def _open_again(self, there: Mapping[str, SlurmNode]) -> None:
        """Resume what we drained and are to open: Slurm may not have done it when it was told,
        as it refuses while a node has not reported to a slurmctld that just started."""
        for name in sorted(self._to_open & there.keys()):
            node = there[name]
            if "DRAIN" in node.words and node.reason.startswith(OURS):
                with contextlib.suppress(BackendError):
                    await self._slurm.resume(name)
                self.hurry(full=True)  # Whether it worked or not.

    async def close(self, node: str, reason: str) -> None:
        """Drain a node in Slurm, unless it is drained there: then its reason stays."""
        self._to_open.discard(node)
        state, _ = await self._now(node)
        if "drain" not in state:
            await self._slurm.drain(node, f"{OURS}{reason or 'no reason given'}")

    async def open(self, node: str) -> None:
        """Undo our own drain of a node; report again what else keeps nodes closed."""
        self._to_open.add(node)
        self.hurry(full=True)  # Should it fail: a slurmctld that just started may refuse.
        state, reason = await self._now(node)
        if "drain" in state and reason.startswith(OURS):
            await self._slurm.resume(node)
        self._told = {node: told for node, told in self._told.items() if not told.closed}
        self.hurry(full=True)

    async def _now(self, node: str) -> tuple[str, str]:
        async with self._contact:
            return await self._slurm.state_of(node)
