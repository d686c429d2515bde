"""What a rate would be with another number of tasks, and when one is worse than another."""

import pytest

from allotment.model.gains import MOST_RATE, Gauge, is_worse


@pytest.mark.parametrize(
    ("rates", "tasks", "rate"),
    [
        ((), 4, 0),
        (((2, 200),), 2, 200),
        (((2, 200),), 4, 400),
        (((1, 100), (2, 180)), 4, 340),
        (((2, 200), (8, 500)), 4, 300),
        (((1, 100), (2, 180), (8, 240)), 16, 320),
        (((2, 300), (4, 100)), 8, 0),
        (((1, MOST_RATE),), 4096, MOST_RATE),
        (((1, 1), (2, MOST_RATE)), 4096, MOST_RATE),
    ],
)
def test_rates_are_in_proportion_or_on_the_line_through_the_nearest_two(
    rates: tuple[tuple[int, int], ...], tasks: int, rate: int
) -> None:
    assert Gauge(rates=rates).rate_with(tasks) == rate


@pytest.mark.parametrize(
    ("rate", "before", "worse"), [(95, 100, False), (94, 100, True), (0, 0, False)]
)
def test_a_rate_is_worse_only_by_more_than_a_twentieth(
    rate: int, before: int, *, worse: bool
) -> None:
    assert is_worse(rate, before) is worse
