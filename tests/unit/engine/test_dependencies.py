"""Jobs that wait for others: success or any end, small graphs, and what is refused."""

import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason
from allotment.model.spec import Dependency, EndKind
from tests.support.builders import ALICE, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import PERMANENT, World

LONG_CHAIN = 3_000


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 8)))


def after(*jobs: int, end: EndKind = EndKind.SUCCESS) -> JobBuilder:
    return a_job().after(*(Dependency(JobId(job), end) for job in jobs))


def ran(world: World, job: JobId, code: int = 0) -> None:
    world.cycle()
    world.runs(job)
    world.ends(job, code, PERMANENT if code else None)
    world.cycle()


def test_a_diamond_runs_in_its_order_with_one_entry_each(world: World) -> None:
    top = world.submit(a_job())
    left, right = world.submit(after(top)), world.submit(after(top))
    bottom = world.submit(after(left, right))
    world.cycle()
    assert [world.is_(job) for job in (left, right, bottom)] == [JobState.QUEUED] * 3
    assert world.why(bottom).reason is Reason.DEPENDENCY
    assert (
        world.why(bottom).message == f"It starts after job {left} (queued), {right} (queued)."
    )
    ran(world, top)
    assert [world.is_(job) for job in (left, right, bottom)] == [
        JobState.STARTING, JobState.STARTING, JobState.QUEUED,
    ]  # fmt: skip
    ran(world, left)
    assert world.is_(bottom) is JobState.QUEUED
    ran(world, right)
    assert world.is_(bottom) is JobState.STARTING


def one_of(*jobs: int, end: EndKind = EndKind.SUCCESS) -> JobBuilder:
    return a_job().after(*(Dependency(JobId(job), end, any_of=1) for job in jobs))


def test_of_a_choice_the_first_success_is_enough(world: World) -> None:
    first, second = world.submit(a_job()), world.submit(a_job())
    after_one = world.submit(one_of(first, second))
    world.cycle()
    assert world.why(after_one).message == (
        f"It starts after one of the jobs {first} (starting), {second} (starting)."
    )
    ran(world, first, 1)
    assert world.is_(after_one) is JobState.QUEUED
    ran(world, second)
    assert world.is_(after_one) is JobState.STARTING


def test_a_choice_is_lost_with_its_last_job(world: World) -> None:
    first, second = world.submit(a_job()), world.submit(a_job())
    after_one = world.submit(one_of(first, second))
    whatever = world.submit(one_of(first, second, end=EndKind.ANY))
    ran(world, second, 1)
    assert world.is_(after_one) is JobState.QUEUED
    assert world.is_(whatever) is JobState.STARTING
    ran(world, first, 1)
    assert world.is_(after_one) is JobState.FAILED
    diagnosis = world.job(after_one).diagnosis
    assert diagnosis is not None
    assert diagnosis.code == "dependency_failed"
    with pytest.raises(Rejected, match="after one of 2 jobs succeeds, but none did"):
        world.submit(one_of(first, second))


def test_a_job_depends_on_a_bounded_number_of_others(world: World) -> None:
    first = world.submit(a_job())
    with pytest.raises(Rejected, match="10,001 jobs, and 10,000 are accepted"):
        world.submit(after(*[first] * 10_001))
    with pytest.raises(Rejected, match="200,000 dependencies in all"):
        world.submit(after(*[first] * 100), copies=2_001)


def test_a_failure_ends_all_that_needed_success_and_frees_who_waits_for_any_end(
    world: World,
) -> None:
    top = world.submit(a_job())
    needs = world.submit(after(top))
    far = world.submit(after(needs))
    anyhow = world.submit(after(top, end=EndKind.ANY))
    cleanup = world.submit(after(far, end=EndKind.ANY))
    ran(world, top, code=1)
    assert [world.is_(job) for job in (needs, far)] == [JobState.FAILED] * 2
    diagnosis = world.job(far).diagnosis
    assert diagnosis is not None
    assert diagnosis.code == "dependency_failed"
    assert [world.is_(job) for job in (anyhow, cleanup)] == [JobState.STARTING] * 2


def test_a_long_chain_ends_without_ending_the_engine(world: World) -> None:
    first = world.submit(a_job())
    job = first
    for _ in range(LONG_CHAIN):
        world.engine.command(c.SubmitJob(after(job).spec()), ALICE, world.now)
        job = JobId(job + 1)
    world.do(c.CancelJob(first))
    assert world.is_(job) is JobState.FAILED


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_what_needs_the_success_of_what_has_none_is_refused(world: World, how: str) -> None:
    job, other = world.submit(a_job()), world.submit(a_job(), held=True)
    if how == "failed":
        ran(world, job, code=1)
    else:
        world.do(c.CancelJob(job))
    for command in (c.SubmitJob(after(job).spec()), c.EditJob(other, after(job).spec())):
        with pytest.raises(Rejected) as caught:
            world.do(command)
        assert caught.value.code is Code.BAD_DEPENDENCY
        ended = {"cancelled": "was cancelled"}.get(how, how)
        assert caught.value.message == (
            f"It is to start after job {job} succeeds, but that job {ended}."
        )
    late = world.submit(after(job, end=EndKind.ANY))
    world.cycle()
    assert world.is_(late) is JobState.STARTING


def test_circles_are_refused_and_change_nothing(world: World) -> None:
    first = world.submit(a_job())
    second = world.submit(after(first))
    third = world.submit(after(second, end=EndKind.ANY))
    before = world.job(first).spec
    for circle, words in (
        (after(third), "circle: job 1 after job 3 after job 2 after job 1."),
        (after(first), "A job cannot wait for itself."),
    ):
        with pytest.raises(Rejected) as caught:
            world.do(c.EditJob(first, circle.spec()))
        assert caught.value.code is Code.BAD_DEPENDENCY
        assert words in caught.value.message
    assert world.job(first).spec == before
    with pytest.raises(Rejected) as caught:
        world.submit(after(99))
    assert caught.value.message == "It depends on job 99, which does not exist."


def test_an_edit_waits_for_others_from_then_on(world: World) -> None:
    first, second = world.submit(a_job()), world.submit(a_job())
    job = world.submit(after(first))
    world.do(c.EditJob(job, after(second).spec()))
    ran(world, first, code=1)
    assert world.is_(job) is JobState.QUEUED
    world.runs(second)
    world.ends(second)
    world.cycle()
    assert world.is_(job) is JobState.STARTING
