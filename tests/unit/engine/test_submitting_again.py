"""Jobs that are submitted again, and what becomes of their arrays."""

from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.spec import ArraySlice, JobSpec
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def a_world(copies: int) -> World:
    world = World(a_config(a_tenant("vision", 4)))
    world.do(c.SubmitJob(a_job().spec(), copies=copies))
    return world


def array_of(world: World, job: int) -> ArraySlice:
    array = world.job(JobId(job)).spec.array
    assert array is not None
    return array


def specs(world: World, *jobs: int) -> tuple[JobSpec, ...]:
    return tuple(world.job(JobId(job)).spec for job in jobs)


def test_some_elements_make_an_array_of_their_indices_alone() -> None:
    world = a_world(3)
    world.do(c.SubmitAgain(specs(world, 1, 3)))
    assert [array_of(world, job).index for job in (4, 5)] == [0, 2]
    for job in (4, 5):
        made = array_of(world, job)
        assert (made.parent, made.size, made.members, made.jobs) == (4, 3, 2, 2)


def test_all_elements_make_the_whole_array_again() -> None:
    world = a_world(3)
    world.do(c.SubmitAgain(specs(world, 1, 2, 3)))
    for job, index in ((4, 0), (5, 1), (6, 2)):
        made = array_of(world, job)
        assert (made.index, made.parent, made.size, made.members, made.jobs) == (
            index, 4, 3, 0, 3,
        )  # fmt: skip


def test_an_element_without_its_array_is_the_whole_of_its_own() -> None:
    world = a_world(1)
    alone = replace(a_job().spec(), array=ArraySlice(2, 5, JobId(0)))
    job = world.state.next_job
    world.do(c.SubmitJob(alone))
    made = array_of(world, job)
    assert (made.index, made.size, made.parent, made.jobs) == (2, 5, job, 1)


def test_an_element_of_an_array_that_is_there_stays_in_it() -> None:
    world = a_world(3)
    job = world.state.next_job
    world.do(c.SubmitJob(world.job(JobId(2)).spec))
    assert array_of(world, job) == array_of(world, 2)
