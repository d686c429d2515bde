"""Tasks that end themselves where they hear nothing of the service for too long."""

import asyncio
from collections.abc import Sequence
from math import inf

from allotment.backends.kubernetes.beats import Beats, BeatsIn
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.quantity import Millis


class Fence:
    """Lets tasks hear of us, and knows which of them have heard nothing for too long.
    `after_ms` is what a task gets that is started now; 0: none."""

    def __init__(
        self, beats: BeatsIn, tasks: Tasks, silent: SilentNodes, after_ms: Millis
    ) -> None:
        self._beats, self._tasks, self._silent = beats, tasks, silent
        self._after_ms = after_ms

    async def beat(self) -> None:
        """Write what pods with a lease read: that we are there, and which nodes are silent."""
        ending = [record for record in self._tasks.live.values() if record.fence_ms]
        for record in ending:
            self._beats.within(record.namespace)
        writes = (
            self._write(beats, [each for each in ending if each.namespace == namespace])
            for namespace, beats in self._beats.all().items()
        )
        await asyncio.gather(*writes)

    async def _write(self, beats: Beats, ending: Sequence[Launched]) -> None:
        if not (beats.is_due or beats.left_out - self._silent.since.keys()):
            return
        times = {self._after_ms, *(record.fence_ms for record in ending)} - {0}
        if times:
            nodes = {record.node for record in ending}
            await beats.write(min(times) / 1000, nodes & self._silent.since.keys())

    def is_over(self, record: Launched, gone_at: float = -inf) -> bool:
        """Whether a task that is gone in Kubernetes since `gone_at` runs nowhere any more."""
        return self._silent.is_certain(record.node, gone_at) or self._has_run_out(record)

    def why_lost(self, record: Launched) -> str:
        """Return why a task on a silent node is known to be dead or taken for it; '' where it
        is not."""
        if self._has_run_out(record):
            return f"node {record.node} was cut off, and what ran there has ended itself"
        if self._silent.is_given_up(record.node):
            return f"node {record.node} was silent for longer than `force_after`"
        return ""

    def _has_run_out(self, record: Launched) -> bool:
        """Whether a task has heard nothing of us for so long that it ended itself."""
        fence_s = record.fence_ms / 1000
        return fence_s > 0 and self._beats.within(record.namespace).is_over(
            record.node, fence_s
        )
