"""Two gangs that each need more than half: one runs whole, or the other, never both in part.

A place is given to a whole gang or not at all, in one step, so two half-started gangs that
wait for each other cannot come to be. Here histories try to bring them about.
"""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model.ids import JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState, JobState, TaskState
from allotment.model.quantity import MINUTE
from allotment.model.reports import Seen, TaskReport
from allotment.model.tenancy import Config
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant
from tests.support.cells import cell_config
from tests.support.world import PLATFORM, World

CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  a: {cells: {dgx-v100-node: 1, dgx-v100-socket: 1}, borrow: true}
  b: {cells: {dgx-v100-socket: 1}, borrow: true}
"""
DEVICES = 16
TASKS = 10
"""More than half, and more than a node: a half of one gang fits beside a half of the other."""

COUNTED = a_config(a_tenant("a", 12), a_tenant("b", 4), nodes=2)
BOTH = pytest.mark.parametrize(
    "config", [COUNTED, cell_config(CELLS)], ids=["counted", "cells"]
)


def gang(tenant: str, *, elastic: bool) -> JobBuilder:
    built = a_job().of(tenant).gpus(1).retry(1_000)
    return built.between(TASKS, TASKS + 2, elastic=True) if elastic else built.tasks(TASKS)


def start_fails(world: World, job: JobId, index: int) -> None:
    """One task breaks while the gang comes up, or later."""
    attempt = world.job(job).attempt
    if attempt is not None and attempt.state in (AttemptState.STARTING, AttemptState.RUNNING):
        key = TaskKey(job, attempt.no, TaskIndex(index % len(attempt.slots)))
        if attempt.task(key.index).state is not TaskState.ENDED:
            world.task_ends(key, 1, PLATFORM if index % 2 else None)


def comes_up(world: World, job: JobId, count: int) -> None:
    """Some of its tasks are ready; if all are, they run."""
    attempt = world.job(job).attempt
    if attempt is None or attempt.state is not AttemptState.STARTING:
        return
    for index in range(min(count, len(attempt.slots))):
        if attempt.task(TaskIndex(index)).state is TaskState.PLACED:
            world.tell(TaskReport(TaskKey(job, attempt.no, TaskIndex(index)), Seen.READY))
    if count >= len(attempt.slots) and attempt.barrier_at:
        for index in range(len(attempt.slots)):
            key = TaskKey(job, attempt.no, TaskIndex(index))
            if attempt.task(TaskIndex(index)).state is TaskState.READY:
                world.tell(TaskReport(key, Seen.RUNNING, pid=1))


def told_to_stop_go(world: World, jobs: Iterable[JobId]) -> None:
    for job in jobs:
        attempt = world.job(job).attempt
        if attempt is None:
            continue
        gone = range(0)
        if attempt.stop is not None or attempt.state is AttemptState.STOPPING:
            gone = range(len(attempt.slots))
        elif attempt.shrink is not None:
            gone = range(attempt.shrink.tasks, len(attempt.slots))
        for index in gone:
            now = world.job(job).attempt
            if now is attempt and attempt.task(TaskIndex(index)).state is not TaskState.ENDED:
                world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)


def never_both_in_part(world: World, jobs: Sequence[JobId]) -> None:
    """Whoever has devices has all it needs, and the other has none at all.

    Who is suspended keeps its memory alone.
    """
    gangs = world.state.cluster.gangs
    placed = [job for job in jobs if job in gangs and not gangs[job].suspended]
    assert len(placed) <= 1
    for job in placed:
        attempt = world.job(job).attempt
        assert attempt is not None
        assert len(attempt.slots) >= TASKS
        assert sum(len(slot.devices) for slot in attempt.slots) == len(attempt.slots)


def alive(world: World, jobs: Iterable[JobId]) -> list[JobRecord]:
    return [world.job(job) for job in jobs if not world.is_(job).finished]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("up"), st.integers(0, 1), st.sampled_from([1, 5, 99, 99])),
        st.tuples(st.just("fails"), st.integers(0, 1), st.integers(0, TASKS - 1)),
        st.tuples(st.just("goes"), st.just(0), st.just(0)),
        st.tuples(st.just("owner"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("owner ends"), st.just(0), st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("suspend"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("resume"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("again"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 1), st.sampled_from([1_000, 5 * MINUTE])),
        st.tuples(st.just("cycle"), st.just(0), st.just(0)),
        st.tuples(st.just("cycle"), st.just(0), st.just(0)),
    ),
    max_size=30,
)
"""What happens, to which of the two, and how much of it."""


class Duel:
    """The two gangs, and jobs of the owners that come in between."""

    def __init__(self, config: Config, first: int, elastic: tuple[bool, bool]) -> None:
        self.world = World(config)
        self.elastic = elastic
        self.tenants = ("a", "b")
        self.ever: list[JobId] = []
        self.jobs = [JobId(0), JobId(0)]
        self.owners: list[JobId] = []
        for which in (first, 1 - first):
            self.submit(which)

    def submit(self, which: int) -> None:
        self.jobs[which] = self.world.submit(
            gang(self.tenants[which], elastic=self.elastic[which])
        )
        self.ever.append(self.jobs[which])

    def step(self, what: str, which: int, amount: int) -> None:
        world, job = self.world, self.jobs[which]
        match what:
            case "up":
                comes_up(world, job, amount)
            case "fails":
                start_fails(world, job, amount)
            case "goes":
                told_to_stop_go(world, [*self.ever, *self.owners])
            case "owner":
                owner = a_job().of(self.tenants[which]).gpus(amount).not_preemptible()
                self.owners.append(world.submit(owner))
            case "owner ends":
                self._owners_end()
            case "wait":
                world.wait(amount)
            case "cycle":
                world.cycle()
            case _:
                self._command(what, which)

    def _command(self, what: str, which: int) -> None:
        world, job = self.world, self.jobs[which]
        match what:
            case "hold" if world.is_(job) is JobState.QUEUED:
                world.do(c.HoldJob(job))
            case "suspend" if world.is_(job) is JobState.RUNNING:
                world.do(c.SuspendJob(job))
            case "resume" if world.is_(job) is JobState.SUSPENDED:
                world.do(c.ResumeJob(job))
            case "cancel" if not world.is_(job).finished:
                world.do(c.CancelJob(job))
            case "again" if world.is_(job).finished:
                self.submit(which)
            case _:
                pass

    def _owners_end(self) -> None:
        for job in self.owners:
            if not self.world.is_(job).finished:
                self.world.do(c.CancelJob(job))
        told_to_stop_go(self.world, self.owners)

    def quiet(self) -> None:
        """Nobody disturbs them any longer."""
        self._owners_end()
        for job in self.ever:
            if self.world.is_(job) is JobState.HELD:
                self.world.do(c.ReleaseJob(job))
            if self.world.is_(job) is JobState.SUSPENDED:
                self.world.do(c.ResumeJob(job))


@BOTH
@given(first=st.integers(0, 1), elastic=st.tuples(st.booleans(), st.booleans()), steps=STEPS)
def test_two_half_started_gangs_never_block_each_other(
    config: Config, first: int, elastic: tuple[bool, bool], steps: list[tuple[str, int, int]]
) -> None:
    duel = Duel(config, first, elastic)
    world = duel.world
    for step in steps:
        duel.step(*step)
        never_both_in_part(world, duel.ever)
    duel.quiet()
    ran: set[JobId] = set()
    for _ in range(60):
        left = alive(world, duel.ever)
        if not left:
            break
        told_to_stop_go(world, duel.ever)
        world.cycle()
        never_both_in_part(world, duel.ever)
        for job in left:
            comes_up(world, job.id, 99)
            if world.is_(job.id) is JobState.RUNNING:
                ran.add(job.id)
                world.ends(job.id)
        world.wait(10 * MINUTE)
    assert not alive(world, duel.ever), "somebody waits for ever"
    assert ran >= {job for job in duel.ever if world.is_(job) is JobState.SUCCEEDED}
