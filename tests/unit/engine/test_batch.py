"""What the engine does for scripts of batch systems: other indices, and another attempt."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.lifecycle import JobState as S
from allotment.model.spec import REQUEUE_CODE, Batch
from tests.support.builders import ALICE, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 4)))


def a_script() -> JobBuilder:
    return a_job()._with(batch=Batch(requeue_on=(REQUEUE_CODE, 9)))  # noqa: SLF001


@pytest.mark.parametrize("code", [REQUEUE_CODE, 9])
def test_a_script_that_asks_for_it_starts_anew_as_often_as_it_likes(
    world: World, code: int
) -> None:
    job = world.submit(a_script().retry(1))
    for _ in range(4):
        world.cycle()
        world.runs(job)
        world.ends(job, code)
        assert world.is_(job) is S.QUEUED
        world.wait(world.job(job).not_before - world.now)
    assert (world.job(job).used_retries, world.job(job).requeue_cause) == (0, "asked")
    world.cycle()
    world.runs(job)
    world.ends(job)
    assert world.is_(job) is S.SUCCEEDED


def test_so_it_does_at_its_time_limit(world: World) -> None:
    job = world.submit(a_script().within(run_ms=1000))
    world.cycle()
    world.runs(job)
    world.wait(1000)
    world.ends(job, REQUEUE_CODE)
    assert world.is_(job) is S.QUEUED


def test_but_not_when_it_is_cancelled_nor_does_any_other_job(world: World) -> None:
    script, other = world.submit(a_script()), world.submit(a_job())
    world.cycle()
    world.runs(script)
    world.runs(other)
    world.do(c.CancelJob(script))
    world.ends(script, REQUEUE_CODE)
    world.ends(other, REQUEUE_CODE)
    assert (world.is_(script), world.is_(other)) == (S.CANCELLED, S.FAILED)


def test_an_array_has_the_indices_that_it_names(world: World) -> None:
    spec = a_job().spec()
    made = world.do(c.SubmitJob(spec, copies=3, indices=(2, 5, 9), key="k"), ALICE)
    jobs = [world.job(record.event.job) for record in made]  # type: ignore[union-attr]
    places = [job.spec.array for job in jobs]
    assert [(place.index, place.size, place.jobs) for place in places if place] == [
        (2, 10, 3), (5, 10, 3), (9, 10, 3),
    ]  # fmt: skip
    assert [job.spec.name for job in jobs] == ["job.2", "job.5", "job.9"]
    assert [job.key for job in jobs] == ["k", "", ""]
    (alone,) = world.do(c.SubmitJob(spec, indices=(4,)), ALICE)
    place = world.job(alone.event.job).spec.array  # type: ignore[union-attr]
    assert place is not None
    assert (place.index, place.jobs) == (4, 1)
    assert msgspec.structs.asdict(place)["parent"] == jobs[-1].id + 1
