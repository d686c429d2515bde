"""Running gangs in order, against sorting everything at that instant."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.rank import Key, Rank, moving
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.policies.rescheduling.running import Running
from tests.unit.core.books import Given, a_gang, a_standing

RANKS = st.builds(
    moving,
    st.tuples(st.integers(0, 1)),
    st.integers(-20, 20),
    st.integers(-3, 3),
    st.integers(1, 10).map(Instant),
)
"""Slopes that fall, stand still and rise; few values, so that there are ties."""


def everybody(ranks: dict[int, Rank], now: int) -> list[Key]:
    """Sort all jobs as of now."""
    keys: list[Key] = []
    for job, rank in ranks.items():
        *lead, value = rank.key
        keys.append(((*lead, value + rank.slope * now), JobId(job)))
    return sorted(keys)


def running(ranks: dict[int, Rank]) -> Running:
    line = Running(Given(ranks))
    for job in ranks:
        line.add(a_gang(a_standing(job)), Instant(1))
    return line


def all_ranks(ranks: list[Rank]) -> dict[int, Rank]:
    return dict(enumerate(ranks, 1))


@given(
    ranks=st.lists(RANKS, max_size=20).map(all_ranks),
    now=st.integers(10, 40).map(Instant),
    gone=st.sets(st.integers(1, 20), max_size=8),
    after=st.tuples(st.tuples(st.integers(0, 1), st.integers(-80, 80)), st.integers(0, 21)),
)
def test_its_order_is_that_of_sorting_everybody(
    ranks: dict[int, Rank], now: Instant, gone: set[int], after: tuple[tuple[int, ...], int]
) -> None:
    line = running(ranks)
    for job in gone & ranks.keys():
        line.remove(JobId(job))
        del ranks[job]
    slow = everybody(ranks, now)
    place = (after[0], JobId(after[1]))
    assert line.worst(now) == (slow[-1] if slow else None)
    assert list(line.worst_first(place, now)) == [
        job for key, job in reversed(slow) if (key, job) > place
    ]
    assert line.best_first(now) == [job for _, job in slow]
    assert [line.key(job, now) for _, job in slow] == slow
    assert line.rising == any(rank.slope > 0 for rank in ranks.values())


def test_a_rank_in_whole_numbers_moves_with_the_clock() -> None:
    line = running({1: moving((), 100, -1, Instant(10)), 2: Rank((80,))})
    assert line.key(JobId(1), Instant(10)) == ((100,), 1)
    assert line.best_first(Instant(29)) == [2, 1]
    assert line.best_first(Instant(30)) == [1, 2]  # Level: the older job.
    assert line.best_first(Instant(31)) == [1, 2]


def test_a_rank_that_a_gang_has_is_kept() -> None:
    ordering = Given({1: Rank((5,))})
    line, gang = Running(ordering), a_gang(a_standing(1))
    line.add(gang, Instant(1))
    line.remove(gang.id)
    ordering.ranks[1] = Rank((9,))
    line.add(gang, Instant(2))
    assert line.key(gang.id, Instant(2)) == ((5,), 1)
    line.remove(gang.id)
    gang.rank = None
    line.add(gang, Instant(3))
    assert line.key(gang.id, Instant(3)) == ((9,), 1)


def test_it_tells_when_ranks_must_be_asked_anew() -> None:
    line = running({
        1: Rank((1,), until=Instant(30)),
        2: Rank((2,), until=Instant(20)),
        3: Rank((3,)),
        4: Rank((4,), until=Instant(20)),
    })  # fmt: skip
    assert line.next_change() == 20
    assert line.due(Instant(19)) == []
    line.remove(JobId(4))
    assert line.due(Instant(20)) == [2]
    assert line.next_change() == 30
    assert line.due(Instant(99)) == [1]
    assert line.next_change() is None


def test_nobody_runs() -> None:
    line = running({})
    assert line.worst(Instant(1)) is None
    assert list(line.worst_first(((), JobId(0)), Instant(1))) == []
    assert not line.rising
