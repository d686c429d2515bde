"""The order that counts anew when somebody came or ended."""

from msgspec.structs import replace

from allotment.core.gang import Standing
from allotment.model.quantity import Instant, Millis
from allotment.policies.ordering.since import LeastSinceChange
from tests.unit.core.books import a_standing

ROUND, APART = 100, 1_000


def had(order: LeastSinceChange, job: Standing, now: int) -> int:
    rank = order.rank(job, Instant(now))
    return rank.key[-1] + rank.slope * now


def test_small_jobs_begin_before_large_ones() -> None:
    order = LeastSinceChange(ROUND)
    assert had(order, a_standing(1, 1), 0) < had(order, a_standing(2, 4), 0)


def test_each_type_puts_off_the_turn_of_a_larger_job() -> None:
    """Half a round on each of three types: four devices come first after 450 ms, not 150."""
    small, large = replace(a_standing(1), served_ms=Millis(300)), a_standing(2, 4)
    assert had(LeastSinceChange(ROUND), large, 0) < had(LeastSinceChange(ROUND), small, 0)
    order = LeastSinceChange(ROUND).on(3)
    assert had(order, small, 0) < had(order, large, 0)


def test_what_was_had_before_counts_no_longer_but_among_equals() -> None:
    order = LeastSinceChange(ROUND, APART)
    jobs = [replace(a_standing(1), served_ms=Millis(900)), a_standing(2), a_standing(3, 2)]
    assert had(order, jobs[0], 0) > had(order, jobs[2], 0)
    assert order.recount(jobs, Instant(0))
    assert had(order, jobs[1], 0) < had(order, jobs[0], 0) < had(order, jobs[2], 0)


def test_it_counts_anew_only_when_somebody_came_or_ended_and_not_too_often() -> None:
    order = LeastSinceChange(ROUND, APART)
    jobs = [a_standing(1), a_standing(2)]
    assert order.recount(jobs, Instant(0))
    assert not order.recount(jobs, Instant(2 * APART))
    assert not order.recount(jobs[:1], Instant(APART - 1))
    assert order.recount(jobs[:1], Instant(APART))


def test_a_job_that_starts_stands_still_and_one_that_runs_goes_back() -> None:
    order = LeastSinceChange(ROUND)
    starts = replace(a_standing(1), since=Instant(10), starting=True)
    runs = replace(starts, starting=False)
    assert order.rank(starts, Instant(10)).slope == 0
    assert had(order, runs, 60) == order.rank(runs, Instant(10)).key[-1] + (
        order.rank(runs, Instant(10)).slope * 60
    )
    assert had(order, starts, 60) < had(order, runs, 60)
