"""Whose idle devices others use, where there are several types of them."""

from allotment.service.queries import tenant_views
from tests.support.builders import a_job
from tests.support.cells import a_cell_world

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
