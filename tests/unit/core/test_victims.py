"""Who goes first: opportunistic jobs, then borrowers, then who loses least, then the newest."""

import msgspec

from allotment.core.gang import Gang
from allotment.core.preemption.search import borrowers
from allotment.model.commands import CancelJob
from allotment.model.ledger import Entitlement
from allotment.model.quantity import HOUR, Instant
from allotment.policies.victims.least_lost import LeastLost
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World
from tests.unit.core.books import a_gang, a_standing

NOW = Instant(10 * HOUR)
BORROWS = Entitlement.OPPORTUNISTIC


def a_victim(job: int, saved_hours_ago: int = 1, gpus: int = 1, **more: object) -> Gang:
    gang = a_gang(a_standing(job, gpus))
    saved = Instant(NOW - saved_hours_ago * HOUR)
    return msgspec.structs.replace(gang, saved_at=saved, **more)  # pyright: ignore


def in_order(*gangs: Gang) -> list[int]:
    """Sort as the core does: ties go to the newest."""
    return [g.id for g in sorted(gangs, key=lambda g: (LeastLost().key(g, NOW), -g.id))]


def test_opportunistic_jobs_go_before_borrowers_and_these_before_owners() -> None:
    owner = a_victim(1, 0)
    borrower = a_victim(2, 5, entitlement=BORROWS)
    idler = a_victim(3, 9, entitlement=BORROWS, opportunistic=True)
    assert in_order(owner, borrower, idler) == [3, 2, 1]


def test_then_the_less_urgent() -> None:
    urgent = a_victim(1, 0, entitlement=BORROWS, priority=500)
    other = a_victim(2, 9, entitlement=BORROWS, priority=100)
    assert in_order(urgent, other) == [2, 1]


def test_then_who_loses_the_least_work_on_all_its_devices() -> None:
    large = a_victim(1, 1, gpus=8, entitlement=BORROWS)
    small = a_victim(2, 4, gpus=1, entitlement=BORROWS)
    assert in_order(large, small) == [2, 1]


def test_then_the_newest() -> None:
    jobs = [a_victim(job, entitlement=BORROWS) for job in (1, 2, 3)]
    assert in_order(*jobs) == [3, 2, 1]


def test_borrowers_that_leave_or_are_awaited_are_no_candidates_again() -> None:
    world = World(a_config(a_tenant("owner", 2), a_tenant("guest"), devices=4))
    guests = [world.submit(a_job().gpus(1).of("guest")) for _ in range(4)]
    world.cycle()
    for guest in guests:
        world.runs(guest)
    cluster = world.state.cluster

    def candidates() -> list[int]:
        return [each.id for each, _ in borrowers(cluster, world.now) if isinstance(each, Gang)]

    assert candidates() == [4, 3, 2, 1]
    owner = world.submit(a_job().gpus(1).of("owner"))
    world.cycle()
    (leaves,) = cluster.placed.leaving
    others = sorted({*guests} - {leaves}, reverse=True)
    assert candidates() == [leaves, *others]
    world.do(CancelJob(owner))
    assert list(cluster.placed.leaving) == [leaves]
    assert candidates() == [leaves, *others]
