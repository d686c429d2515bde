"""Slices that are `auto`: how long turns are by what it cost to suspend a gang."""

import pytest
from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import HOUR, SECOND, Millis
from allotment.model.suspension import Grade, Suspension
from allotment.model.tenancy import Tenant
from tests.support.builders import a_config
from tests.unit.engine.test_suspending import answer
from tests.unit.policies.test_in_slices import SLICE, SlicedWorld, one, us


def auto(tenant: Tenant, *, by_cost: bool = True) -> Tenant:
    queues = tuple(replace(queue, slices_by_cost=by_cost) for queue in tenant.queues)
    return replace(tenant, queues=queues)


def two_turns(world: SlicedWorld, took_ms: int) -> tuple[JobId, JobId]:
    """Return two jobs of which the first was suspended within so long, and runs again now."""
    first = world.started(one())
    other = world.submit(one())
    world.later(SLICE)
    world.runs(other)
    world.wait(took_ms)
    answer(world, first, Suspension(1, Grade.OFFLOADED, (0,)))
    if world.is_(first) is S.SUSPENDED:
        world.later(SLICE - took_ms)
    assert (world.is_(first), world.is_(other)) == (S.RUNNING, S.SUSPENDED)
    return first, other


@pytest.mark.parametrize(
    ("took_ms", "turn_ms"),
    [
        (1 * SECOND, SLICE),
        (3 * SECOND, 150 * SECOND),
        (HOUR, 6_000 * SECOND),
    ],
    ids=["cheap", "dear", "not-heard-of-in-time"],
)
def test_a_turn_is_fifty_times_as_long_as_the_suspension_took(
    took_ms: int, turn_ms: int
) -> None:
    world = SlicedWorld(auto(us()))
    first, other = two_turns(world, took_ms)
    world.later(turn_ms - 1)
    assert (world.is_(first), world.is_(other)) == (S.RUNNING, S.SUSPENDED)
    world.later(1)
    assert (world.is_(first), world.is_(other)) == (S.SUSPENDED, S.RUNNING)


def test_slices_that_were_set_are_as_long_as_was_said() -> None:
    world = SlicedWorld(auto(us(), by_cost=False))
    first, other = two_turns(world, 3 * SECOND)
    world.later(SLICE)
    assert (world.is_(first), world.is_(other)) == (S.SUSPENDED, S.RUNNING)


def test_another_configuration_and_a_restart_change_no_turn() -> None:
    world = SlicedWorld(auto(us()))
    first, other = two_turns(world, 3 * SECOND)
    world.do(c.ApplyConfig(a_config(auto(us()), devices=1)))
    world.engine = Engine(State.from_image(world.state.image(), world.state.policies))
    world.later(150 * SECOND - 1)
    assert (world.is_(first), world.is_(other)) == (S.RUNNING, S.SUSPENDED)
    world.later(1)
    assert world.is_(first) is S.SUSPENDED


def test_what_is_measured_of_one_job_lengthens_no_turn_of_others() -> None:
    world = SlicedWorld(auto(us()))
    first, other = two_turns(world, 3 * SECOND)
    world.later(150 * SECOND)
    assert world.is_(other) is S.RUNNING
    assert world.state.cluster.gangs[other].standing.pause_ms == Millis(0)
    world.later(SLICE)
    assert world.is_(first) is S.RUNNING
