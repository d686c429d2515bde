"""Which trials are stopped at a rung: the rule by itself."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.ids import JobId
from allotment.model.sweeps import Goal, Halving, Sweep
from allotment.sweeps.halving import Verdict, crossed, losers

RULE = Sweep((), metric="loss", halving=Halving((10, 30), eta=3))
Values = dict[JobId, list[float | None]]


def came(*values: float | None) -> Values:
    """Return the first rung as the trials 1, 2, 3 … came to it."""
    return {JobId(at): [value] for at, value in enumerate(values, 1)}


def out(
    reached: Values, newcomer: int, running: set[int] | None = None, rule: Sweep = RULE
) -> list[int]:
    live = {JobId(job) for job in (running if running is not None else reached)}
    return [
        verdict.job for verdict in losers(rule, reached, JobId(newcomer), live.__contains__)
    ]


def test_nobody_is_judged_before_enough_have_come() -> None:
    assert out(came(1.0), 1) == []
    assert out(came(1.0, 9.0), 2) == []


def test_the_first_are_judged_together() -> None:
    assert out(came(5.0, 1.0, 9.0), 3) == [1, 3]


def test_a_later_one_goes_on_only_among_the_best() -> None:
    assert out(came(5.0, 1.0, 9.0, 0.5), 4) == []
    assert out(came(5.0, 1.0, 9.0, 2.0), 4) == [4]
    six = came(5.0, 1.0, 9.0, 2.0, 8.0, 1.5)
    assert losers(RULE, six, JobId(6), set(six).__contains__) == []


def test_a_verdict_says_the_place() -> None:
    four = came(5.0, 1.0, 9.0, 2.0)
    assert losers(RULE, four, JobId(4), set(four).__contains__) == [Verdict(JobId(4), 0, 2, 4)]


def test_those_that_ended_or_went_on_are_compared_with_and_not_judged() -> None:
    reached = came(5.0, 1.0, 9.0)
    assert out(reached, 3, running={2, 3}) == [3]
    reached[JobId(1)].append(4.0)
    assert out(reached, 3) == [3]


def test_no_number_is_the_worst_and_stops_at_once() -> None:
    assert out(came(None), 1) == [1]
    assert out(came(None, None, 3.0), 3) == [1, 2]
    assert out(came(None, None, None), 3) == [1, 2, 3]


def test_more_may_be_better() -> None:
    rule = Sweep((), metric="accuracy", goal=Goal.MAXIMIZE, halving=RULE.halving)
    assert out(came(5.0, 1.0, 9.0), 3, rule=rule) == [1, 2]
    assert out(came(None, 1.0, -9.0), 3, rule=rule) == [3, 1]


def test_of_equal_values_the_earlier_job_goes_on() -> None:
    assert out(came(1.0, 1.0, 1.0), 3) == [2, 3]


def test_without_a_rule_nobody_is_stopped() -> None:
    assert losers(Sweep(()), came(1.0, 2.0, 3.0), JobId(3), {1, 2, 3}.__contains__) == []


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=40))
def test_the_best_that_ever_came_always_goes_on(values: list[float]) -> None:
    reached: Values = {}
    running: set[JobId] = set()
    for at, value in enumerate(values, 1):
        job = JobId(at)
        running.add(job)
        reached[job] = [value]
        for verdict in losers(RULE, reached, job, running.__contains__):
            assert verdict.place > max(1, len(reached) // 3)
            running.discard(verdict.job)
    best = min(reached, key=lambda job: (reached[job], job))
    assert best in running
    assert len(running) <= max(2, len(values))


@given(st.lists(st.none() | st.integers(-3, 3).map(float), min_size=3, max_size=12))
def test_a_place_is_that_in_the_sorted_list(values: list[float | None]) -> None:
    reached = came(*values)
    worst = float("inf")
    for rule, sign in ((RULE, 1), (msgspec.structs.replace(RULE, goal=Goal.MAXIMIZE), -1)):
        keys = {
            job: (worst if value is None else sign * value, job)
            for job, (value,) in reached.items()
        }
        ranked = sorted(reached, key=lambda job: keys[job])
        for newcomer in reached:
            for verdict in losers(rule, reached, newcomer, reached.__contains__):
                assert ranked[verdict.place - 1] == verdict.job


def test_a_rung_has_the_first_value_that_is_not_below_it() -> None:
    told = [(31, 0.1), (9, 5.0), (12, 0.5), (10, 0.7)]
    assert crossed((10, 30, 90), 0, told) == [(10, 0.7), (31, 0.1)]
    assert crossed((10, 30, 90), 1, told) == [(31, 0.1)]
    assert crossed((10, 30, 90), 2, told) == []
    assert crossed((10, 30), 0, [(10**18, None)]) == [(10**18, None)] * 2
