"""When turns are taken."""

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import Instant
from allotment.policies.moving.preferred import ToPreferred
from allotment.policies.rescheduling.taking_turns import TakingTurns
from allotment.policies.turns.at_once import AtOnce
from allotment.policies.turns.rounds import Rounds
from tests.unit.core.books import POLICIES, a_cluster, a_standing, place


@given(length=st.integers(1, 1_000), now=st.integers(0, 10**6).map(Instant))
def test_a_round_begins_at_every_multiple_of_its_length(length: int, now: Instant) -> None:
    begin = Rounds(length).next(now)
    assert begin % length == 0
    assert now <= begin < now + length
    assert Rounds(length).next(begin) == begin


def test_a_round_lasts_longer_than_nothing() -> None:
    with pytest.raises(ValueError, match="a round of 0 ms"):
        Rounds(0)


@given(st.integers(0, 10**6).map(Instant))
def test_at_once_is_always(now: Instant) -> None:
    assert AtOnce().next(now) == now


@pytest.mark.parametrize(("waits", "moving", "due"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_a_turn_is_waited_for_only_by_who_waits_or_may_move(
    waits: int, moving: int, due: int
) -> None:
    taking = partial(TakingTurns, turns=Rounds(60), moving=ToPreferred() if moving else None)
    policies = msgspec.structs.replace(POLICIES, rescheduler=taking)
    cluster = a_cluster("1x4", policies)
    place(cluster, a_standing(1))
    for job in range(waits):
        cluster.pending.add(a_standing(2 + job), Instant(1))
    assert cluster.next_change(Instant(30)) == (60 if due else None)
