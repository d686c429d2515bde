"""How many more nodes of which pool would let which waiting job start?

The planner is asked, on a copy of the state that has more nodes of each pool, all of them
closed. Job by job, as they stand in line, the least number of them is opened with which all
gates of the job are open. Then it is placed as ever, and those after it see what is left. So a
job that waits for its turn, its quota or a victim is not among them: no node would help it.
"""

from collections.abc import Callable, Sequence

import msgspec

from allotment.core.gang import Standing
from allotment.core.policies import Policies
from allotment.core.request import Shape
from allotment.engine.engine import Engine
from allotment.engine.pools import more_of
from allotment.engine.state import Image, State
from allotment.explain.question import Question
from allotment.model.ids import NodeId
from allotment.model.pools import (
    UNKNOWN,
    Added,
    Growable,
    Helped,
    MoreAnswer,
    MoreQuestion,
    Way,
)
from allotment.model.quantity import Instant

MOST_JOBS = 500
"""Jobs of the line that are looked at."""
BUDGET = 1 << 20
"""Decisions in one cycle: as many as there are."""


def more_nodes(
    question: MoreQuestion, policies: Policies, gives_up: Callable[[], bool]
) -> MoreAnswer:
    """Return which waiting jobs more nodes would let start, in the order of the line."""
    state = State.from_image(msgspec.msgpack.decode(question.image, type=Image), policies)
    state.ports.configure((0, 0))  # nobody connects here
    now = max(question.now, state.at)
    engine = Engine(state)
    _rest(engine, now)  # what starts by itself, or when victims have gone, needs no node
    closed = _with_closed_nodes(state, question.pools, _line(state)[:MOST_JOBS])
    return _LookForNodes(engine, question.pools, closed, now).along(_line(state), gives_up)


def _rest(engine: Engine, now: Instant) -> None:
    """Let the engine decide until it comes to rest."""
    while engine.cycle(now, BUDGET):
        engine.effects.clear()
    engine.effects.clear()


def _line(state: State) -> list[Standing]:
    """Return the jobs that wait for a place and have none reserved, in order."""
    cluster = state.cluster
    waiting = [each for each in cluster.pending.all() if each.id not in cluster.reserved]
    return sorted(waiting, key=lambda each: (cluster.pending.key(each.id), each.id))


def _with_closed_nodes(
    state: State, pools: Sequence[Growable], line: Sequence[Standing]
) -> list[list[NodeId]]:
    """Add nodes to each pool that take no work; return them."""
    tasks = sum(request.count for each in line for request in each.shape.requests)
    more = more_of(pools, state.config, state.next_node, tasks)
    nodes = (*state.config.nodes, *(node for added in more for node in added))
    state.configure(msgspec.structs.replace(state.config, nodes=nodes))
    closed = [[node.id for node in added] for added in more]
    for node in (node for ids in closed for node in ids):
        state.cluster.set_open(node, False)
    return closed


class _LookForNodes:
    """Opens nodes of the pools, as few as will do, one job after the other."""

    def __init__(
        self,
        engine: Engine,
        pools: Sequence[Growable],
        closed: list[list[NodeId]],
        now: Instant,
    ) -> None:
        self._engine, self._cluster = engine, engine.state.cluster
        self._pools, self._closed, self._now = pools, closed, now
        self._hopeless: set[Shape] = set()
        """What all nodes that are left do not help."""

    def along(self, line: Sequence[Standing], gives_up: Callable[[], bool]) -> MoreAnswer:
        """Return what helps the jobs of a line."""
        helped: list[Helped] = []
        looked_at = 0
        for job in line[:MOST_JOBS]:
            if gives_up():
                break
            looked_at += 1
            if job.id not in self._cluster.pending:  # nodes for those before it are enough
                helped.append(Helped(job.id, ()))
            elif job.id in self._cluster.reserved or job.shape in self._hopeless:
                continue
            elif ways := self._ways(job):
                self._open(ways[0])
                _rest(self._engine, self._now)
                helped.append(Helped(job.id, ways))
        return MoreAnswer(tuple(helped), looked_at, len(line))

    def _ways(self, job: Standing) -> tuple[Way, ...]:
        """Return the ways to let a job start, the cheapest first."""
        tasks = sum(request.count for request in job.shape.requests)
        none = [0] * len(self._pools)
        found: list[list[int]] = []
        for at, closed in enumerate(self._closed):
            most = none.copy()
            most[at] = min(len(closed), tasks)
            if closed and self._would_start(job, most):
                found.append(self._least(job, most, at))
        if not found:
            most = [min(len(closed), tasks) for closed in self._closed]
            if sum(map(bool, most)) < 2 or not self._would_start(job, most):
                self._hopeless.add(job.shape)
                return ()
            for at in sorted(range(len(most)), key=lambda at: -self._pools[at].price_milli):
                most = self._least(job, most, at)
            found.append(most)
        return tuple(sorted(map(self._way, found), key=_by_price))

    def _least(self, job: Standing, counts: Sequence[int], at: int) -> list[int]:
        """Return the same numbers of nodes with as few of one pool as let the job start."""
        least, most = -1, counts[at]
        tried = list(counts)
        while most - least > 1:
            tried[at] = (least + most) // 2
            if self._would_start(job, tried):
                most = tried[at]
            else:
                least = tried[at]
        tried[at] = most
        return tried

    def _would_start(self, job: Standing, counts: Sequence[int]) -> bool:
        """Whether all gates of a job are open with so many nodes more; leaves all as it was."""
        if not any(counts):
            return False  # the engine is at rest
        cluster = self._cluster
        opened = [
            node
            for closed, count in zip(self._closed, counts, strict=True)
            for node in closed[:count]
        ]
        for node in opened:
            cluster.set_open(node, True)
        try:
            with cluster.fenced(job.shape, self._now):
                return Question(cluster, job, self._now).first_shut(job) is None
        finally:
            for node in opened:
                cluster.set_open(node, False)

    def _open(self, way: Way) -> None:
        """Let the nodes of a way take work from now on."""
        names = [pool.name for pool in self._pools]
        for add in way.add:
            closed = self._closed[names.index(add.pool)]
            for node in closed[: add.nodes]:
                self._cluster.set_open(node, True)
            del closed[: add.nodes]

    def _way(self, counts: Sequence[int]) -> Way:
        used = [(pool, n) for pool, n in zip(self._pools, counts, strict=True) if n]
        prices = [pool.price_milli for pool, _ in used]
        price = UNKNOWN if UNKNOWN in prices else sum(p.price_milli * n for p, n in used)
        return Way(tuple(Added(pool.name, n) for pool, n in used), price)


def _by_price(way: Way) -> tuple[bool, int, int, tuple[str, ...]]:
    """Order ways: known prices first, then fewer nodes, then by name."""
    nodes = sum(add.nodes for add in way.add)
    return way.price_milli == UNKNOWN, way.price_milli, nodes, tuple(a.pool for a in way.add)
