"""What a task left on a node's own disk, brought to the service: once, and whole."""

import asyncio

import structlog

from allotment.backends.local.runner import layout
from allotment.backends.pilot import asking
from allotment.backends.pilot.hold import Hold
from allotment.backends.pilot.leftover import KeptFolder
from allotment.backends.pilot.link import Link
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey

log = structlog.get_logger("allot.pilot")

PIECE = 256 * 1024


class Outputs:
    """Fetches output of tasks that ended before their node may be gone: each once at a time."""

    def __init__(self) -> None:
        self._under_way: dict[TaskKey, asyncio.Task[None]] = {}

    def fetch(self, hold: Hold, key: TaskKey) -> None:
        """Begin to fetch what a task left, if that is on its node alone."""
        if not hold.has_own_disk or hold.kept_folder.is_fetched(key) or hold.link is None:
            return
        if key not in self._under_way:
            hold.fetching += 1
            fetching = asyncio.create_task(self._fetch(hold, hold.link, key))
            self._under_way[key] = fetching

    async def fetch_missing(self, hold: Hold) -> None:
        """Begin to fetch what could not be fetched while a node was away."""
        for key in await asyncio.to_thread(hold.kept_folder.unfetched):
            self.fetch(hold, key)

    async def close(self) -> None:
        """Fetch nothing more."""
        under_way = list(self._under_way.values())
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _fetch(self, hold: Hold, link: Link, key: TaskKey) -> None:
        try:
            await fetch_output(link, hold.kept_folder, key)
        except (BackendError, OSError) as error:
            log.warning("output of a task cannot be fetched", task=str(key), why=str(error))
        finally:
            hold.fetching -= 1
            del self._under_way[key]


async def fetch_output(link: Link, kept: KeptFolder, key: TaskKey) -> None:
    """Fetch what is missing here of a task's output. Raises BackendError or OSError.

    How much that can be is bounded on the node, by the limit on output of a task; and here,
    should the node be in the hands of somebody else.
    """
    for stream in layout.STREAMS:
        offset = (await kept.read_log(key, stream, -1, 1)).next
        while kept.has_room(key, stream):
            chunk = await asking.read_log(link, key, stream, offset, PIECE)
            if not chunk.data:
                break
            kept.keep_output(key, stream, chunk.data, chunk.next - len(chunk.data))
            offset = chunk.next
        else:
            log.warning("a node has more output of a task than it may have", task=str(key))
    kept.set_fetched(key)
