"""Finished jobs leave memory, the oldest first, but for those that others wait for."""

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import SYSTEM, JobId
from allotment.model.spec import Dependency
from allotment.model.tenancy import Limits
from tests.support.builders import ALICE, a_config, a_job, a_tenant
from tests.support.world import World


def finished(keep: int, jobs: int) -> tuple[World, list[JobId]]:
    world = World(a_config(a_tenant("vision", 8), limits=Limits(keep_finished=keep)))
    over: list[JobId] = []
    for _ in range(jobs):
        over.append(world.submit(a_job()))
        world.cycle()
        world.runs(over[-1])
        world.ends(over[-1])
    return world, over


def test_so_many_stay_as_are_to_be_kept() -> None:
    world, over = finished(2, 4)
    assert world.engine.archive(world.now) == over[:2]
    assert world.engine.archive(world.now, 4) == []
    assert world.engine.archive(world.now, 3) == over[:1]
    assert world.engine.archive(world.now, 0) == over


def test_what_another_job_still_waits_for_stays() -> None:
    world, over = finished(0, 2)
    running = world.submit(a_job())
    world.cycle()
    world.runs(running)
    needs = tuple(Dependency(job) for job in (over[0], running))
    world.submit(a_job().after(*needs))
    assert world.engine.archive(world.now) == over[1:]


def test_a_key_that_a_newer_job_has_stays_its_own() -> None:
    """Work of others that lost its place is a job again under the same key."""
    world = World(a_config(a_tenant("vision", 8)))
    first = world.submit(a_job(), key="k")
    world.do(c.CancelJob(first))
    again = world.submit(a_job(), key="k")
    world.engine.emit(e.JobArchived(first), SYSTEM, world.now)
    assert world.state.keys == {(ALICE.user, "k"): again}
