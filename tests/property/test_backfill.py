"""Backfilling, played out: who comes later in a queue delays nobody it must not delay.

Run times are kept to the moment, and machines are such that what is free in sum is free
together. Then, in EASY order, the first in line starts when it would if nobody waited behind
it; in conservative order, everybody does.
"""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import GIB, Instant, Resources
from allotment.model.tenancy import Config, QueueOrder
from tests.support.builders import NOW, JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.cells import cell_config
from tests.support.world import Unaudited, World

SECOND = 1_000
ORDERS = [QueueOrder.EASY, QueueOrder.CONSERVATIVE]


def share_of_a_machine(order: QueueOrder) -> Config:
    """A part of one machine, bounded in every way; of the other parts of it there is enough."""
    share = Resources(6_000, 40_000, 300 * GIB, 700 * GIB, 400 * GIB)
    tenant = msgspec.structs.replace(
        a_tenant("vision", order=order, borrow=False), guaranteed=share
    )
    return a_config(tenant, a_tenant("nlp"))


def whole_machine(order: QueueOrder) -> Config:
    """All of one machine, and more than there is."""
    tenant = a_tenant("vision", order=order)
    plenty = Resources(*([1 << 60] * 5))
    return a_config(msgspec.structs.replace(tenant, guaranteed=plenty))


def two_types(order: QueueOrder) -> Config:
    """A machine of each of two types of devices."""
    config = a_config(a_tenant("vision", 16, order=order, borrow=False))
    nodes = tuple(a_node(at, 8, kind) for at, kind in enumerate(("A100", "H100")))
    return msgspec.structs.replace(config, nodes=nodes)


def a_cell(order: QueueOrder) -> Config:
    """One machine out of four, in cells: others lie idle."""
    return cell_config(f"""\
hardware: ["4 x 8xV100 in racks of 2"]
tenants:
  vision: {{cells: {{8xV100-node: 1}}, borrow: false, queues: {{default: {{order: {order}}}}}}}
  nlp: {{cells: {{8xV100-node: 2}}}}
""")


def a_job_with(gpus: int, cpus: int, memory: int, disk: int) -> JobBuilder:
    return a_job().gpus(gpus).cpus(cpus).memory(memory * GIB).disk(disk * GIB)


OF_ALL_PARTS = st.builds(
    a_job_with,
    st.integers(0, 6),
    st.sampled_from([1, 10, 25, 40]),
    st.sampled_from([1, 100, 200, 300]),
    st.sampled_from([0, 0, 300, 700]),
)


OF_TYPES = st.builds(
    lambda gpus, kind: a_job().gpus(gpus).types(kind),
    st.integers(1, 8),
    st.sampled_from(["A100", "H100"]),
)
OF_DEVICES = st.builds(lambda gpus: a_job().gpus(gpus).cpus(0), st.integers(1, 8))
WORLDS = [
    (share_of_a_machine, OF_ALL_PARTS),
    (whole_machine, OF_ALL_PARTS),
    (two_types, OF_TYPES),
    (a_cell, OF_DEVICES),
]


def play(world: World, jobs: Sequence[tuple[JobBuilder, int]]) -> list[int]:
    """Return after how long each of those starts that come together, in this order."""
    ids = [world.submit(job.within(run_ms=run * SECOND)) for job, run in jobs]
    left = {job: run * SECOND for job, (_, run) in zip(ids, jobs, strict=True)}
    begun, ends = dict[JobId, int](), dict[JobId, int]()
    while len(begun) < len(jobs):
        world.cycle()
        for job in ids:
            if world.is_(job) is S.STARTING:
                world.runs(job)
                begun[job], ends[job] = world.now - NOW, world.now + left[job]
        world.now = Instant(min(ends.values()))
        for job in [job for job, at in ends.items() if at == world.now]:
            del ends[job]
            world.ends(job)
    return [begun[job] for job in ids]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("config", "job"), WORLDS)
@given(data=st.data())
def test_a_job_that_comes_later_delays_nobody_it_must_not(
    config: Callable[[QueueOrder], Config],
    job: st.SearchStrategy[JobBuilder],
    order: QueueOrder,
    data: st.DataObject,
) -> None:
    jobs = data.draw(
        st.lists(st.tuples(job, st.integers(1, 9)), min_size=3, max_size=9), label="jobs"
    )
    begun = play(World(config(order)), jobs)
    first = next((at for at, when in enumerate(begun) if when), len(jobs))
    kept = [first] if order is QueueOrder.EASY else range(first, len(jobs))
    for last in kept:
        alone = play(Unaudited(config(order)), jobs[: last + 1])
        assert begun[: last + 1] == alone
