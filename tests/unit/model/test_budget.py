"""Accounts of budgets: exact sums, periods of UTC, and when they close and open."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.budget import FOREVER, GPU_HOUR, Account, Budget, Every
from allotment.model.quantity import DAY, HOUR, SECOND, Instant, WallTime


def at(text: str) -> Instant:
    return Instant(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND)


@pytest.mark.parametrize(
    ("every", "now", "begin", "end"),
    [
        (Every.DAY, "2026-11-21T16:40", "2026-11-21", "2026-11-22"),
        (Every.WEEK, "2026-11-21T16:40", "2026-11-16", "2026-11-23"),
        (Every.WEEK, "2026-11-16", "2026-11-16", "2026-11-23"),
        (Every.MONTH, "2026-11-30T23:59", "2026-11-01", "2026-12-01"),
        (Every.MONTH, "2026-12-01", "2026-12-01", "2027-01-01"),
        (Every.MONTH, "2028-02-29", "2028-02-01", "2028-03-01"),
    ],
)
def test_periods_are_those_of_the_calendar(
    every: Every, now: str, begin: str, end: str
) -> None:
    assert Budget(every).period(WallTime(at(now))) == (at(begin), at(end))


@given(st.sampled_from([Every.DAY, Every.WEEK, Every.MONTH]), st.integers(DAY, 1 << 42))
def test_periods_follow_each_other(every: Every, now: int) -> None:
    budget = Budget(every)
    begin, end = budget.period(WallTime(now))
    assert begin <= now < end
    assert budget.period(WallTime(begin)) == budget.period(WallTime(end - 1)) == (begin, end)
    assert budget.period(end)[0] == end


def test_what_is_held_adds_up_and_begins_anew() -> None:
    account = Account("t", Budget(Every.DAY, hard=3 * GPU_HOUR), at=at("2026-11-21T20:00"))
    account.held = 2000
    assert account.used(at("2026-11-21T21:00")) == 2 * GPU_HOUR
    assert not account.closed(at("2026-11-21T21:00"))
    assert account.next_change(at("2026-11-21T21:00")) == at("2026-11-21T21:30")
    assert account.closed(at("2026-11-21T21:30"))
    assert account.next_change(at("2026-11-21T22:00")) == at("2026-11-22")
    assert not account.closed(at("2026-11-22"))
    assert account.used(at("2026-11-22T00:30")) == GPU_HOUR
    account.settle(at("2026-11-22T00:30"))
    account.held = 0
    assert account.used(at("2026-11-22T23:00")) == GPU_HOUR
    assert account.used(at("2026-11-24T23:00")) == 0
    assert account.next_change(at("2026-11-22T01:00")) is None


def test_one_stretch_counts_only_what_lies_in_it() -> None:
    begin, end = at("2026-11-21"), at("2026-11-23")
    budget = Budget(Every.NEVER, hard=GPU_HOUR, begin=WallTime(begin), end=WallTime(end))
    account = Account("t", budget, at=Instant(begin - HOUR), held=1000)
    assert account.next_change(Instant(begin - HOUR)) == begin
    assert account.used(Instant(begin + HOUR // 2)) == GPU_HOUR // 2
    assert account.next_change(begin) == begin + HOUR
    assert account.closed(Instant(begin + HOUR))
    assert account.next_change(Instant(begin + HOUR)) == end
    assert not account.closed(end)
    assert account.next_change(end) is None
    assert account.used(Instant(end + DAY)) == 48 * GPU_HOUR


def test_without_an_end_it_never_opens() -> None:
    account = Account("t", Budget(Every.NEVER, hard=1), held=1)
    assert account.budget.end == FOREVER
    assert account.closed(Instant(5))
    assert account.next_change(Instant(5)) is None


def test_the_soft_amount_only_warns() -> None:
    account = Account("t", Budget(Every.DAY, soft=1000), at=Instant(0), held=1)
    assert (account.warns(Instant(999)), account.warns(Instant(1000))) == (False, True)
    assert not account.closed(Instant(DAY - 1))
    assert account.next_change(Instant(0)) is None


@given(
    st.sampled_from(list(Every)),
    st.lists(st.tuples(st.integers(0, 3 * DAY), st.integers(0, 8000)), max_size=12),
)
def test_settling_between_changes_nothing(every: Every, steps: list[tuple[int, int]]) -> None:
    """As often as it is settled: integers, so to the last one."""
    start = at("2026-01-30")
    lazy = Account("t", Budget(every, hard=GPU_HOUR), at=start)
    eager = Account("t", Budget(every, hard=GPU_HOUR), at=start)
    now = int(start)
    for length, held in steps:
        for part in range(1, 4):
            eager.settle(Instant(now + length * part // 3))
        now += length
        lazy.settle(Instant(now))
        lazy.held = eager.held = held
        assert lazy == eager


@given(st.integers(0, 5000), st.integers(1, 9000), st.integers(1, 10**9))
def test_it_closes_at_the_first_instant_at_which_all_is_used(
    spent: int, held: int, hard: int
) -> None:
    now = at("2026-11-01")
    account = Account("t", Budget(Every.MONTH, hard=hard), spent=spent, at=now, held=held)
    then = account.next_change(now)
    if account.closed(now):
        assert then == at("2026-12-01")
    else:
        assert then is not None
        assert account.closed(then)
        assert not account.closed(Instant(then - 1))
