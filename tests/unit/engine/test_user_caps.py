"""What one user of a tenant may hold at once: passed over beyond it, and woken in time."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Resources
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, Limits, PerUser, QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant
from tests.support.cells import cell_config
from tests.support.world import World

ALICE, BOB = Actor("alice", 1001), Actor("bob", 1002)
BOTH = (ALICE, BOB)
CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  vision: {cells: {dgx-v100-node: 1}, queues: {default: {order: skip}}}
  nlp: {cells: {dgx-v100-node: 1}}
"""


def capped(config: Config, gpus: int, tenant: str = "vision") -> Config:
    tenants = tuple(
        msgspec.structs.replace(t, per_user=Resources(gpu_milli=gpus * 1000))
        if t.name == tenant
        else t
        for t in config.tenants
    )
    return msgspec.structs.replace(config, tenants=tenants)


def counted(order: QueueOrder = QueueOrder.SKIP) -> Config:
    return a_config(a_tenant("vision", 8, order=order), a_tenant("nlp", 8), nodes=2)


def submit(world: World, actor: Actor, job: JobBuilder) -> JobId:
    number = world.state.next_job
    world.do(c.SubmitJob(job.spec()), actor)
    return number


def gpus(count: int) -> JobBuilder:
    return a_job().gpus(count)


def held(world: World, actor: Actor) -> int:
    return sum(
        job.spec.total().gpu_milli // 1000
        for job in world.state.jobs.values()
        if job.attempt is not None
        and job.spec.tenant == "vision"
        and job.owner == actor
        and job.state is not JobState.SUSPENDED
    )


@pytest.mark.parametrize("config", [counted(), counted(QueueOrder.STRICT), cell_config(CELLS)])
def test_who_has_all_one_may_waits_and_holds_up_nobody(config: Config) -> None:
    world = World(capped(config, 4))
    first = submit(world, ALICE, gpus(3))
    second = submit(world, ALICE, gpus(2))
    other = submit(world, BOB, gpus(4))
    world.cycle()
    assert [world.is_(job) for job in (first, second, other)] == [
        JobState.STARTING,
        JobState.QUEUED,
        JobState.STARTING,
    ]
    blocked = world.why(second)
    assert blocked.reason is Reason.USER_CAP
    assert blocked.message == (
        "alice holds 3 of the 4 GPUs that one user of vision may hold at once; it needs 2 GPUs."
    )
    assert blocked.hint == "It starts when jobs of alice end."
    world.runs(first)
    world.ends(first)
    world.cycle()
    assert world.is_(second) is JobState.STARTING


@pytest.mark.parametrize("config", [counted(), cell_config(CELLS)])
def test_what_is_borrowed_counts_too(config: Config) -> None:
    world = World(capped(config, 10))
    jobs = [submit(world, ALICE, gpus(4)) for _ in range(3)]
    world.cycle()
    assert [world.is_(job) for job in jobs] == [
        JobState.STARTING,
        JobState.STARTING,
        JobState.QUEUED,
    ]
    assert world.why(jobs[2]).reason is Reason.USER_CAP


def test_what_alone_is_too_much_is_refused() -> None:
    world = World(capped(counted(), 4))
    with pytest.raises(Rejected) as caught:
        submit(world, ALICE, gpus(6))
    assert (caught.value.code, caught.value.message) == (
        Code.NEVER_FITS,
        "It needs 6 GPUs, and one user of tenant vision may hold 4 GPUs at once.",
    )
    assert submit(world, ALICE, gpus(6).of("nlp"))


def test_a_promise_counts_and_a_borrower_is_not_sent_away_for_more() -> None:
    world = World(capped(counted(), 8))
    lent = [submit(world, BOB, gpus(4).of("nlp")) for _ in range(4)]
    world.cycle()
    for job in lent:
        world.runs(job)
    jobs = [submit(world, ALICE, gpus(4)) for _ in range(3)]
    world.cycle()
    assert [world.why(job).reason for job in jobs] == [
        Reason.WAITING_FOR_VICTIMS,
        Reason.WAITING_FOR_VICTIMS,
        Reason.USER_CAP,
    ]


