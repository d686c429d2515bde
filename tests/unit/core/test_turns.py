"""When turns are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import Instant
from allotment.policies.turns.at_once import AtOnce
from allotment.policies.turns.rounds import Rounds


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
