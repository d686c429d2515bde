"""Who began as a borrower becomes its tenant's own, also by cells smaller than a node."""

import pytest

from allotment.core.commit import refusal
from allotment.core.plan import Promote
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from tests.support.audit_cells import flaws
from tests.support.builders import a_job
from tests.support.cells import a_cell_world
from tests.support.world import World
from tests.unit.core.cells.test_host_shares import CORES, LEAVES, cpu_job, ended, owned_at


def borrows(world: World, job: JobId) -> bool:
    return world.job(job).attempts[-1].entitlement is Entitlement.OPPORTUNISTIC


def is_sound(world: World) -> bool:
    cells = world.state.cluster.cells
    assert cells is not None
    return not list(flaws(cells))


@pytest.mark.parametrize("cpus", [0.5, 4, 8])
def test_a_job_without_devices_is_promoted_by_cores(cpus: float) -> None:
    world = a_cell_world(CORES)
    first = world.submit(cpu_job("a", 8))
    world.cycle()
    job = world.submit(a_job().of("a").gpus(0).cpus(cpus))
    world.cycle()
    assert borrows(world, job)
    ended(world, first)
    world.cycle()
    (slot,) = owned_at(world, job)
    assert len(slot.beside) == max(1, round(cpus))
    ended(world, job)
    cells = world.state.cluster.cells
    assert cells is not None
    assert is_sound(world)
    assert not any(cells.spaces[0].held), "all of it was given back"


def test_a_task_is_promoted_by_leaves_beside_those_of_its_device() -> None:
    world = a_cell_world(LEAVES)
    first = world.submit(a_job().of("a").gpus(4).not_preemptible())
    world.cycle()
    job = world.submit(a_job().of("a").gpus(1).cpus(8))
    world.cycle()
    assert borrows(world, job)
    ended(world, first)
    world.cycle()
    (slot,) = owned_at(world, job)
    assert len(slot.beside) == 1


def test_it_is_promoted_only_where_its_tenant_has_cells_enough() -> None:
    world = a_cell_world(CORES)
    first, second = (world.submit(cpu_job("a", 4)) for _ in range(2))
    world.cycle()
    job = world.submit(a_job().of("a").gpus(0).cpus(6))
    world.cycle()
    ended(world, first)
    world.cycle()
    assert borrows(world, job), "4 of 8 cores are in use, and it needs 6"
    ended(world, second)
    world.cycle()
    owned_at(world, job)


def test_only_as_many_are_promoted_as_there_are_cells() -> None:
    world = a_cell_world(CORES)
    first = world.submit(cpu_job("a", 8))
    world.cycle()
    jobs = [world.submit(a_job().of("a").gpus(0).cpus(cpus)) for cpus in (6, 4, 2)]
    world.cycle()
    ended(world, first)
    world.cycle()
    assert [borrows(world, each) for each in jobs] == [False, True, False]
    assert is_sound(world)


def test_cells_that_are_reserved_for_others_are_left_to_them() -> None:
    """It runs on the only machine that `c` can have whole: cells lie on the other then."""
    text = LEAVES.replace("2 x dgx", "3 x dgx").replace(
        "c: {cells: {dgx-v100-node: 1}}", "c: {cells: {dgx-v100-node: 2}}"
    )
    world = a_cell_world(text)
    first = world.submit(a_job().of("a").gpus(4).not_preemptible())
    others = world.submit(a_job().of("b").gpus(4).not_preemptible())
    world.cycle()
    job = world.submit(a_job().of("a").gpus(1).cpus(8))
    world.cycle()
    home = {slot.node for each in (first, others) for slot in world.job(each).attempts[0].slots}
    assert not {slot.node for slot in world.job(job).attempts[0].slots} & home
    ended(world, first)
    world.cycle()
    assert borrows(world, job), "the other two machines are guaranteed to another as a whole"
    assert is_sound(world)


def test_a_gang_is_promoted_as_a_whole() -> None:
    world = a_cell_world(LEAVES)
    first = world.submit(a_job().of("b").gpus(4).not_preemptible())
    world.cycle()
    job = world.submit(a_job().of("b").gpus(1).cpus(8).tasks(2))
    world.cycle()
    assert borrows(world, job)
    ended(world, first)
    world.cycle()
    slots = owned_at(world, job)
    beside = [leaf for slot in slots for leaf in slot.beside]
    assert len(set(beside)) == len(beside) == 2
    assert not set(beside) & {device for slot in slots for device in slot.devices}


def test_leaves_it_had_before_are_not_in_its_way() -> None:
    """Demoted, and promoted again, by whichever leaves are left then."""
    world = a_cell_world(CORES.replace("a: {cells", "a: {preempt: demote, cells"))
    job = world.submit(a_job().of("a").gpus(0).cpus(4))
    world.cycle()
    assert owned_at(world, job)[0].beside == (0, 1, 2, 3)
    urgent = world.submit(cpu_job("a", 8).priority(500))
    world.cycle()
    assert borrows(world, job)
    owned_at(world, urgent)
    ended(world, urgent)
    last = world.submit(cpu_job("a", 4).priority(500))
    world.cycle()
    owned_at(world, last)
    world.submit(a_job().of("d").gpus(0))  # Something happens: they are looked at again.
    world.cycle()
    owned_at(world, job)


def test_the_committer_looks_at_the_leaves_that_are_named() -> None:
    world = a_cell_world(CORES)
    first = world.submit(cpu_job("a", 8))
    world.cycle()
    job = world.submit(a_job().of("a").gpus(0).cpus(2))
    world.cycle()
    ended(world, first)
    owner = world.submit(cpu_job("b", 4))
    cluster = world.state.cluster

    def said(*beside: tuple[int, ...]) -> str:
        return refusal(cluster, Promote(job, ("core",), beside), world.now)

    assert said((0, 1)) == ""
    assert (
        said((0,))
        == said()
        == "small cells cover a host beyond its leaves' share only leaf by leaf"
    )
    assert said((0, 1), (2,)) == "not one choice of leaves for each task"
    world.cycle()
    assert world.job(job).attempts[-1].slots[0].beside == (0, 1)
    taken = owned_at(world, owner)[0].beside
    assert not set(taken) & {0, 1}
