"""What a task left on a node's own disk, brought to the service: once, and whole."""

from allotment.backends.local.runner import layout
from allotment.backends.pilot import messages as m
from allotment.backends.pilot.leftover import KeptFolder
from allotment.backends.pilot.link import Link
from allotment.model.ids import TaskKey
from allotment.service.ports import LogChunk

PIECE = 256 * 1024


async def fetch_output(link: Link, kept: KeptFolder, key: TaskKey) -> None:
    """Fetch what is missing here of a task's output. Raises BackendError or OSError.

    How much that can be is bounded on the node, by the limit on output of a task.
    """
    for stream in layout.STREAMS:
        offset = (await kept.read_log(key, stream, -1, 1)).next
        while True:
            chunk = await link.call(m.ReadLog(key, stream, offset, PIECE), LogChunk)
            if not chunk.data:
                break
            kept.keep_output(key, stream, chunk.data, chunk.next - len(chunk.data))
            offset = chunk.next
    kept.set_fetched(key)
