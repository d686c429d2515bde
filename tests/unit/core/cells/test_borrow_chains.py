"""A borrower that takes any type keeps away from owners over all chains."""

from tests.support.builders import a_job
from tests.support.cells import a_cell_world

CLUSTER = """\
hardware: [1 x 4xV100, 1 x 4xT4, 1 x 4xP100]
tenants:
  a: {cells: {4xV100-node: 1}}
  b: {cells: {4xT4-node: 1}}
  guests:
"""


def test_a_borrower_goes_where_no_owner_is_and_then_to_the_fullest() -> None:
    world = a_cell_world(CLUSTER)
    owner = world.submit(a_job().of("a").gpus(1))
    first = world.submit(a_job().of("guests").types("P100").gpus(1))
    second = world.submit(a_job().of("guests").gpus(1))
    world.cycle()
    nodes = [world.job(job).attempts[-1].slots[0].node for job in (owner, first, second)]
    # Beside the owner there were three, too; and an empty node would be free as a whole.
    assert nodes[2] == nodes[1] != nodes[0]
