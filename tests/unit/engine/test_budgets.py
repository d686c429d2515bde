"""Budgets in force: who waits for them, who goes on, and when all may start again."""

import random

import msgspec
import pytest
from msgspec.structs import replace

from allotment.engine.apply import apply
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.budget import GPU_HOUR, Account, Budget, Every
from allotment.model.errors import Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DAY, HOUR, Instant, WallTime
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, Queue, QueueOrder
from tests.support.builders import POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.cells import cell_config
from tests.support.world import World

ALICE, BOB = Actor("alice", 1001), Actor("bob", 1002)
MIDNIGHT = DAY
CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  vision: {cells: {dgx-v100-node: 1}}
  nlp: {cells: {dgx-v100-node: 1}}
"""


def hours(gpu_hours: float) -> int:
    return round(gpu_hours * GPU_HOUR)


def with_budgets(*budgets: Budget, config: Config | None = None) -> Config:
    config = config or a_config(a_tenant("vision", 8), a_tenant("nlp", 8), nodes=2)
    first, *others = config.tenants
    queues = (*first.queues, Queue("nightly", QueueOrder.SKIP))
    first = replace(first, budgets=budgets, queues=queues)
    return replace(config, tenants=(first, *others))


def daily(hard: float, **scope: object) -> Budget:
    return Budget(Every.DAY, hard=hours(hard), **scope)  # pyright: ignore[reportArgumentType]


def gpus(count: int) -> JobBuilder:
    return a_job().gpus(count)


def submit(world: World, job: JobBuilder, actor: Actor = ALICE) -> JobId:
    number = world.state.next_job
    world.do(c.SubmitJob(job.spec()), actor)
    world.cycle()
    return number


def running(world: World, job: JobBuilder, actor: Actor = ALICE) -> JobId:
    number = submit(world, job, actor)
    assert world.is_(number) is JobState.STARTING
    world.runs(number)
    return number


def pass_by(world: World, ms: int) -> None:
    """Let time pass as a service does: it wakes when something is due."""
    end = world.now + ms
    while True:
        due = world.engine.next_due(world.now)
        if due is None or due > end:
            break
        world.wait(max(0, due - world.now))
        world.cycle()
    world.wait(end - world.now)
    world.cycle()


def until_midnight(world: World) -> int:
    return DAY - world.now % DAY


@pytest.mark.parametrize("config", [None, cell_config(CELLS)])
def test_used_up_nothing_starts_what_runs_goes_on_and_it_is_renewed(
    config: Config | None,
) -> None:
    world = World(with_budgets(daily(4), config=config))
    first = running(world, gpus(4))
    second = submit(world, gpus(2))
    assert world.is_(second) is JobState.STARTING
    world.runs(second)
    pass_by(world, HOUR)
    third = submit(world, gpus(1))
    assert [world.is_(job) for job in (first, second, third)] == [
        JobState.RUNNING,
        JobState.RUNNING,
        JobState.QUEUED,
    ]
    blocked = world.why(third)
    assert blocked.reason is Reason.BUDGET
    assert blocked.message == (
        "Tenant vision used 150% of its GPU-hours (6 of 4 today). "
        "It is renewed on 1970-01-02 UTC."
    )
    assert blocked.until == MIDNIGHT
    pass_by(world, until_midnight(world) - 1)
    assert world.is_(third) is JobState.QUEUED
    pass_by(world, 1)
    assert world.is_(third) is JobState.STARTING


def test_it_closes_when_it_is_used_up_and_lets_others_pass() -> None:
    """A strict line: the first waits for room, then for its budget, and holds up nobody."""
    world = World(with_budgets(daily(1, queue="default")))
    running(world, gpus(8))
    large = submit(world, gpus(8).not_preemptible())
    assert world.why(large).reason is not Reason.BUDGET
    other = submit(world, gpus(8).of("vision", "nightly"))
    assert world.is_(other) is JobState.STARTING
    pass_by(world, HOUR // 8)
    assert world.why(large).reason is Reason.BUDGET
    assert "Queue default of tenant vision" in world.why(large).message


def test_only_those_are_held_back_whom_it_counts() -> None:
    world = World(
        with_budgets(daily(1, user="bob"), daily(2, each_user=True, begin=Instant(0)))
    )
    running(world, gpus(1), BOB)
    pass_by(world, HOUR)
    held = submit(world, gpus(1), BOB)
    assert world.why(held).message.startswith("User bob in tenant vision used 100%")
    free = running(world, gpus(2))
    nobody = submit(world, a_job(), BOB)
    assert world.is_(nobody) is JobState.STARTING, "it asks for no device"
    elsewhere = submit(world, gpus(1).of("nlp"), BOB)
    assert world.is_(elsewhere) is JobState.STARTING
    pass_by(world, HOUR)
    world.ends(free)
    also = submit(world, gpus(1))
    assert world.why(also).message.startswith("User alice in tenant vision used 100%")


def test_a_queue_with_queues_in_it_has_a_budget_for_all_their_jobs() -> None:
    config = a_config(a_tenant("vision", 8), nodes=1)
    queues = (Queue("all"), Queue("day", parent="all"), Queue("night", parent="all"))
    vision = replace(config.tenants[0], budgets=(daily(2, queue="all"),), queues=queues)
    world = World(replace(config, tenants=(vision,)))
    for queue in ("day", "night"):
        running(world, gpus(1).of("vision", queue))
    pass_by(world, HOUR)
    blocked = world.why(submit(world, gpus(1).of("vision", "day")))
    assert blocked.reason is Reason.BUDGET
    assert blocked.message.startswith("Queue all of tenant vision used 100%")


def test_a_suspended_job_uses_nothing_and_resumes_when_it_is_renewed() -> None:
    world = World(with_budgets(daily(4)))
    job = running(world, gpus(4))
    pass_by(world, HOUR // 2)
    world.do(c.SuspendJob(job))
    other = running(world, gpus(4))
    pass_by(world, HOUR // 2)
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is JobState.SUSPENDED
    assert world.why(job).reason is Reason.BUDGET
    assert world.is_(other) is JobState.RUNNING
    world.ends(other)
    world.cycle()
    assert world.is_(job) is JobState.SUSPENDED
    pass_by(world, until_midnight(world))
    assert world.is_(job) is JobState.RUNNING


def test_a_warning_on_submission() -> None:
    world = World(with_budgets(Budget(Every.DAY, soft=hours(1), hard=hours(2))))
    job = running(world, gpus(1))
    assert world.job(job).warnings == ()
    pass_by(world, HOUR)
    second = submit(world, gpus(1))
    assert world.job(second).warnings == (
        "budget: Tenant vision used 50% of its GPU-hours (1 of 2 today), beyond its soft limit "
        "of 1. It is renewed on 1970-01-02 UTC.",
    )
    assert world.job(submit(world, a_job())).warnings == ()
    world.runs(second)
    pass_by(world, HOUR)
    third = submit(world, gpus(1))
    assert "so it waits" in world.job(third).warnings[0]


def accounts(state: State) -> list[Account]:
    return state.budgets.accounts()


def test_another_amount_keeps_what_was_used_and_a_new_budget_begins_with_nothing() -> None:
    world = World(with_budgets(daily(1)))
    running(world, gpus(2))
    pass_by(world, HOUR)
    waits = submit(world, gpus(1))
    assert world.why(waits).reason is Reason.BUDGET
    world.do(c.ApplyConfig(with_budgets(daily(3), Budget(Every.WEEK, hard=hours(9)))))
    world.cycle()
    assert world.is_(waits) is JobState.STARTING
    day, week = accounts(world.state)
    assert day.used(world.now) == hours(2)
    assert week.used(world.now) == 0
    pass_by(world, HOUR)
    assert week.used(world.now) == day.used(world.now) - hours(2) == hours(3)
    world.do(c.ApplyConfig(with_budgets()))
    assert accounts(world.state) == []
    assert not world.state.cluster.queues.used_up


def test_archived_jobs_still_count_and_a_restart_changes_nothing() -> None:
    world = World(with_budgets(daily(2), daily(9, each_user=True)))
    job = running(world, gpus(2))
    pass_by(world, HOUR)
    world.ends(job)
    world.engine.emit(e.JobArchived(job), ALICE, world.now)
    world.collect()
    waits = submit(world, gpus(1))
    assert world.why(waits).reason is Reason.BUDGET
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    again = State.from_image(image, POLICIES)
    assert accounts(again) == accounts(world.state)
    assert again.budgets.next() == MIDNIGHT
    assert again.cluster.queues.used_up == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_fold_is_the_state_and_the_sums_are_those_of_the_log(seed: int) -> None:
    """Budgets of every kind, random jobs, suspensions, days that end; a twin that scans."""
    luck = random.Random(seed)
    budgets = (
        daily(20),
        daily(8, each_user=True),
        Budget(Every.WEEK, hard=hours(60), queue="nightly"),
        Budget(Every.NEVER, hard=hours(90), begin=WallTime(DAY), end=WallTime(3 * DAY)),
    )
    world = World(with_budgets(*budgets))
    held: list[tuple[int, int, int]] = []
    """From when to when the tenant's jobs held how much."""
    while world.now < 3 * DAY:
        step(world, luck)
        world.cycle()
        before = world.now
        use = sum(
            gang.held().gpu_milli
            for gang in world.state.cluster.gangs.values()
            if gang.tenant == "vision"
        )
        due = world.engine.next_due(before) or before + DAY
        world.wait(min(luck.choice([1, HOUR // 3, 2 * HOUR]), max(1, due - before)))
        held.append((before, world.now, use))
        check(world, held)
    again = State(POLICIES)
    for record in world.log:
        apply(again, record)
    assert accounts(again) == accounts(world.state)
    assert again.image() == world.state.image()


def step(world: World, luck: random.Random) -> None:
    actor = luck.choice([ALICE, BOB])
    jobs = sorted(world.state.jobs)
    if luck.random() < 0.5 or not jobs:
        queue = luck.choice(["default", "nightly"])
        submit(world, gpus(luck.choice([1, 2, 4])).of("vision", queue), actor)
        return
    job = luck.choice(jobs)
    try:
        if world.is_(job) is JobState.STARTING:
            world.runs(job)
        elif world.is_(job) is JobState.RUNNING and luck.random() < 0.5:
            world.ends(job, luck.choice([0, 1]))
        else:
            world.do(luck.choice([c.SuspendJob, c.ResumeJob])(job), Actor("root", 0))
    except Rejected:
        pass


def check(world: World, held: list[tuple[int, int, int]]) -> None:
    """The tenant's daily account and the one of a stretch, by going through all there was."""
    now = world.now
    today = now - now % DAY
    day = next(a for a in accounts(world.state) if a.budget == daily(20))
    assert day.used(now) == sum(
        use * max(0, end - max(begin, today)) for begin, end, use in held
    )
    once = next(a for a in accounts(world.state) if a.budget.every is Every.NEVER)
    assert once.used(now) == sum(
        use * max(0, end - max(begin, DAY)) for begin, end, use in held
    )
    for job in world.state.jobs.values():
        if job.state is JobState.QUEUED and world.why(job.id).reason is Reason.BUDGET:
            assert any(account.closed(now) for account in accounts(world.state))
