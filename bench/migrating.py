"""Migration on 10,000 devices: a look for better places, and the moves that come of one.

1,250 nodes of 8 devices, full of gangs of one to eight tasks of one device. A third of them
end, and gangs of five fill the holes until one device in twenty is free: a thousand gangs are
spread over nodes. All have saved. Then sixty end at once.
"""

import gc
import random
import time

from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, SECOND
from allotment.model.tenancy import QueueOrder
from allotment.policies.rescheduling.migrating import migrating
from bench.figures import Figure
from tests.support.builders import NOW, POLICIES, a_config, a_job, a_tenant
from tests.support.world import Unaudited

NODES, EACH = 1_250, 8
FULL, FREE = 9_500, 500
ENDING = 60


class Large(Unaudited):
    """A cluster whose one queue migrates."""

    def __init__(self) -> None:
        self.engine = Engine(State(replace(POLICIES, rescheduler=migrating)))
        self.now, self.log, self.effects = NOW, [], []
        tenant = a_tenant("us", NODES * EACH, order=QueueOrder.SKIP)
        queues = tuple(replace(queue, migrates=True) for queue in tenant.queues)
        config = a_config(replace(tenant, queues=queues), nodes=NODES, devices=EACH)
        self.do(c.ApplyConfig(config))

    def comes(self, tasks: int) -> JobId:
        return self.submit(a_job().tasks(tasks).gpus(1).of("us").retry(0))

    def fill(self, chance: random.Random) -> None:
        """Fill it, and leave holes that gangs of five are spread over."""
        jobs: list[JobId] = []
        devices = 0
        while devices < FULL:
            tasks = chance.choice([1, 1, 2, 3, 4, 5, 8])
            devices += tasks
            jobs.append(self.comes(tasks))
        self.cycle()
        for job in jobs:
            self.runs(job)
        for job in chance.sample(jobs, len(jobs) // 3):
            self.ends(job)
        while self.state.cluster.ledger.whole_free > FREE:
            job = self.comes(5)
            self.cycle()
            self.runs(job)
        self.wait(SECOND)
        for job in sorted(self.state.cluster.gangs):
            self.saves(job)

    def timed(self) -> float:
        """Schedule until nothing more can be done. Returns the CPU time, in milliseconds."""
        gc.collect()
        began = time.process_time()
        self.cycle()
        return 1000 * (time.process_time() - began)

    def leaving(self) -> int:
        return len(self.state.cluster.placed.leaving)


def main() -> list[Figure]:
    chance, world = random.Random(1), Large()
    world.fill(chance)
    for job in chance.sample(sorted(world.state.cluster.gangs), ENDING):
        world.ends(job)
    world.wait(SECOND)
    moving = world.timed()
    moved = world.leaving()
    (one, *_) = sorted(set(world.state.cluster.gangs) - set(world.state.cluster.placed.leaving))
    world.ends(one)
    world.wait(SECOND)
    look = world.timed()
    assert moved > ENDING, "too few gangs moved to tell"
    assert world.state.cluster.ledger.total.gpu_milli == NODES * EACH * DEVICE
    return [
        Figure(
            "10,000 devices, 1,000 gangs apart: a look after a job ended",
            look,
            "ms",
            "lower",
            200,
        ),
        Figure(
            f"  a look after {ENDING} ended at once: {moved} gangs told to move",
            moving,
            "ms",
            "lower",
        ),
        Figure("  each", moving / moved, "ms", "lower"),
    ]
