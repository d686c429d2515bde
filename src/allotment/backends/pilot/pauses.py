"""Gangs over several nodes are suspended after one step: their runners are asked, and told.

A runner alone knows only the ranks of its node. It says how far these are, the service chooses
the step for all, and only once all stand does any give its memory back, or is frozen. The
runners do the rest as for a gang of their own node. A service that comes back asks for the same
again; ranks that stand and hear nothing go on by themselves.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from allotment.backends.local.agreeing import Said, agree, all_free
from allotment.backends.pilot import asking
from allotment.backends.pilot import messages as m
from allotment.backends.pilot.link import Link
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import JobId, TaskKey

AGAIN_S = 0.25
"""Before a runner that was away is asked again."""
REFUSED_S = 5.0
"""And one that refused to suspend its part."""

ByLink = Callable[[Iterable[TaskKey]], dict[Link, list[TaskKey]]]
"""Groups tasks by the connection to their node. Raises EngineAway where one is not there."""

log = structlog.get_logger("allot.pilot")


class Pauses:
    """The suspensions under way of gangs that several runners have tasks of."""

    def __init__(self, by_link: ByLink) -> None:
        self._by_link = by_link
        self._under_way: dict[JobId, asyncio.Task[None]] = {}

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        """Suspend one gang, or begin to. Raises BackendError."""
        job = keys[0].job
        await self.leave_off(job)
        links = self._by_link(keys)
        if len(links) == 1:
            for link, own in links.items():
                await link.call(m.Freeze(tuple(own), no))
        elif links:
            work = self._suspend(keys, no)
            task = asyncio.get_running_loop().create_task(work)
            self._under_way[job] = task
            task.add_done_callback(partial(self._forget, job))

    def _forget(self, job: JobId, task: asyncio.Task[None]) -> None:
        if self._under_way.get(job) is task:
            del self._under_way[job]

    async def leave_off(self, job: JobId) -> None:
        """Begin nothing more of a suspension: what comes next undoes what was done of it."""
        if (work := self._under_way.pop(job, None)) is not None:
            work.cancel()
            await asyncio.wait([work])

    async def close(self) -> None:
        """Leave all off."""
        for job in list(self._under_way):
            await self.leave_off(job)

    async def _suspend(self, keys: Sequence[TaskKey], no: int) -> None:
        """Suspend a gang, however often its runners go away meanwhile."""
        while True:
            try:
                await self._all_at_once(keys, no)
            except EngineAway:
                await asyncio.sleep(AGAIN_S)
            except BackendError:
                # Others are to have its devices, so it may not run on.
                log.exception("a gang is not suspended yet", job=keys[0].job)
                await asyncio.sleep(REFUSED_S)
            else:
                return

    async def _all_at_once(self, keys: Sequence[TaskKey], no: int) -> None:
        links = self._by_link(keys)
        if not links:
            return  # All are over.
        try:
            frees = await _agreed(links)
        except EngineAway:
            raise
        except BackendError:
            log.exception("ranks did not agree; they are only frozen", job=keys[0].job)
            frees = False
        await gather_all([_freeze(link, own, no, frees) for link, own in links.items()])


async def _agreed(links: dict[Link, list[TaskKey]]) -> bool:
    """Whether all ranks stand after one step now, and can give memory back."""
    if any(link.hello.protocol != m.PROTOCOL for link in links):
        return False  # A runner of an older version knows no gangs of several nodes.
    there = [key for own in links.values() for key in own]
    said = await _ranks([(link, m.AskRanks(tuple(own))) for link, own in links.items()])
    return await agree(there, said, partial(_stand, links)) and all_free(said)


async def _freeze(link: Link, keys: Sequence[TaskKey], no: int, frees: bool) -> None:
    await link.call(m.Freeze(tuple(keys), no, frees))


async def _stand(links: dict[Link, list[TaskKey]], after: int, wait_s: float) -> Said:
    orders = [(link, m.StandRanks(tuple(own), after, wait_s)) for link, own in links.items()]
    return await _ranks(orders)


async def _ranks(orders: Sequence[tuple[Link, m.AskRanks | m.StandRanks]]) -> Said:
    told = await gather_all([asking.ranks(link, op) for link, op in orders])
    return {key: said for each in told for key, said in each.items()}
