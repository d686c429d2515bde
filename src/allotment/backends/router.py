"""Several engines as one backend: each call goes to the engine of its task.

A task is launched on the engine of its node. Afterwards the engine that knows it is asked,
whatever the configuration says of that node by then.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allotment.backends.router_images import ImagesOfAll
from allotment.backends.together import gather_all
from allotment.model.cluster import Node
from allotment.model.content import Content
from allotment.model.engines import Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.model.reservations import FoundReservation
from allotment.model.spec import Offered
from allotment.service.ports import (
    Backend,
    DeviceUse,
    Distant,
    Enterable,
    Finds,
    GangLaunch,
    Having,
    KnowsContent,
    Limit,
    Limited,
    LogChunk,
    Measurable,
    NodeClosing,
    Offer,
    Offers,
    Refused,
    Report,
    Reserves,
    Silence,
    TaskLaunch,
    TaskUse,
)
from allotment.service.workspace import OwnDisks, Workspace


class Router:
    """Runs tasks on the engines of their nodes. `nodes` are those of the configuration."""

    def __init__(
        self, engines: Mapping[str, Backend], nodes: Callable[[], Sequence[Node]]
    ) -> None:
        self._engines = engines
        self._nodes = nodes
        self._known: Sequence[Node] = ()
        self._names: dict[str, str] = {}
        """The engine of each known node."""
        self._offering = [each for each in engines.values() if isinstance(each, Offers)]
        self._asked: dict[Offers, asyncio.Future[Sequence[Offer]]] = {}
        """Engines that are asked for offers, until they have some."""
        self._owners: dict[TaskKey, Backend] = {}
        """Of tasks that run, or are about to."""
        self._sink: Callable[[Report], None] = lambda report: None
        self._images = ImagesOfAll(self.engines_for)
        self.name = " and ".join(engines)
        self.abilities = frozenset[Ability]().union(*(e.abilities for e in engines.values()))

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink
        for engine in self._engines.values():
            await engine.start(self._hear)

    def _hear(self, report: Report) -> None:
        self._sink(report)
        if isinstance(report, TaskReport) and report.seen is Seen.ENDED:
            self._owners.pop(report.key, None)

    async def launch(self, gang: GangLaunch) -> Refused:
        """Start each task on its engine, with one request to each engine."""
        refused: dict[TaskKey, str] = {}
        by_engine: dict[Backend, list[TaskLaunch]] = {}
        for task in gang.tasks:
            there = task.binding
            engine = self._owners.get(task.key) or self._engines.get(there.engine)
            if engine is None:
                refused[task.key] = f"node {there.node} is on no engine that this service has"
                continue
            self._owners[task.key] = engine
            by_engine.setdefault(engine, []).append(task)
        parts = [engine.launch(gang.only(tasks)) for engine, tasks in by_engine.items()]
        for part in await gather_all(parts):
            refused |= part
        return refused

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        by_engine = await self._by_engine(keys)
        await gather_all([engine.open_barrier(mine) for engine, mine in by_engine.items()])

    async def _by_engine(self, keys: Sequence[TaskKey]) -> dict[Backend, list[TaskKey]]:
        """Group tasks by the engine that they may be on."""
        found: dict[Backend, list[TaskKey]] = {}
        for key in keys:
            for engine in await self._of(key):
                found.setdefault(engine, []).append(key)
        return found

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        for engine in await self._of(key):
            await engine.stop(key, signal, grace_ms, cause)

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        by_engine = await self._by_engine(keys)
        await gather_all([engine.freeze(mine, no) for engine, mine in by_engine.items()])

    async def thaw(self, key: TaskKey) -> None:
        for engine in await self._of(key):
            await engine.thaw(key)

    async def highest_job(self) -> JobId:
        return max([await engine.highest_job() for engine in self._engines.values()])

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        found: list[TaskReport] = []
        for engine in self._engines.values():
            for report in await engine.observe(keys):
                found.append(report)
                if report.seen is not Seen.ENDED:
                    self._owners[report.key] = engine
        return found

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        engine, *_ = await self._of(key)
        return await engine.read_log(key, stream, offset, size)

    async def forget(self, job: JobId) -> None:
        for key in [key for key in self._owners if key.job == job]:
            del self._owners[key]
        for engine in self._engines.values():
            await engine.forget(job)

    async def close(self) -> None:
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    # ── abilities of some ───────────────────────────────────────────────────────────────

    async def uses(self, keys: Sequence[TaskKey]) -> Sequence[TaskUse]:
        found: list[TaskUse] = []
        for engine in self._engines.values():
            if isinstance(engine, Measurable):
                found += await engine.uses([k for k in keys if self._owners.get(k) == engine])
        return found

    async def device_uses(self) -> Mapping[NodeId, Sequence[DeviceUse]]:
        found: dict[NodeId, Sequence[DeviceUse]] = {}
        for engine in self._engines.values():
            if isinstance(engine, Measurable):
                found |= await engine.device_uses()
        return found

    def engines_for(self, engine: str) -> Mapping[str, Backend]:
        named = self._engines.get(engine)
        return {engine: named} if named is not None else self._engines

    def silence(self, node: str) -> Silence | None:
        name, engine = self._at(node)
        found = engine.silence(node) if isinstance(engine, Distant) else None
        return msgspec.structs.replace(found, engine=name) if found is not None else None

    def workspace_of(self, node: str) -> Workspace | None:
        _, engine = self._at(node)
        return engine.workspace_of(node) if isinstance(engine, OwnDisks) else None

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {
            name: nodes
            for name, engine in self._engines.items()
            if isinstance(engine, Finds)
            for nodes in engine.found_nodes().values()
        }

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        found: dict[Content, Having] = {}
        for engine in self._engines.values():
            if isinstance(engine, KnowsContent):
                for content, there in engine.nodes_with(contents).items():
                    before = found.get(content)
                    if before is None or not before.nodes:
                        found[content] = there
                    elif there.nodes:
                        size = max(before.bytes, there.bytes)
                        found[content] = Having(before.nodes | there.nodes, size)
        return found

    def found_reservations(self) -> Mapping[str, Sequence[FoundReservation] | None]:
        return {
            name: found
            for engine in self._engines.values()
            if isinstance(engine, Reserves)
            for name, found in engine.found_reservations().items()
        }

    def time_limit(self) -> Limit | None:
        """Return the longest of all bounds; None where a task may run without one."""
        engines = self._engines.values()
        limits = [each.time_limit() if isinstance(each, Limited) else None for each in engines]
        known = [limit for limit in limits if limit is not None]
        if len(known) < len(limits):
            return None
        return max(known, key=lambda limit: limit.most_ms)

    def images(self) -> ImagesOfAll:
        return self._images

    def resume(self, tasks: Mapping[str, Mapping[TaskKey, Offered]]) -> None:
        for engine in self._offering:
            engine.resume(tasks)

    async def next_offers(self) -> Sequence[Offer]:
        """Return what comes first of any engine."""
        for engine in self._offering:
            if engine not in self._asked:
                self._asked[engine] = asyncio.ensure_future(engine.next_offers())
        if not self._asked:
            await asyncio.Event().wait()
        await asyncio.wait(self._asked.values(), return_when=asyncio.FIRST_COMPLETED)
        done = [engine for engine, asked in self._asked.items() if asked.done()]
        return [offer for engine in done for offer in self._asked.pop(engine).result()]

    def is_offered(self, offer: str) -> bool | None:
        said = [engine.is_offered(offer) for engine in self._offering]
        return True if True in said else None if None in said else False

    def end_offer(self, offer: str) -> None:
        for engine in self._offering:
            engine.end_offer(offer)

    def say(self, engine: str, offered: Sequence[Offered], reason: str, message: str) -> None:
        named = self._engines.get(engine)
        if isinstance(named, Offers):
            named.say(engine, offered, reason, message)

    def why_not_offered(self, name: str) -> str:
        said = [engine.why_not_offered(name) for engine in self._offering]
        return next(filter(None, said), "")

    async def close_node(self, node: str, reason: str) -> None:
        _, engine = self._at(node)
        if isinstance(engine, NodeClosing):
            await engine.close_node(node, reason)

    async def open_node(self, node: str) -> None:
        _, engine = self._at(node)
        if isinstance(engine, NodeClosing):
            await engine.open_node(node)

    def _at(self, node: str) -> tuple[str, Backend | None]:
        """Return the engine of a node, and its name. O(1) while the nodes stay the same."""
        nodes = self._nodes()
        if nodes is not self._known:
            self._known = nodes
            self._names = {each.name: each.engine for each in nodes}
        name = self._names.get(node, "")
        return name, self._engines.get(name)

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        engine = self._owners.get(key)
        if not isinstance(engine, Enterable):
            names = {id(each): name for name, each in self._engines.items()}
            where = names.get(id(engine), "its")
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"Task {key} is on engine {where}, which cannot enter tasks.",
                f"Its output: `allot logs {key.job}`.",
            )
        return engine.enter_argv(key, argv)

    async def _of(self, key: TaskKey) -> Sequence[Backend]:
        """Return the engine that knows a task; all of them where none does yet."""
        if (owner := self._owners.get(key)) is not None:
            return [owner]
        engines = list(self._engines.values())
        return [engine for engine in engines if await engine.observe([key])] or engines
