"""Whose idle devices others use: its own borrowers are none of them."""

from msgspec.structs import replace

from allotment.model.quantity import GIB, Resources
from allotment.service.queries import tenant_views
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

TWO_KINDS = """\
nodes:
  - {names: [n1, n2], cpu: 16, memory: 64GiB, gpu: {type: V100, count: 4}}
  - {name: m1, cpu: 32, memory: 256GiB, gpu: {type: MI100, count: 8}}
cells:
  types:
    v-node: {of: V100, count: 4, node: true}
    mi-node: {of: MI100, count: 8, node: true}
  roots:
    - {type: v-node, nodes: [n1]}
    - {type: v-node, nodes: [n2]}
    - {type: mi-node, nodes: [m1]}
tenants:
  a: {cells: {v-node: 1}}
  b: {cells: {V100: 2}}
  guest: {}
"""


def test_devices_of_one_type_that_nobody_owns_do_not_hide_that_others_are_lent() -> None:
    world = a_cell_world(TWO_KINDS)
    for gpus, lent in ((2, (0, 0)), (3, (3000, 0)), (1, (4000, 0)), (1, (4000, 1000))):
        world.submit(a_job().of("guest").gpus(gpus).types("V100"))
        world.cycle()
        a, b, _ = tenant_views(world.state)
        assert (a.lent.gpu_milli, b.lent.gpu_milli) == lent


def test_in_cells_what_is_its_own_tenants_is_not_lent() -> None:
    world = a_cell_world(TWO_KINDS)
    for gpus, lent in ((4, (0, 0)), (2, (0, 0)), (1, (0, 1000)), (1, (0, 2000))):
        world.submit(a_job().of("a").gpus(gpus).types("V100").opportunistic())
        world.cycle()
        a, b, _ = tenant_views(world.state)
        assert (a.lent.gpu_milli, b.lent.gpu_milli) == lent


def test_of_what_a_job_borrows_its_tenants_own_idle_share_is_not_lent() -> None:
    a, b = (
        replace(tenant, guaranteed=replace(tenant.guaranteed, gpu_memory=memory))
        for tenant, memory in ((a_tenant("a", 4), 160 * GIB), (a_tenant("b", 4), 480 * GIB))
    )
    world = World(a_config(a, b))
    world.submit(a_job().of("a").gpus(3).gpu_memory(80 * GIB))
    world.cycle()
    first, second = tenant_views(world.state)
    assert first.borrowed.gpu_milli == 3000
    assert (first.lent, second.lent) == (Resources(), Resources(gpu_memory=80 * GIB))
