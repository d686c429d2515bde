"""Which pools of nodes there are, and what more of their nodes would help.

It is worked out when somebody asks, and now and then while jobs wait, for the metrics and for
those who make pods.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from time import monotonic

import msgspec

from allotment.core.request import shape_of, total_of
from allotment.engine.pools import growable
from allotment.engine.state import State
from allotment.model.ids import JobId
from allotment.model.pools import UNKNOWN, Growable, Helped, MoreAnswer, MoreQuestion, Way
from allotment.model.quantity import Millis
from allotment.service.pipeline import Pipeline
from allotment.service.pools_view import HelpedJob, MoreNodes, PoolView, WayView
from allotment.service.ports import Forecast

LOOK_EVERY_S = 15.0
PATIENCE_MS = Millis(10_000)
REST = 5.0
"""Times as long as a look took it is not looked again."""


class Asking:
    """Asks what more nodes would help, and keeps the last answer."""

    def __init__(self, pipeline: Pipeline, forecast: Forecast | None) -> None:
        self._pipeline, self._forecast = pipeline, forecast
        self._seen = -1
        """The event after which it was asked last."""
        self._again_at = 0.0
        self._pools: tuple[Growable, ...] = ()
        self.last = MoreAnswer()

    @property
    def _state(self) -> State:
        return self._pipeline.state

    async def look(self) -> None:
        """Ask anew, if something has happened since."""
        began = monotonic()
        if self._seen == self._state.seq or began < self._again_at:
            return
        self._seen = self._state.seq
        self._pools = growable(self._state.config)
        try:
            self.last = await self._ask(self._pools)
        finally:  # A look that fails takes longest.
            now = monotonic()
            self._again_at = now + REST * (now - began)

    async def more(self) -> MoreNodes:
        """Return the pools, and what more of their nodes would help. Raises Rejected."""
        pools = growable(self._state.config)
        answer = await self._ask(pools)
        jobs = (self._state.jobs.get(each.job) for each in answer.helped)
        helped = tuple(
            HelpedJob(
                job.id, job.spec.name, job.spec.tenant, job.spec.queue,
                total_of(shape_of(job.spec).requests), tuple(map(_view, each.ways)),
            )
            for job, each in zip(jobs, answer.helped, strict=True)
            if job is not None
        )  # fmt: skip
        wanted = _wanted(answer.helped)
        return MoreNodes(
            self._pipeline.clock.now(),
            tuple(_pool(pool, wanted[pool.name]) for pool in pools),
            helped, answer.waiting, answer.looked_at,
        )  # fmt: skip

    async def _ask(self, pools: tuple[Growable, ...]) -> MoreAnswer:
        if not pools or self._forecast is None or not len(self._state.cluster.pending):
            return MoreAnswer()
        image = msgspec.msgpack.encode(self._state.image())
        now = self._pipeline.clock.now()
        return await self._forecast.more(MoreQuestion(now, image, pools, PATIENCE_MS))

    def nodes_by_pool(self) -> Mapping[str, tuple[int, int]]:
        """Return how many nodes each pool has, and how many more were wanted last."""
        wanted = _wanted(self.last.helped)
        return {pool.name: (pool.there, wanted[pool.name]) for pool in self._pools}

    def would_help(self, job: JobId) -> bool:
        """Whether more nodes would have let a job start when it was asked last."""
        return any(each.job == job for each in self.last.helped)


def _wanted(helped: Iterable[Helped]) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for each in helped:
        for add in each.ways[0].add if each.ways else ():
            wanted[add.pool] += add.nodes
    return wanted


def _view(way: Way) -> WayView:
    return WayView(way.add, _known(way.price_milli))


def _pool(pool: Growable, wanted: int) -> PoolView:
    node = pool.node
    kinds = dict.fromkeys(device.type for device in node.devices)
    return PoolView(
        pool.name, pool.there, node.total(), ", ".join(kinds), node.engine,
        _known(pool.price_milli), _known(pool.most), wanted,
    )  # fmt: skip


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
