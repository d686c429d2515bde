"""The waits within guarantees, against the engine's own books looked at every instant."""

import random

import pytest
from msgspec.structs import replace

from allotment.core.caps import is_used_up
from allotment.metrics.fold import Folds
from allotment.metrics.objectives import ObjectiveCourse
from allotment.metrics.within import ZERO, fits, minus, plus, vector
from allotment.model import commands as c
from allotment.model.budget import GPU_HOUR, Budget, Every
from allotment.model.errors import Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.objectives import Objective, Objectives
from allotment.model.quantity import Instant, Millis, WallTime
from allotment.model.tenancy import QueueOrder
from tests.support.builders import NOW, a_config, a_job, a_tenant
from tests.support.world import World

WORST_KEPT = 20
BUDGETS = (
    Budget(Every.NEVER, hard=GPU_HOUR // 300, end=WallTime(NOW + 40_000)),
    Budget(Every.DAY, hard=GPU_HOUR // 120, each_user=True),
)


class Twin:
    """Adds up, job by job, how long each was within its tenant's guarantee."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waited: dict[int, int] = {}

    def pass_by(self, ms: int) -> None:
        """Let time pass, with a stop wherever something becomes due, as a back-off's end."""
        end = self.world.now + ms
        while (left := end - self.world.now) > 0:
            due = self.world.engine.next_due(self.world.now)
            length = left if due is None else min(left, max(1, due - self.world.now))
            for tenant in self.world.state.config.tenants:
                for job in self.within(tenant.name):
                    self.waited[job] = self.waited.get(job, 0) + length
            self.world.wait(length)

    def within(self, name: str) -> list[JobId]:
        cluster = self.world.state.cluster
        guaranteed = vector(cluster.tenants[name].guaranteed)
        room = minus(guaranteed, vector(cluster.queues.tenants[name].own()))
        mine = [job for job in cluster.pending.all() if job.shape.tenant == name]
        found: list[JobId] = []
        asked = ZERO
        for job in sorted(mine, key=lambda job: (-job.priority, job.id)):
            if is_used_up(cluster, job.shape.who, job.shape.requests):
                continue
            spec = self.world.state.jobs[job.id].spec
            need = vector(spec.sized(spec.least_count).total())
            if job.shape.opportunistic or not fits(need, guaranteed):
                continue
            asked = plus(asked, need)
            if not fits(asked, room):
                break
            found.append(job.id)
        return found


def step(world: World, luck: random.Random) -> None:
    """Let something happen to somebody."""
    jobs = sorted(world.state.jobs)
    move = luck.randrange(9)
    if move < 3 or not jobs:
        job = a_job().gpus(luck.choice([1, 2, 4, 8])).of(luck.choice(["vision", "nlp"]))
        world.submit(job.priority(luck.choice([100, 100, 200])).retry(3))
        return
    job = luck.choice(jobs)
    state = world.is_(job)
    try:
        if state is JobState.STARTING:
            world.runs(job)
        elif state in (JobState.RUNNING, JobState.STOPPING) and move < 6:
            world.ends(job, luck.choice([0, 0, 1]))
        elif move == 6:
            world.do(luck.choice([c.HoldJob, c.ReleaseJob])(job), Actor("root", 0))
        elif move == 7:
            world.do(luck.choice([c.SuspendJob, c.ResumeJob])(job))
        else:
            world.cycle()
    except Rejected:
        pass


@pytest.mark.parametrize("seed", range(12))
def test_every_wait_is_what_the_books_say(seed: int) -> None:
    luck = random.Random(seed)
    objective = Objectives(wait_ms=Millis(0))
    tenants = [
        replace(a_tenant(name, 6, order=order), objectives=objective, budgets=budgets)
        for name, order, budgets in (
            ("vision", QueueOrder.STRICT, ()),
            ("nlp", QueueOrder.SKIP, BUDGETS if seed % 2 else ()),
        )
    ]
    world = World(a_config(*tenants, nodes=2))
    twin = Twin(world)
    for _ in range(120):
        step(world, luck)
        if luck.random() < 0.4:
            world.cycle()
        if luck.random() < 0.5:
            twin.pass_by(luck.choice([1, 7, 500, 3000]))
    course = ObjectiveCourse()
    fed = Folds(course)
    fed.feed(world.log)
    course.close(Instant(world.now))
    rows = [row for row in course.rows() if row.objective is Objective.WAIT]
    assert sum(twin.waited.values()) > 0 or seed % 2
    told: dict[int, int] = {}
    for row in rows:
        assert row.broken < WORST_KEPT, "else not all of them are named"
        for job in row.jobs:
            told[job.job] = told.get(job.job, 0) + job.ms
    assert told == {job: ms for job, ms in twin.waited.items() if ms}
