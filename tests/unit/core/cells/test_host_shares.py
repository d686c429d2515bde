"""Cells smaller than a node serve what tasks need of the host, leaf by leaf."""

import pytest

from allotment.core.cells.rights import objection
from allotment.core.request import shape_of
from allotment.model.errors import Rejected
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import GIB
from tests.support.audit_cells import flaws
from tests.support.builders import JobBuilder, a_job
from tests.support.cells import a_cell_world
from tests.support.world import World

CORES = """\
hardware: ["1 x cpu-32 named c", "1 x 4xT4 with 16 cpus and 64GiB named g"]
tenants:
  a: {cells: {core: 8}}
  b: {cells: {core: 24}}
  g: {cells: {4xT4-node: 1}}
  d: {}
"""
LEAVES = """\
hardware: ["2 x dgx-v100 named v"]
tenants:
  a: {cells: {V100: 4}}
  b: {cells: {dgx-v100-socket: 1}}
  c: {cells: {dgx-v100-node: 1}}
"""
"""5 CPUs and 64 GiB go with each device."""


def cpu_job(tenant: str, cpus: float, memory: int = GIB) -> JobBuilder:
    return a_job().of(tenant).gpus(0).cpus(cpus).memory(memory).not_preemptible()


def ended(world: World, job: JobId) -> None:
    world.runs(job)
    world.ends(job)


def owned_at(world: World, job: JobId) -> list[Slot]:
    """Return where a job runs that has a guaranteed place, with sound books."""
    attempt = world.job(job).attempts[-1]
    assert attempt.entitlement is Entitlement.GUARANTEED
    cells = world.state.cluster.cells
    assert cells is not None
    assert not list(flaws(cells))
    return list(attempt.slots)


@pytest.mark.parametrize("cpus", [0.5, 1, 2, 8])
def test_cores_serve_jobs_without_devices(cpus: float) -> None:
    world = a_cell_world(CORES)
    job = world.submit(cpu_job("a", cpus))
    world.cycle()
    (slot,) = owned_at(world, job)
    assert world.state.cluster.nodes[slot.node].name.startswith("c")
    assert slot.beside == tuple(range(max(1, round(cpus))))


def test_cores_are_used_up_by_what_is_larger_of_cpus_and_memory() -> None:
    world = a_cell_world(CORES)
    jobs = [world.submit(cpu_job("a", 1, 12 * GIB)) for _ in range(3)]
    world.cycle()
    assert [slot.beside for job in jobs[:2] for slot in owned_at(world, job)] == [
        (0, 1, 2),
        (3, 4, 5),
    ]
    assert not world.job(jobs[2]).attempts
    ended(world, jobs[0])
    world.cycle()
    assert owned_at(world, jobs[2])[0].beside == (0, 1, 2)


def test_a_tenant_that_owns_too_few_cores_is_refused() -> None:
    world = a_cell_world(CORES)
    with pytest.raises(Rejected):
        world.submit(cpu_job("a", 9))


def test_a_borrower_on_cores_makes_way_for_their_owner() -> None:
    world = a_cell_world(CORES)
    guest = world.submit(a_job().of("d").gpus(0).cpus(30))
    world.cycle()
    owner = world.submit(cpu_job("b", 24))
    world.cycle()
    ended(world, guest)
    world.cycle()
    assert len(owned_at(world, owner)[0].beside) == 24


def test_cores_of_two_tenants_lie_side_by_side_and_are_given_back() -> None:
    world = a_cell_world(CORES)
    b, a = world.submit(cpu_job("b", 24)), world.submit(cpu_job("a", 8))
    world.cycle()
    taken = {leaf for job in (a, b) for slot in owned_at(world, job) for leaf in slot.beside}
    assert len(taken) == 32
    for job in (a, b):
        ended(world, job)
    cells = world.state.cluster.cells
    assert cells is not None
    assert not any(cells.spaces[0].held)
    assert not list(flaws(cells))


@pytest.mark.parametrize("tenant", ["a", "b", "c"])
@pytest.mark.parametrize("cpus", [1, 5, 8, 20])
def test_a_job_without_devices_has_its_part_of_the_host_by_cells_of_devices(
    tenant: str, cpus: float
) -> None:
    world = a_cell_world(LEAVES)
    job = world.submit(cpu_job(tenant, cpus))
    world.cycle()
    (slot,) = owned_at(world, job)
    assert len(slot.beside) == (0 if tenant == "c" else -(-cpus // 5))


def test_a_task_with_more_of_the_host_than_its_device_has_takes_leaves_beside() -> None:
    world = a_cell_world(LEAVES)
    job = world.submit(a_job().of("a").gpus(1).cpus(8).not_preemptible())
    world.cycle()
    (slot,) = owned_at(world, job)
    assert (slot.devices, slot.beside) == ((0,), (1,))
    more = world.submit(a_job().of("a").gpus(2).not_preemptible())
    third = world.submit(a_job().of("a").gpus(1).not_preemptible())
    world.cycle()
    assert owned_at(world, more)[0].devices == (2, 3)
    assert not world.job(third).attempts, "all four are in use: one by its host alone"


def test_the_committer_asks_for_as_many_leaves_as_the_host_share_needs() -> None:
    world = a_cell_world(LEAVES)
    cells = world.state.cluster.cells
    assert cells is not None
    shape = shape_of(a_job().of("a").gpus(1).cpus(8).spec())
    (request,) = shape.requests
    node = cells.chains[0].nodes[0]

    def said(*beside: int, device: int = 0) -> str:
        slots = (Slot(node, (device,), 1000, beside),)
        return objection(cells, "a", "", slots, (request.need,), ("V100",))

    assert said(1) == ""
    by_leaf = "small cells cover a host beyond its leaves' share only leaf by leaf"
    assert said() == by_leaf
    assert said(0) == by_leaf, "it sits there"
    assert said(99) == by_leaf, "no such leaf"
    slots = (Slot(node, (0,), 1000, (1,)),)
    cells.take("a", "", slots, (request.need,), ("V100",))
    assert said(3, device=1) == "leaves of node 0 are in use"
    assert said(1, device=3) == "leaves of node 0 are in use"


MIXED = """\
hardware: ["1 x mi100-8 named m", "1 x cpu-32 named c"]
tenants:
  nlp: {cells: {core: 8, mi100-8-node: 1}}
  guest: {}
"""


def test_machines_without_devices_are_taken_first() -> None:
    world = a_cell_world(MIXED)
    jobs = [world.submit(cpu_job("nlp", 8)) for _ in range(2)]
    gpus = world.submit(a_job().of("nlp").gpus(4).types("MI100").not_preemptible())
    world.cycle()
    names = [world.state.cluster.nodes[owned_at(world, job)[0].node].name for job in jobs]
    assert [name[0] for name in names] == ["c", "m"]
    owned_at(world, gpus)


def test_borrowers_without_devices_go_to_machines_without_any() -> None:
    world = a_cell_world(MIXED)
    job = world.submit(a_job().of("guest").gpus(0).cpus(2))
    world.cycle()
    slot = world.job(job).attempts[-1].slots[0]
    assert world.state.cluster.nodes[slot.node].name.startswith("c")
