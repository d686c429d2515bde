"""Ranks of the least-attained orders: before, at and after a limit; sent away; promoted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace, Standing
from allotment.core.plan import Evict
from allotment.core.rank import Rank
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Instant, Millis
from allotment.policies.ordering.las import LeastAttained, LeastAttainedInSteps, doubling
from tests.unit.core.books import a_cluster, a_standing, place

LAS2D = LeastAttainedInSteps((100, 300))


def a_job(
    gpus: int = 2, *, since: int | None = None, served: int = 0, queued: int = 10
) -> Standing:
    """A job that came at 10; `since` is when it got its devices."""
    return replace(
        a_standing(1, gpus),
        submitted_at=Instant(10),
        queued_at=Instant(queued),
        served_ms=Millis(served),
        since=None if since is None else Instant(since),
    )


def queue(rank: Rank) -> int:
    return rank.key[0]


# ── running ─────────────────────────────────────────────────────────────────────────────


def test_before_its_limit_it_is_in_the_first_queue_until_it_gets_there() -> None:
    job = a_job(2, since=20)
    for now in (20, 21, 69):
        rank = LAS2D.rank(job, Instant(now))
        assert queue(rank) == 0
        assert rank.until == 70  # 50 ms on two devices
        assert rank.slope == 0


def test_at_its_limit_it_stands_at_the_end_of_the_next_queue_for_that_moment() -> None:
    job = a_job(2, since=20)
    rank = LAS2D.rank(job, Instant(70))
    assert queue(rank) == 1
    assert rank.until == 71
    waits = LAS2D.rank(a_job(2, served=60, queued=65), Instant(70))
    assert queue(waits) == 1
    assert waits.key < rank.key, "whoever waits in that queue goes first"


def test_after_its_limit_it_runs_on_before_those_who_wait_in_that_queue() -> None:
    job = a_job(2, since=20)
    rank = LAS2D.rank(job, Instant(71))
    assert queue(rank) == 1
    assert rank.until == 170  # 150 ms on two devices
    waits = LAS2D.rank(a_job(2, served=60, queued=30), Instant(71))
    assert rank.key < waits.key
    assert LAS2D.rank(job, Instant(150)) == rank, "it stays where it came to"


def test_in_the_last_queue_it_stays_for_ever() -> None:
    rank = LAS2D.rank(a_job(2, since=20), Instant(500))
    assert queue(rank) == 2
    assert rank.until is None


def test_a_limit_that_devices_do_not_divide_is_met_at_the_next_millisecond() -> None:
    job = a_job(3, since=0)
    assert LAS2D.rank(job, Instant(33)).until == 34
    assert queue(LAS2D.rank(job, Instant(33))) == 0
    assert queue(LAS2D.rank(job, Instant(34))) == 1


def test_of_those_who_run_in_a_queue_who_came_to_it_first_is_before() -> None:
    first, second = a_job(2, since=20), replace(a_job(2, since=25), id=a_standing(2).id)
    assert LAS2D.rank(first, Instant(40)).key < LAS2D.rank(second, Instant(40)).key
    assert LAS2D.rank(first, Instant(80)).key < LAS2D.rank(second, Instant(80)).key


@given(
    gpus=st.integers(1, 4),
    since=st.integers(0, 50),
    served=st.integers(0, 200),
    limits=st.sets(st.integers(1, 400), min_size=1, max_size=4).map(sorted).map(tuple),
    after=st.integers(0, 300),
)
def test_a_rank_holds_until_it_says(
    gpus: int, since: int, served: int, limits: tuple[int, ...], after: int
) -> None:
    order = LeastAttainedInSteps(limits)
    job = a_job(gpus, since=since, served=served)
    rank = order.rank(job, Instant(since + after))
    attained = (served + after) * gpus
    assert queue(rank) == sum(attained >= limit for limit in limits)
    if rank.until is None:
        assert order.rank(job, Instant(since + after + 10_000)) == rank
        return
    assert rank.until > since + after
    last = Instant(rank.until - 1)
    assert queue(order.rank(job, last)) == queue(rank)
    if rank.until > since + after + 1:
        assert order.rank(job, last) == rank


# ── starting ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("now", [20, 70, 10_000])
def test_while_it_starts_it_stays_in_its_queue_among_those_who_run(now: int) -> None:
    job = replace(a_job(2, since=20), starting=True)
    rank = LAS2D.rank(job, Instant(now))
    assert rank == Rank((0, 0, 0, 20))
    assert rank.key < LAS2D.rank(a_job(2, served=20, queued=15), Instant(now)).key


def test_as_a_line_it_stands_still_while_it_starts() -> None:
    job = replace(a_job(2, since=20, served=5), starting=True)
    assert LeastAttained(50).rank(job, Instant(40)) == Rank((5 * 2 * DEVICE,))


# ── waiting ─────────────────────────────────────────────────────────────────────────────


def test_a_new_job_stands_at_the_end_of_the_first_queue() -> None:
    early, late = a_job(queued=10), a_job(queued=11)
    assert LAS2D.rank(early, Instant(50)).key < LAS2D.rank(late, Instant(50)).key
    assert LAS2D.rank(early, Instant(50)).until is None


def test_what_was_sent_away_goes_before_those_who_never_ran_and_behind_those_who_run() -> None:
    away = LAS2D.rank(a_job(served=20, queued=40), Instant(50))
    new = LAS2D.rank(a_job(queued=1), Instant(50))
    runs = LAS2D.rank(a_job(since=45), Instant(50))
    assert queue(away) == queue(new) == queue(runs) == 0
    assert runs.key < away.key < new.key


def test_what_was_sent_away_on_reaching_a_limit_goes_to_the_end_of_the_next_queue() -> None:
    crossed = LAS2D.rank(a_job(2, served=50, queued=70), Instant(70))
    before = LAS2D.rank(a_job(2, served=60, queued=69), Instant(70))
    assert queue(crossed) == queue(before) == 1
    assert before.key < crossed.key


# ── promotion ───────────────────────────────────────────────────────────────────────────

PROMOTING = LeastAttainedInSteps((100, 300), promote=3)


def test_it_begins_again_in_the_first_queue_after_waiting_long_enough() -> None:
    job = a_job(2, served=60, queued=100)
    before = PROMOTING.rank(job, Instant(279))
    assert queue(before) == 1
    assert before.until == 280  # 3 × 60 ms after it was sent away
    at = PROMOTING.rank(job, Instant(280))
    assert queue(at) == 0
    assert at.until is None
    assert PROMOTING.rank(job, Instant(999)) == at


def test_a_promoted_job_has_the_whole_first_queue_before_it() -> None:
    job = a_job(2, served=60, queued=100, since=300)
    rank = PROMOTING.rank(job, Instant(300))
    assert queue(rank) == 0
    assert rank.until == 350


def test_a_job_that_ran_before_it_was_promoted_goes_on_where_it_was() -> None:
    rank = PROMOTING.rank(a_job(2, served=60, queued=100, since=279), Instant(279))
    assert queue(rank) == 1
    assert rank.until == 279 + 90


def test_without_promotion_nobody_comes_back() -> None:
    assert queue(LAS2D.rank(a_job(2, served=60, queued=100), Instant(10**6))) == 1


def test_in_the_first_queue_there_is_nothing_to_wait_for() -> None:
    assert PROMOTING.rank(a_job(2, served=10, queued=100), Instant(101)).until is None


# ── limits, and the order as a line ─────────────────────────────────────────────────────


@pytest.mark.parametrize("limits", [(0,), (5, 5), (7, 3), (-1, 4)])
def test_limits_ascend_from_above_0(limits: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        LeastAttainedInSteps(limits)


def test_doubling_limits() -> None:
    assert doubling(60, 4) == (60, 120, 240, 480)


def test_as_a_line_device_time_itself_is_compared() -> None:
    order = LeastAttained()
    runs = order.rank(a_job(2, since=20, served=5), Instant(40))
    assert runs.slope == 2 * DEVICE
    assert runs.key[-1] + runs.slope * 40 == 25 * 2 * DEVICE
    waits = order.rank(a_job(3, served=7), Instant(40))
    assert (waits.slope, waits.key[0]) == (0, 7 * 3 * DEVICE)


def test_a_lead_keeps_who_runs_in_its_place_for_longer() -> None:
    order = LeastAttained(lead_ms=50)
    waits = order.rank(a_job(1), Instant(40))
    runs = order.rank(a_job(1, since=0), Instant(40))
    assert runs.key[-1] + runs.slope * 49 < waits.key[0]
    assert runs.key[-1] + runs.slope * 51 > waits.key[0]


@pytest.mark.parametrize(("now", "said"), [(4_000, "job 1 may not be evicted"), (7_000, "")])
def test_the_committer_lets_a_job_displace_one_that_has_attained_more_by_now(
    now: int, said: str
) -> None:
    policies = a_cluster("1x2").policies
    cluster = a_cluster("1x2", replace(policies, ordering=LeastAttained()))
    gang = place(cluster, replace(a_standing(1, 2), since=Instant(1_000)))
    waiting = replace(a_standing(2, 2), served_ms=Millis(5_000))
    cluster.pending.add(waiting, Instant(now))
    promise = ReservedPlace(
        waiting.id, gang.slots, gang.needs, Entitlement.GUARANTEED, (gang.id,)
    )
    made = refusal(cluster, Evict(promise, (gang.id,)), Instant(now))
    assert made == said
