"""What of a host is handed over, from gangs that leave to a reserved place, counts once."""

import pytest

from allotment.model import commands as c
from allotment.model.lifecycle import JobState
from tests.support.builders import a_job
from tests.unit.core.cells.plots import owns
from tests.unit.core.cells.test_making_way import a_world, leaving, start


@pytest.mark.parametrize(
    ("wanted", "left"), [(32, 24), (50, 14)], ids=["less is reserved", "more is reserved"]
)
def test_a_borrower_has_what_neither_those_that_leave_need_nor_the_owner(
    wanted: int, left: int
) -> None:
    """On a host of 64 CPUs, 40 of them held by a gang that leaves."""
    world = a_world(owns("a", node=4), owns("b"))
    for _ in range(3):
        start(world, a_job().of("b").gpus(8).cpus(64))
    holder = start(world, a_job().of("b").gpus(4).cpus(40))
    owner = start(world, a_job().of("a").gpus(2).cpus(wanted))
    assert leaving(world) == {holder}

    more = start(world, a_job().of("b").gpus(1).cpus(left + 1))
    assert world.is_(more) is JobState.QUEUED
    world.do(c.CancelJob(more))
    borrower = start(world, a_job().of("b").gpus(1).cpus(left))
    assert world.is_(borrower) is JobState.RUNNING

    world.ends(holder, 143)
    world.cycle()
    assert world.is_(owner) is JobState.STARTING, "the borrower does not delay it"
    assert leaving(world) == set()
