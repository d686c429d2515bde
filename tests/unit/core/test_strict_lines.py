"""Strict queues of one tenant whose jobs are alike: which holds up which."""

import pytest
from msgspec.structs import replace

from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import Resources
from allotment.model.tenancy import Queue, QueueOrder
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

WAITS, STARTS = S.QUEUED, S.STARTING


def lab(guaranteed: int, guest: int, *, cap: int = 0, borrow: bool = True) -> World:
    """One machine of eight devices; the lab has three strict queues."""
    queues = tuple(Queue(name, QueueOrder.STRICT) for name in "xyz")
    tenant = replace(
        a_tenant("vision", guaranteed, borrow=borrow),
        queues=queues,
        per_user=Resources(gpu_milli=cap * 1000),
    )
    return World(a_config(tenant, a_tenant("guest", guest)))


def come(world: World, *jobs: tuple[str, int]) -> list[JobId]:
    ids = [world.submit(a_job().of("vision", queue).gpus(gpus)) for queue, gpus in jobs]
    world.cycle()
    return ids


def guests(world: World, *gpus: int) -> list[JobId]:
    jobs = [world.submit(a_job().of("guest").gpus(count)) for count in gpus]
    world.cycle()
    for job in jobs:
        world.runs(job)
    return jobs


def states(world: World, jobs: list[JobId]) -> list[S]:
    return [world.is_(job) for job in jobs]


def test_a_blocked_job_holds_up_its_queue_and_alike_ones_hold_up_theirs() -> None:
    world = lab(8, 0)
    (running,) = come(world, ("z", 5))
    world.runs(running)
    jobs = come(world, ("y", 1), ("x", 4), ("x", 1), ("y", 4), ("y", 1), ("z", 1))
    assert states(world, jobs) == [STARTS, WAITS, WAITS, WAITS, WAITS, STARTS]


def test_the_head_of_a_queue_goes_on_once_what_was_before_it_has_started() -> None:
    world = lab(8, 0)
    (running,) = come(world, ("z", 5))
    world.runs(running)
    jobs = come(world, ("y", 3), ("x", 3), ("y", 1))
    assert states(world, jobs) == [STARTS, WAITS, WAITS]
    world.ends(running)
    world.cycle()
    assert states(world, jobs) == [STARTS, STARTS, STARTS]


def test_a_job_with_a_reserved_place_holds_up_none() -> None:
    world = lab(5, 3)
    guests(world, 3, 4)
    jobs = come(world, ("y", 4), ("x", 4), ("y", 1), ("x", 1))
    assert jobs[0] in world.state.cluster.reserved
    assert states(world, jobs) == [WAITS, WAITS, STARTS, WAITS]


@pytest.mark.parametrize(("cap", "last"), [(0, WAITS), (3, STARTS)])
def test_a_job_that_its_users_cap_keeps_from_then_on_holds_up_none(cap: int, last: S) -> None:
    """Two devices are free, so no job of three starts; then one of one does."""
    world = lab(8, 6, cap=cap)
    guests(world, 6)
    jobs = come(world, ("x", 3), ("y", 1), ("z", 3), ("z", 1))
    assert states(world, jobs)[:3] == [WAITS, STARTS, WAITS]
    assert states(world, jobs)[3] is last


def test_a_job_beyond_its_tenants_guarantee_holds_up_borrowers_behind_it() -> None:
    world = lab(2, 4)
    (own,) = come(world, ("z", 2))
    world.runs(own)
    guests(world, 4)
    jobs = come(world, ("x", 3), ("x", 1), ("y", 1))
    assert states(world, jobs) == [WAITS, WAITS, STARTS]
