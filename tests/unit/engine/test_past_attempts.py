"""What is told of an attempt that is over, or never was, changes nothing."""

import pytest

from allotment.engine.apply import apply
from allotment.engine.records import AttemptRecord, Shrink
from allotment.model import events as e
from allotment.model.errors import InvariantViolated
from allotment.model.ids import SYSTEM, AttemptNo, NodeId, Seq
from allotment.model.ledger import GUARANTEED, Slot
from allotment.model.quantity import Millis
from tests.support.builders import NOW, a_config, a_job, a_tenant
from tests.support.world import World


@pytest.mark.parametrize(("ended", "attempt"), [(False, 2), (True, 1)])
def test_an_event_of_no_present_attempt_is_refused(ended: bool, attempt: int) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job().retry(1))
    world.cycle()
    world.runs(job)
    if ended:
        world.ends(job, 1)
    event = e.AttemptPromoted(job, AttemptNo(attempt))
    record = e.Record(Seq(world.state.seq + 1), world.now, SYSTEM, event)
    with pytest.raises(InvariantViolated, match=f"for a past attempt of job {job}"):
        apply(world.state, record)


def test_tasks_beyond_those_that_stay_are_surplus() -> None:
    attempt = AttemptRecord(AttemptNo(1), (Slot(NodeId(0)),) * 4, GUARANTEED, NOW)
    assert (attempt.staying, [attempt.is_surplus(index) for index in (0, 3)]) == (
        4, [False, False],
    )  # fmt: skip
    attempt.shrink = Shrink(2, NOW, "TERM", Millis(0))
    assert (attempt.staying, [attempt.is_surplus(index) for index in range(4)]) == (
        2, [False, False, True, True],
    )  # fmt: skip
