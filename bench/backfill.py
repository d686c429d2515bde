"""What a pass costs where queues backfill: 10,000 gangs run on 1,250×8 GPUs of two types.

Each gang holds one device, and says how long it runs. In a queue in EASY order the first that
waits needs 4,000 devices of one type, and others ask whether they may pass it; measured is the
pass after one gang has ended. In one in conservative order 300 wait, each for devices of any
type: measured is the first pass, in which a hundred of them are promised a time.
"""

import gc
import time

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, GIB, HOUR, Instant, Millis, Resources
from allotment.model.spec import JobSpec, TaskRole
from allotment.model.tenancy import QueueOrder
from bench.cluster import percentile
from bench.crowd import Crowd, Scale
from bench.figures import Figure

NODES, TYPES = 1_250, ("A100", "H100")
HEAD, BEHIND = 4_000, 100
"""Devices of the first that waits, and how many wait behind it."""
PASSES = 20
WAITING = 300
LARGEST = 64
"""Devices of those who wait where everybody is promised a time."""


def main() -> list[Figure]:
    return [
        Figure("EASY pass, head needs 4,000 of one type, p50", _easy(), "ms", "lower", 10),
        Figure("conservative, 300 wait: first pass", _conservative(), "s", "lower", 10),
    ]


def _easy() -> float:
    crowd = _full(QueueOrder.EASY)
    crowd.submit(_spec(crowd, HEAD, TYPES[:1]))
    for _ in range(BEHIND):
        crowd.submit(_spec(crowd, crowd.chance.choice((1, 2, 4))))
    took = [_pass_after_an_end(crowd) for _ in range(PASSES)]
    assert len(crowd.engine.state.cluster.pending) > 1, "nobody asks whether it may pass"
    return percentile(took, 0.5) * 1e3


def _conservative() -> float:
    crowd = _full(QueueOrder.CONSERVATIVE)
    for _ in range(WAITING):
        crowd.submit(_spec(crowd, crowd.chance.randrange(1, LARGEST)))
    return _pass_after_an_end(crowd)


def _full(order: QueueOrder) -> Crowd:
    """Let every device be held by a gang of its own."""
    scale = Scale(waiting=0, nodes=NODES, tenants=1, queues=1, orders=(order,), types=TYPES)
    crowd = Crowd(scale)
    for _ in range(8 * NODES):
        crowd.submit(_spec(crowd, 1))
    placed = crowd.settle()
    assert placed == 8 * NODES, "the cluster is not full"
    gc.collect()
    gc.freeze()
    return crowd


def _spec(crowd: Crowd, tasks: int, types: tuple[str, ...] = ()) -> JobSpec:
    """Make up a gang of tasks with a device each."""
    need = Resources(gpu_milli=DEVICE, cpu_milli=4_000, memory=GIB)
    role = TaskRole("main", tasks, "true", need, gpu_types=types)
    limit = Millis(crowd.chance.randrange(HOUR, 20 * HOUR))
    return msgspec.structs.replace(crowd.spec(), roles=(role,), max_run_ms=limit, priority=100)


def _pass_after_an_end(crowd: Crowd) -> float:
    """Let one gang end; return how many seconds the pass that follows takes."""
    crowd.now = Instant(crowd.now + 1_000)
    crowd.end(_anybody(crowd))
    began = time.perf_counter()
    crowd.engine.tick(crowd.now)
    crowd.engine.cycle(crowd.now)
    return time.perf_counter() - began


def _anybody(crowd: Crowd) -> JobId:
    return crowd.chance.choice(sorted(crowd.engine.state.cluster.gangs))
