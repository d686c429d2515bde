"""What the driver does next to a process, from every state it can be found in."""

import pytest

from allotment.backends.local.driver.steps import State, Step, Wanted, is_reached, next_step
from allotment.backends.local.memory_by_process import Memory, is_gone
from allotment.model.quantity import GIB, MIB


@pytest.mark.parametrize(
    ("state", "away", "back"),
    [
        (State.RUNNING, Step.LOCK, None),
        (State.LOCKED, Step.CHECKPOINT, Step.UNLOCK),
        (State.CHECKPOINTED, None, Step.RESTORE),
        (State.FAILED, None, None),
        (State.CHECKPOINTING, Step.WAIT, Step.WAIT),
        (State.RESTORING, Step.WAIT, Step.WAIT),
    ],
)
def test_each_state_has_a_next_step(state: State, away: Step | None, back: Step | None) -> None:
    assert next_step(state, Wanted.AWAY) is away
    assert next_step(state, Wanted.BACK) is back


def test_nothing_is_left_to_do_only_where_it_is_reached_or_lost() -> None:
    for wanted in Wanted:
        ends = [state for state in State if next_step(state, wanted) is None]
        assert [state for state in ends if not is_reached(state, wanted)] == [State.FAILED]


def test_memory_is_gone_once_the_process_is_not_shown_and_the_sum_has_fallen() -> None:
    base = 480 * MIB
    assert is_gone(7, GIB, base, Memory(base, 80 * GIB, {}))
    assert not is_gone(7, GIB, base, Memory(base + GIB, 80 * GIB, {7: GIB}))
    assert not is_gone(7, GIB, base, Memory(base + GIB, 80 * GIB, {})), "no longer shown only"


def test_what_others_take_meanwhile_does_not_count() -> None:
    base = 480 * MIB
    assert is_gone(7, GIB, base, Memory(base + 3 * GIB, 80 * GIB, {8: 3 * GIB}))
