"""What running tasks use now: CPU time, memory and processes, from one pass over /proc.

It asks for no control group, so it says the same whatever isolates the tasks.
"""

import os
from collections.abc import Mapping

from allotment.backends.local.runner import procfs
from allotment.model.ids import TaskKey
from allotment.service.ports import TaskUse

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")


def uses_of(roots: Mapping[TaskKey, int]) -> list[TaskUse]:
    """Return the use of each task that lives, given its first process. O(all processes)."""
    stats, below = procfs.everything()
    return [_use(key, root, stats, below) for key, root in roots.items() if root in stats]


def _use(
    key: TaskKey, root: int, stats: Mapping[int, procfs.Stat], below: Mapping[int, list[int]]
) -> TaskUse:
    members = procfs.family(root, below)
    ticks = sum(stats[pid].cpu_time for pid in members)
    memory = sum(stats[pid].rss_bytes for pid in members)
    return TaskUse(key, ticks * TICK_MS, memory, len(members))
