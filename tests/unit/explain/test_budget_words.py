"""Budgets in words: dates, amounts, and when they are renewed."""

import pytest

from allotment.explain.budgets import renewal, show_gpu_hours, show_utc, why_used_up
from allotment.model.budget import FOREVER, GPU_HOUR, Account, Budget, Every
from allotment.model.quantity import DAY, HOUR, MINUTE, NOTHING, Instant, WallTime


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


@pytest.mark.parametrize(("end", "until"), [(FOREVER, None), (3 * DAY, 3 * DAY)])
def test_a_used_up_budget_names_its_end_if_it_has_one(end: int, until: int | None) -> None:
    account = Account("vision", Budget(Every.NEVER, hard=GPU_HOUR, end=WallTime(end)))
    assert why_used_up(account, NOTHING, Instant(HOUR)).until == until
