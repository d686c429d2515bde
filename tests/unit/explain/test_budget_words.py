"""Budgets in words: dates, amounts, and when they are renewed."""

import pytest

from allotment.explain.budgets import renewal, show_gpu_hours, show_utc
from allotment.model.budget import FOREVER, GPU_HOUR, Account, Budget, Every
from allotment.model.quantity import DAY, HOUR, MINUTE, Instant, WallTime


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "the beginning"),
        (1, "1970-01-01 UTC"),
        (DAY, "1970-01-02 UTC"),
        (DAY + HOUR + MINUTE, "1970-01-02 01:01 UTC"),
        (FOREVER, "ever"),
        (FOREVER + 1, "ever"),
    ],
)
def test_a_moment_is_a_date_with_the_time_of_day_where_that_matters(
    at: int, words: str
) -> None:
    assert show_utc(WallTime(at)) == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0"), (GPU_HOUR, "1"), (GPU_HOUR * 3 // 2, "1.5"), (GPU_HOUR * 1999 // 1000, "1.99")],
)
def test_gpu_hours_are_rounded_down_to_the_hundredth(amount: int, words: str) -> None:
    assert show_gpu_hours(amount) == words


@pytest.mark.parametrize(
    ("every", "end", "words"),
    [
        (Every.NEVER, FOREVER, "It is not renewed"),
        (Every.NEVER, 3 * DAY, "It ends on 1970-01-04 UTC"),
        (Every.DAY, FOREVER, "It is renewed on 1970-01-02 UTC"),
    ],
)
def test_a_budget_is_renewed_ends_or_stays_as_it_is(every: Every, end: int, words: str) -> None:
    budget = Budget(every, hard=GPU_HOUR, end=WallTime(end))
    account = Account("vision", budget)
    assert renewal(account, Instant(HOUR)) == words
