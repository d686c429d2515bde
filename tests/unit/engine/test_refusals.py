"""What the engine does when the committer sends a decision back."""

from collections.abc import Callable, Iterator

import pytest

from allotment.core.gang import ReservedPlace
from allotment.core.plan import Decision, Evict, Promote
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def wrong(*_: object) -> Iterator[Decision]:
    """Plan, always, what nobody may do."""
    yield Promote(JobId(99))


def foolish(*_: object) -> Iterator[Decision]:
    """Send away, always, somebody who is not there."""
    gone = (JobId(99),)
    yield Evict(ReservedPlace(JobId(1), (), (), Entitlement.GUARANTEED, gone), gone)


@pytest.mark.parametrize("plan", [wrong, foolish])
def test_a_wrong_plan_is_tried_once_more_and_then_when_something_changed(
    plan: Callable[..., Iterator[Decision]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    world.submit(a_job().of("vision"))
    monkeypatch.setattr("allotment.engine.engine.proposals", plan)
    engine = world.engine
    assert [engine.cycle(world.now) for _ in range(4)] == [True, False, False, False]
    assert engine.refusals == 2
    world.submit(a_job().of("vision"))
    assert [engine.cycle(world.now) for _ in range(3)] == [True, False, False]
    assert engine.refusals == 4
