"""What the engine does when the committer sends a decision back."""

from collections.abc import Iterator

import pytest

from allotment.core.plan import Decision, Promote
from allotment.model.ids import JobId
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def wrong(*_: object) -> Iterator[Decision]:
    """Plan, always, what nobody may do."""
    yield Promote(JobId(99))


def test_a_wrong_plan_is_tried_once_more_and_then_when_something_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    world.submit(a_job().of("vision"))
    monkeypatch.setattr("allotment.engine.engine.proposals", wrong)
    engine = world.engine
    assert [engine.cycle(world.now) for _ in range(4)] == [True, False, False, False]
    assert engine.refusals == 2
    world.submit(a_job().of("vision"))
    assert [engine.cycle(world.now) for _ in range(3)] == [True, False, False]
    assert engine.refusals == 4
