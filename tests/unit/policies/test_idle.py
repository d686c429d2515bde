"""Since when so many devices have been free, against a plain record of all moments."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import Instant
from allotment.policies.rescheduling.idle import Idle

NUMBERS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=30)


@given(steps=NUMBERS, count=st.integers(1, 5))
def test_it_is_known_since_when_never_fewer_were_free(
    steps: list[tuple[int, int]], count: int
) -> None:
    idle, now, since = Idle(), 0, None
    for later, free in steps:
        now += later
        idle.note(free, Instant(now))
        since = None if free < count else now if since is None else since
    assert idle.since(count) == since


def test_it_tells_whether_the_number_is_another() -> None:
    idle = Idle()
    assert not idle.note(0, Instant(1))
    assert idle.note(3, Instant(2))
    assert not idle.note(3, Instant(3))
    assert idle.note(0, Instant(4))
