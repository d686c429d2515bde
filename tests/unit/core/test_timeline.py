"""The timeline of free devices over time, against a calendar of every single instant."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.memos import MOST, remember
from allotment.core.timeline import FOREVER, Timeline, Want, choose
from allotment.model.amounts import Vector
from allotment.model.quantity import Instant

END = 40
"""After it nothing changes in the calendar."""

KINDS: tuple[str, ...] = ("a", "b")
AMOUNTS: st.SearchStrategy[Vector] = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 4))
WANT = st.tuples(st.integers(1, 4), st.sampled_from([(), ("a",), ("b",), ("b", "a")]))


@st.composite
def calendars(draw: st.DrawFn) -> tuple[Timeline, list[Vector]]:
    """Draw a timeline, and what is free at each instant by itself."""
    free: Vector = {kind: draw(st.integers(0, 4)) for kind in KINDS}
    timeline = Timeline(Instant(0), free)
    slow = [dict(free) for _ in range(END + 60)]
    for _ in range(draw(st.integers(0, 6))):
        start, length = draw(st.integers(0, END)), draw(st.integers(1, 15))
        amounts, more = draw(AMOUNTS), draw(st.booleans())
        if more:
            timeline.take(start, FOREVER, {kind: -amount for kind, amount in amounts.items()})
        else:
            timeline.take(start, start + length, amounts)
        for at in range(start, len(slow) if more else start + length):
            for kind, amount in amounts.items():
                slow[at][kind] += amount if more else -amount
    return timeline, slow


def least(slow: list[Vector], start: int, run: int) -> Vector:
    stretch = slow[start : start + run]
    return {kind: min(free[kind] for free in stretch) for kind in KINDS}


@given(
    both=calendars(),
    wants=st.lists(WANT, min_size=1, max_size=2),
    run=st.integers(1, 12),
    after=st.integers(0, END),
)
def test_the_earliest_stretch_is_that_of_the_calendar(
    both: tuple[Timeline, list[Vector]], wants: list[Want], run: int, after: int
) -> None:
    timeline, slow = both
    found = timeline.earliest(wants, run, after)
    true = next(
        (at for at in range(after, END + 20) if choose(wants, least(slow, at, run))), None
    )
    assert (None if found is None else found[0]) == true
    if found is not None and true is not None:
        assert found[1] == choose(wants, least(slow, true, run))


@given(
    both=calendars(), wants=st.lists(WANT, min_size=1, max_size=2), start=st.integers(0, END)
)
def test_the_longest_run_is_that_of_the_calendar(
    both: tuple[Timeline, list[Vector]], wants: list[Want], start: int
) -> None:
    timeline, slow = both
    longest = timeline.longest(wants, start)
    for run in range(1, 15):
        assert (run <= longest) == bool(choose(wants, least(slow, start, run)))


def test_a_job_that_names_types_gets_all_of_one() -> None:
    assert choose([(3, ("a", "b"))], {"a": 2, "b": 4}) == {"b": 3}
    assert choose([(5, ())], {"a": 2, "b": 4}) == {"a": 2, "b": 3}
    assert choose([(3, ()), (2, ("a",))], {"a": 2, "b": 3}) == {"a": 2, "b": 3}
    assert choose([(3, ("a",))], {"a": 2, "b": 4}) is None


@given(
    both=calendars(),
    wants=st.lists(WANT, min_size=1, max_size=2),
    run=st.integers(1, 12),
    after=st.integers(0, END),
)
def test_quick_answers_are_those_of_trying_every_start(
    both: tuple[Timeline, list[Vector]], wants: list[Want], run: int, after: int
) -> None:
    timeline, _ = both
    slow = timeline.earliest_of_any(wants, run, after)
    assert timeline.earliest(wants, run, after) == slow
    fits = timeline.fits(wants, run, after)
    assert fits == (slow[1] if slow is not None and slow[0] == after else None)


@given(
    steps=st.lists(st.tuples(st.integers(1, 30), st.integers(-3, 3)), max_size=12),
    milli=st.lists(st.integers(0, 5), max_size=2),
    types=st.sampled_from([(), ("a",), ("b",), ("b", "a")]),
    run=st.integers(1, 40),
    after=st.integers(0, END),
)
def test_so_they_are_where_all_devices_are_alike(
    steps: list[tuple[int, int]], milli: list[int], types: tuple[str, ...], run: int, after: int
) -> None:
    timeline = Timeline(Instant(0), {"a": 3})
    for start, amount in steps:
        timeline.take(start, FOREVER, {"a": -amount})
    wants = [(each, types) for each in milli if each]
    slow = timeline.earliest_of_any(wants, run, after)
    assert timeline.earliest(wants, run, after) == slow
    fits = timeline.fits(wants, run, after)
    assert fits == (slow[1] if slow is not None and slow[0] == after else None)


def test_of_a_kind_that_is_not_there_nothing_is_taken() -> None:
    timeline = Timeline(Instant(0), {"a": 2})
    timeline.take(3, 5, {"a": 1, "b": 4})
    assert [timeline.at(Instant(at)) for at in (0, 3, 5)] == [{"a": 2}, {"a": 1}, {"a": 2}]


def test_answers_are_begun_anew_when_there_are_too_many() -> None:
    memo = dict.fromkeys(range(MOST - 1), 0)
    assert remember(memo, -1, 5) == 5
    assert len(memo) == MOST
    assert remember(memo, -2, 6) == 6
    assert memo == {-2: 6}
