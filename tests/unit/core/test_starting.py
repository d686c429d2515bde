"""A gang that starts has its place, but no service yet: its rank waits for it."""

import pytest
from msgspec.structs import replace

from allotment.core.gang import Standing
from allotment.core.ports import Ordering
from allotment.model.ids import JobId
from allotment.model.quantity import HOUR, SECOND, Instant, Millis
from allotment.policies.estimates.known import Known
from allotment.policies.ordering.finish_time_fair import FinishTimeFair
from allotment.policies.ordering.las import LeastAttained, LeastAttainedInSteps
from allotment.policies.ordering.ran import ran_ms
from allotment.policies.ordering.remaining import LeastRemaining
from allotment.policies.rescheduling.taking_turns import TakingTurns
from tests.unit.core.books import a_cluster, a_standing, place


def told(_: JobId) -> int:
    return 100 * SECOND


ORDERS = [
    LeastRemaining(Known(told)),
    LeastRemaining(Known(told), by_service=True),
    LeastAttained(HOUR),
    LeastAttainedInSteps((1, 10 * SECOND)),
]


def starting(served_ms: int = 0) -> Standing:
    return replace(
        a_standing(1, 2), served_ms=Millis(served_ms), since=Instant(1_000), starting=True
    )


def test_it_is_not_served_before_it_runs() -> None:
    job = starting(served_ms=7)
    assert not job.runs
    assert ran_ms(job, Instant(9_000)) == 7
    runs = replace(job, starting=False)
    assert runs.runs
    assert ran_ms(runs, Instant(9_000)) == 8_007


@pytest.mark.parametrize("order", ORDERS)
def test_its_rank_neither_moves_nor_runs_out(order: Ordering) -> None:
    rank = order.rank(starting(), Instant(1_000))
    assert rank.slope == 0
    assert rank.until is None
    assert order.rank(starting(), Instant(500_000)) == rank


def test_its_finish_time_gets_worse_as_that_of_those_who_wait() -> None:
    order = FinishTimeFair(Known(told), 60 * SECOND)
    job = starting()
    waits = replace(job, since=None, starting=False)
    for now in (1_000, 60_000, 119_000):
        assert order.rank(job, Instant(now)) == order.rank(waits, Instant(now))


def test_in_the_books_it_stands_anew_when_it_runs() -> None:
    policies = a_cluster("1x2").policies
    ordering = LeastAttained(HOUR)
    cluster = a_cluster("1x2", replace(policies, ordering=ordering))
    gang = place(cluster, starting())
    assert isinstance(cluster.rescheduler, TakingTurns)
    running = cluster.rescheduler.order
    assert not running.rising
    before = cluster.queues.tenants["t"].total()
    runs = replace(gang.standing, since=Instant(5_000), starting=False)
    cluster.stand_anew(gang, runs)
    assert running.rising
    assert running.key(gang.id, Instant(6_000)) == ((2 * 1_000_000,), gang.id)
    assert cluster.queues.tenants["t"].total() == before


def test_what_runs_longer_than_was_promised_ends_any_moment() -> None:
    job = replace(a_standing(1, 2), limit_ms=Millis(100 * SECOND))
    placed = Instant(1_000)
    on_time = Instant(1_000 + 99 * SECOND)
    assert job.end_of(100 * SECOND, placed, on_time) == 1_000 + 100 * SECOND
    late = Instant(1_000 + 100 * SECOND)
    assert job.end_of(100 * SECOND, placed, late) == late + 1


def test_what_runs_longer_than_was_predicted_runs_for_as_long_again() -> None:
    job = replace(a_standing(1, 2), predicted_ms=Millis(100 * SECOND))
    placed = Instant(1_000)
    assert (
        job.end_of(100 * SECOND, placed, Instant(1_000 + 100 * SECOND)) == 1_000 + 200 * SECOND
    )
    assert job.end_of(100 * SECOND, placed, Instant(1_000 + 199_999)) == 1_000 + 200 * SECOND
    assert (
        job.end_of(100 * SECOND, placed, Instant(1_000 + 200 * SECOND)) == 1_000 + 400 * SECOND
    )


@pytest.mark.parametrize(("predicted", "limit"), [(-1, 0), (0, 0), (50, 0), (-1, 9), (0, 9)])
def test_a_limit_is_a_promise_also_of_what_is_predicted(predicted: int, limit: int) -> None:
    job = replace(a_standing(1, 2), predicted_ms=Millis(predicted), limit_ms=Millis(limit))
    assert job.end_of(100, Instant(1_000), Instant(1_100)) == 1_101


@pytest.mark.parametrize("predicted", [0, 100])
def test_what_is_predicted_and_has_no_limit_runs_on(predicted: int) -> None:
    job = replace(a_standing(1, 2), predicted_ms=Millis(predicted))
    assert job.end_of(100, Instant(1_000), Instant(1_100)) == 1_200
