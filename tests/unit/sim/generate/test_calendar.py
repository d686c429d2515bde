"""The clock that runs fast in busy hours."""

from datetime import UTC, datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as some

from allotment.model.quantity import DAY, HOUR
from allotment.sim.generate.calendar import START_MS, Calendar, weekday, weekly

WEEK = 7 * DAY
weights = some.lists(some.integers(1, 5000), min_size=1, max_size=200)


@given(weights, some.integers(0, 10 * WEEK))
def test_back_and_forth_is_the_same_instant(hours: list[int], at_ms: int):
    calendar = Calendar(hours)
    assert calendar.when(calendar.steady(at_ms)) == at_ms


@given(weights, some.integers(0, 400 * HOUR))
def test_steady_time_is_the_sum_over_hours(hours: list[int], at_ms: int):
    whole, rest = divmod(at_ms, HOUR)
    slow = sum(hours[hour % len(hours)] * HOUR for hour in range(whole))
    assert Calendar(hours).steady(at_ms) == slow + hours[whole % len(hours)] * rest


def test_it_starts_on_a_monday():
    start = datetime.fromtimestamp(START_MS / 1000, UTC)
    assert (start.weekday(), start.hour) == (0, 0)
    for day in range(20_000, 20_010):
        assert weekday(day) == datetime.fromtimestamp(day * DAY / 1000, UTC).weekday()


def test_a_whole_cycle_has_the_rhythm_of_hours_and_days():
    hours, days = [1000] * 12 + [3000] * 12, [1000, 2000, 1000, 1000, 1000, 500, 500]
    busy = [200, 400, 600, 800, 1000, 1200, 1400, 2400]
    calendar = weekly(hours, days, busy, Random(3).getrandbits)

    def passed(day: int, from_hour: int, to_hour: int) -> int:
        starts = [week * WEEK + day * DAY for week in range(8)]
        return sum(
            calendar.steady(start + to_hour * HOUR) - calendar.steady(start + from_hour * HOUR)
            for start in starts
        )

    assert passed(0, 12, 24) == 3 * passed(0, 0, 12)
    assert passed(1, 0, 24) == 2 * passed(0, 0, 24) == 4 * passed(6, 0, 24)
