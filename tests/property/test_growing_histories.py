"""Histories of gangs that grow, shrink and move, against the audit.

What jobs tell of their steps is wild, as nothing keeps a job from lying; wishes, ends, faults,
configurations and restarts come at any moment of a move.
"""

import os
import random
from collections import Counter
from itertools import count

from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.gains import MOST_RATE
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, Millis
from allotment.model.reports import PaceReport
from allotment.model.tenancy import Config, Preempt, QueueOrder, RankBy, ShareBy
from allotment.policies.rescheduling.growing import growing
from tests.property.test_histories import TENANTS, Histories, shared
from tests.support.builders import NOW, POLICIES, a_job
from tests.support.world import World

GROWING = replace(POLICIES, rescheduler=growing)
RATES = 0, 1, 1000, 1000, 1000, 2000, MOST_RATE
LEFT_MS = -1, -1, 0, 10**9, 10**9, MOST_RATE
STEERED = c.HoldJob, c.CancelJob, c.SuspendJob, c.ResumeJob
WEIGHTS = {
    "submitted": 3,
    "fixed": 2,
    "progressed": 14,
    "left": 8,
    "parted": 6,
    "ended": 4,
    "steered": 1,
    "reconfigured": 1,
    "faulty": 1,
    "restarted": 1,
}


def rescheduled(config: Config, grow_ms: int, *, migrates: bool) -> Config:
    """Let the gangs of each queue grow, or move, or both."""
    tenants = tuple(
        replace(
            tenant,
            queues=tuple(
                replace(queue, grow_ms=Millis(grow_ms), migrates=migrates)
                for queue in tenant.queues
            ),
        )
        for tenant in config.tenants
    )
    return replace(config, tenants=tenants)


class Growth(World):
    """A cluster whose queues may grow."""

    def __init__(self, config: Config) -> None:
        self.engine = Engine(State(GROWING))
        self.now, self.log, self.effects = NOW, [], []
        self.do(c.ApplyConfig(config))


class Grown(Histories):
    """One history, made of what a generator of random numbers says."""

    policies = GROWING

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng, self.steps = rng, count(1)
        self.ways = rng.choice(list(QueueOrder)), rng.choice(list(ShareBy))
        self.preempt = rng.choice(list(Preempt))
        self.world = Growth(self.config(SECOND))

    def config(self, grow_ms: int) -> Config:
        shares = (self.rng.randrange(5), self.rng.randrange(5), self.rng.randrange(5))
        config = shared(shares, *self.ways, RankBy.SUBMITTED, self.preempt)
        return rescheduled(config, grow_ms, migrates=self.rng.random() < 0.5)

    def submitted(self) -> None:
        rng = self.rng
        job = a_job().of(rng.choice(TENANTS)).gpus(rng.choice((0.5, 1, 1, 1, 2)))
        job.between(rng.choice((1, 2)), rng.choice((4, 8, 12)), elastic=True)
        self.attempt(c.SubmitJob(job.checkpointing().retry(2).spec()))

    def fixed(self) -> None:
        rng = self.rng
        job = a_job().of(rng.choice(TENANTS)).gpus(rng.choice((1, 2, 4)))
        self.attempt(c.SubmitJob(job.tasks(rng.choice((1, 2))).checkpointing().spec()))

    def progressed(self) -> None:
        """All that runs tells of its steps, saves, and goes on for a while."""
        world, rng = self.world, self.rng
        scales = rng.random() < 0.8
        for job in self.jobs(JobState.RUNNING):
            attempt = world.job(job).attempts[-1]
            rate = rng.choice(RATES) * (attempt.staying if scales else 1)
            left = rng.choice(LEFT_MS)
            told = PaceReport(job, attempt.no, attempt.staying, min(MOST_RATE, rate), left)
            world.tell(told)
        world.wait(rng.choice((1, SECOND, 100 * SECOND, 400 * SECOND)))
        for job in self.jobs(JobState.RUNNING):
            if rng.random() < 0.8:
                world.saves(job, next(self.steps))

    def left(self) -> None:
        """Some gangs that were told to go are gone."""
        for job in self.jobs(JobState.STOPPING):
            if self.rng.random() < 0.7:
                self.world.ends(job, self.rng.choice((143, 85, 0, 1)))

    def parted(self) -> None:
        self.surplus_ends(self.rng.randrange(9), lost=self.rng.random() < 0.2)

    def ended(self) -> None:
        for job in self.jobs(JobState.RUNNING):
            if self.rng.random() < 0.3:
                self.world.ends(job, self.rng.choice((0, 0, 1)))

    def steered(self) -> None:
        self.ask(self.rng.choice(STEERED), self.rng.randrange(99))

    def reconfigured(self) -> None:
        self.attempt(c.ApplyConfig(self.config(self.rng.choice((0, SECOND, 5 * SECOND)))))

    def faulty(self) -> None:
        self.node(self.rng.randrange(3), alive=self.rng.random() < 0.7)

    def restarted(self) -> None:
        self.restart()

    def jobs(self, state: JobState) -> list[JobId]:
        return sorted(job.id for job in self.world.state.jobs.values() if job.state is state)


def history(seed: int) -> Counter[str]:
    """Make one history, looked at all the way; give what happened in it."""
    rng = random.Random(f"growing/{seed}")
    grown = Grown(rng)
    for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=120):
        getattr(grown, name)()
        if rng.random() < 0.8:
            grown.world.cycle()
        for job in grown.jobs(JobState.STARTING):
            if rng.random() < 0.9:
                grown.world.runs(job)
        grown.no_refusals()
        grown.sums_and_places_in_line_are_those_of_a_count()
    grown.teardown()
    return Counter(what_of(record.event) for record in grown.world.log)


def what_of(event: e.AnyEvent) -> str:
    match event:
        case e.StopRequested(job=job, wanted_by=other, gain=gain) if job == other:
            return "grows" if gain is not None and gain.expected else "moves"
        case e.GainMeasured(kept=kept):
            return "gained" if kept else "lost"
        case e.ShrinkRequested(wanted_by=None):
            return "undone"
    return type(event).__name__


def test_gangs_grow_move_and_shrink_and_the_books_add_up() -> None:
    seeds = int(os.environ.get("ALLOT_GROWING", "16"))
    happened = sum((history(seed) for seed in range(seeds)), Counter[str]())
    for what in ("grows", "moves", "gained", "lost", "undone", "AttemptShrunk"):
        assert happened[what], f"{what}: nothing is tried"
