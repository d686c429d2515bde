"""What a task left on a node's own disk, brought to the service: once, and whole."""

import structlog

from allotment.backends.local.runner import layout
from allotment.backends.pilot import asking
from allotment.backends.pilot.leftover import KeptFolder
from allotment.backends.pilot.link import Link
from allotment.model.ids import TaskKey

log = structlog.get_logger("allot.pilot")

PIECE = 256 * 1024


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