def test_a_cap_that_comes_later_takes_nothing_away() -> None:
    world = World(counted())
    first = submit(world, ALICE, gpus(6))
    world.cycle()
    second = submit(world, ALICE, gpus(1))
    large = submit(world, BOB, gpus(6))
    world.do(c.HoldJob(large))
    world.do(c.ApplyConfig(capped(counted(), 4)))
    world.do(c.ReleaseJob(large))
    world.cycle()
    assert world.is_(first) is JobState.STARTING
    assert world.why(second).reason is Reason.USER_CAP
    assert world.why(large).hint == (
        "It alone needs more than this limit: ask for less (allot edit)."
    )
    world.do(c.ApplyConfig(counted()))
    world.cycle()
    assert world.is_(second) is JobState.STARTING


def test_a_suspended_job_goes_on_when_its_user_has_room() -> None:
    world = World(capped(counted(), 4))
    first = submit(world, ALICE, gpus(4))
    world.cycle()
    world.runs(first)
    world.do(c.SuspendJob(first))
    second = submit(world, ALICE, gpus(4))
    world.cycle()
    assert world.is_(second) is JobState.STARTING
    world.do(c.ResumeJob(first))
    world.cycle()
    assert world.why(first).reason is Reason.USER_CAP
    world.runs(second)
    world.ends(second)
    world.cycle()
    assert world.is_(first) is JobState.RUNNING


def in_state(world: World, state: JobState) -> list[JobId]:
    return [job.id for job in world.state.jobs.values() if job.state is state]


def act(world: World, what: str, who: Actor, number: int) -> None:
    if what == "submit":
        # One device a task, anywhere: what is free always fits.
        submit(world, who, a_job().gpus(1).tasks(number))
    elif what == "end":
        for job in in_state(world, JobState.RUNNING)[:number]:
            world.ends(job)
    elif what == "suspend":
        for job in in_state(world, JobState.RUNNING)[:1]:
            world.do(c.SuspendJob(job))
    else:
        for job in in_state(world, JobState.SUSPENDED):
            world.do(c.ResumeJob(job))


def check(world: World, actor: Actor, cap: int) -> None:
    free, have = world.state.cluster.ledger.whole_free, held(world, actor)
    assert have <= cap
    for job in in_state(world, JobState.QUEUED):
        need = world.job(job).spec.task_count
        if world.job(job).owner != actor:
            continue
        assert need > free or have + need > cap
        if have + need > cap:
            assert world.why(job).reason is Reason.USER_CAP


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([counted(), cell_config(CELLS)]),
    st.lists(
        st.tuples(
            st.sampled_from(["submit"] * 4 + ["end", "end", "suspend", "resume"]),
            st.sampled_from(BOTH),
            st.integers(1, 3),
        ),
        max_size=25,
    ),
    st.integers(0, 25),
)
def test_nobody_holds_too_much_and_nobody_waits_in_vain(
    config: Config, steps: list[tuple[str, Actor, int]], raised_at: int
) -> None:
    world, cap = World(capped(config, 4)), 4
    for at, step in enumerate(steps):
        if at == raised_at:
            cap = 6
            world.do(c.ApplyConfig(capped(config, cap)))
        act(world, *step)
        world.cycle()
        for job in in_state(world, JobState.STARTING):
            world.runs(job)
        world.cycle()
        for actor in BOTH:
            check(world, actor, cap)


def test_who_has_too_many_devices_still_gets_what_needs_none() -> None:
    world = World(counted())
    submit(world, ALICE, gpus(6))
    world.cycle()
    world.do(c.ApplyConfig(capped(counted(), 4)))
    plain = submit(world, ALICE, a_job())
    world.cycle()
    assert world.is_(plain) is JobState.STARTING


def test_a_user_may_have_so_many_jobs_that_are_not_over() -> None:
    limits = Limits(per_user=PerUser(jobs=3))
    world = World(a_config(a_tenant("vision", 8), limits=limits))
    for _ in range(2):
        submit(world, ALICE, gpus(1))
    with pytest.raises(Rejected, match="this is 2 more") as caught:
        world.do(c.SubmitJob(gpus(1).spec(), copies=2), ALICE)
    assert caught.value.code is Code.QUEUE_FULL
    submit(world, ALICE, gpus(1))
    submit(world, BOB, gpus(1))
    with pytest.raises(Rejected) as caught:
        submit(world, ALICE, gpus(1))
    assert caught.value.message == (
        "alice has 3 jobs that are not over, and one user may have 3."
    )
