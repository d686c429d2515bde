"""Turns by affinity on 10,000 devices: placing, one round of turns, and what goes elsewhere.

1,250 nodes of 8 devices, full of gangs of 1, 2, 4 and 8 devices. Then 300 more wait until the
others have had their slice; then sixty gangs end at once while those are suspended.
"""

import gc
import random
import time
from functools import partial

from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, Millis
from allotment.model.tenancy import QueueOrder, RankBy
from allotment.policies.rescheduling.by_affinity import by_affinity
from allotment.policies.rescheduling.migrating import ran_for_long
from bench.figures import Figure
from tests.support.builders import NOW, POLICIES, a_config, a_job, a_tenant
from tests.support.world import Unaudited

NODES, EACH = 1_250, 8
WAITING, ENDING = 300, 60
SLICE = Millis(60 * SECOND)


class Large(Unaudited):
    """A cluster whose one queue takes turns by affinity."""

    def __init__(self) -> None:
        maker = partial(by_affinity, worth=ran_for_long)
        self.engine = Engine(State(replace(POLICIES, rescheduler=maker)))
        self.now, self.log, self.effects = NOW, [], []
        tenant = a_tenant("us", NODES * EACH, order=QueueOrder.SKIP)
        queues = tuple(
            replace(queue, time_slice_ms=SLICE, rank=RankBy.ROUND_ROBIN, by_affinity=True)
            for queue in tenant.queues
        )
        config = a_config(replace(tenant, queues=queues), nodes=NODES, devices=EACH)
        self.do(c.ApplyConfig(config))

    def comes(self, devices: int) -> JobId:
        return self.submit(a_job().gpus(devices).of("us").retry(0))

    def timed(self) -> float:
        """Schedule until nothing more can be done. Returns the CPU time, in milliseconds."""
        gc.collect()
        began = time.process_time()
        self.cycle()
        return 1000 * (time.process_time() - began)

    def all_run(self, jobs: list[JobId]) -> None:
        for job in jobs:
            if self.is_(job) is JobState.STARTING:
                self.runs(job)


def main() -> list[Figure]:
    chance, world = random.Random(1), Large()
    jobs: list[JobId] = []
    devices = 0
    while devices < NODES * EACH - 8:
        size = chance.choice([1, 1, 1, 2, 4, 8])
        devices += size
        jobs.append(world.comes(size))
    placing = world.timed()
    world.all_run(jobs)
    late = [world.comes(chance.choice([1, 1, 1, 2, 4, 8])) for _ in range(WAITING)]
    world.wait(SLICE)
    turns = world.timed()
    world.all_run(late)
    suspended = world.state.cluster.placed.resuming
    assert len(suspended) >= WAITING / 2, "too few turns to tell"
    running = [job for job in jobs if world.is_(job) is JobState.RUNNING]
    one, *others = chance.sample(running, ENDING)
    leaving = world.state.cluster.placed.leaving
    world.ends(one)
    look = world.timed()
    first = len(leaving)
    for job in others:
        world.ends(job)
    moving = world.timed()
    moved = len(leaving) - first
    assert moved > ENDING / 4, "too few went elsewhere to tell"
    return [
        Figure("10,000 devices by affinity, a gang placed", placing / len(jobs), "ms", "lower"),
        Figure(f"  a round in which {WAITING} take their turn, each", turns / WAITING, "ms",
               "lower"),
        Figure("  a look after a job ended", look, "ms", "lower", 200),
        Figure(f"  after {ENDING} ended at once: {moved} gangs go elsewhere, each",
               moving / moved, "ms", "lower"),
    ]  # fmt: skip
