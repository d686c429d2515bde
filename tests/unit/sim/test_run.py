"""Whole runs at the edges: nothing, one job, the same instant, no time at all, too large."""

import msgspec
import pytest

from allotment.model.quantity import DAY, DEVICE, SECOND, Resources
from allotment.sim.catalogue import RECIPES, UnknownPolicy, recipe
from allotment.sim.outcome import Run
from allotment.sim.settings import Settings, read_settings
from allotment.sim.trace import Ending, Trace, TraceJob
from tests.support import sim

POLICIES = sorted(name for name in RECIPES if not RECIPES[name].packs)
"""Those under which a device is one job's; of the others see test_machines.py."""
TURNS_AT_ONCE = ["las", "las2d", "priority", "srsf", "srtf"]


def a_trace(*jobs: TraceJob) -> Trace:
    return Trace("made.csv", "simple", "0" * 16, jobs)


def a_job(name: str, at: int, run_ms: int, gpus: int = 1, **others: object) -> TraceJob:
    return TraceJob(
        name,
        at,
        run_ms,
        gpus,
        Resources(gpu_milli=DEVICE),
        **others,  # pyright: ignore[reportArgumentType]
    )


def times(run: Run) -> list[tuple[int, int]]:
    return [(job.start_ms, job.end_ms) for job in run.jobs]


# ── hardly anything ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_comes(policy: str) -> None:
    run = sim.played(a_trace(), "2x2", policy)
    assert run.jobs == ()
    assert run.summary is not None
    assert run.summary.jobs == run.summary.completed == run.summary.makespan_s == 0


@pytest.mark.parametrize("at", [0, 1, DAY - 1, DAY, 1_700_000_000_000])
@pytest.mark.parametrize("policy", sorted(RECIPES))
def test_one_job_starts_when_it_comes_and_ends_when_it_is_done(policy: str, at: int) -> None:
    if "rounds" in str(RECIPES[policy].turns):
        at = at // (360 * SECOND) * 360 * SECOND
    run = sim.played(a_trace(a_job("one", at, 5_000, 3)), "2x2", policy)
    assert times(run) == [(at, at + 5_000)]
    assert run.summary is not None
    assert run.summary.avg_jct_s == 5
    assert run.summary.avg_queue_delay_s == 0
    assert run.summary.utilization == pytest.approx(3 / 4)
    assert run.samples[0].at_ms >= at


def test_a_trace_that_begins_at_0_is_told_on_its_own_clock() -> None:
    rows = [(0, 2, 100), (0, 1, 50), (30, 2, 10)]
    early = sim.played(sim.a_trace(rows), "1x2", "backfill")
    later = [(at + DAY, gpus, run) for at, gpus, run in rows]
    late = sim.played(sim.a_trace(later), "1x2", "backfill")
    assert times(early) == [(0, 100), (100, 150), (150, 160)]
    assert times(late) == [(start + DAY, end + DAY) for start, end in times(early)]
    assert early.summary == late.summary
    assert [sample.at_ms + DAY for sample in early.samples] == [
        sample.at_ms for sample in late.samples
    ]


# ── the same instant ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "priority"])
def test_of_those_who_come_at_one_instant_the_first_row_is_first(policy: str) -> None:
    run = sim.played(sim.a_trace([(0, 1, 10)] * 4), "1x2", policy)
    assert times(run) == [(0, 10), (0, 10), (10, 20), (10, 20)]


@pytest.mark.parametrize("policy", ["sjf", "srtf", "srsf"])
def test_of_those_who_come_at_one_instant_the_shortest_is_first(policy: str) -> None:
    run = sim.played(sim.a_trace([(0, 1, 30), (0, 1, 10), (0, 1, 20)]), "1x1", policy)
    assert times(run) == [(30, 60), (0, 10), (10, 30)]


def test_a_job_that_comes_when_another_ends_takes_its_place_at_once() -> None:
    run = sim.played(sim.a_trace([(0, 1, 10), (10, 1, 10), (20, 1, 10)]), "1x1", "fifo")
    assert times(run) == [(0, 10), (10, 20), (20, 30)]
    assert run.summary is not None
    assert run.summary.avg_queue_delay_s == 0
    assert run.summary.utilization == 1


# ── no time at all ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in ("maxmin",)])
def test_jobs_of_a_millisecond(policy: str) -> None:
    """Twenty of them on two devices: each pair takes a millisecond."""
    run = sim.played(sim.a_trace([(DAY, 1, 1)] * 20), "1x2", policy)
    assert sorted(job.end_ms - DAY for job in run.jobs) == [
        place // 2 + 1 for place in range(20)
    ]
    assert {job.ran_ms for job in run.jobs} == {1}


# ── too large ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_can_never_run_is_told_so_and_holds_up_nobody(policy: str) -> None:
    rows = [(DAY, 1, 10), (DAY + 1, 5, 10), (DAY + 2, 1, 10), (DAY + 2, 99, 10)]
    run = sim.played(sim.a_trace(rows), "2x2", policy)
    assert [bool(job.never) for job in run.jobs] == [False, True, False, True]
    assert [job.id for job in run.jobs] == ["0", "1", "2", "3"]
    assert "can never start here" in run.jobs[1].never
    assert "5 GPU" in run.jobs[1].never
    assert (run.jobs[1].start_ms, run.jobs[1].end_ms) == (-1, -1)
    assert run.jobs[1].submit_ms == DAY + 1
    assert run.jobs[0].end_ms == DAY + 10
    assert run.summary is not None
    assert run.summary.never_schedulable == 2
    assert run.summary.completed == 2
    assert run.summary.unfinished == 0


def test_nobody_can_ever_run() -> None:
    run = sim.played(sim.a_trace([(5, 3, 10), (6, 4, 10)]), "1x2", "fifo")
    assert all(job.never for job in run.jobs)
    assert [job.submit_ms for job in run.jobs] == [5, 6]
    assert run.summary is not None
    assert run.summary.never_schedulable == 2


def test_a_type_that_is_not_there() -> None:
    trace = a_trace(a_job("a", 0, 10, gpu_types=("T4",)), a_job("b", 0, 10))
    run = sim.played(trace, "1x2xA100", "fifo")
    assert run.jobs[0].never
    assert times(run)[1] == (0, 10)


def test_a_task_larger_than_any_node() -> None:
    large = TraceJob("large", 0, 10, 1, Resources(gpu_milli=3 * DEVICE))
    run = sim.played(a_trace(large), "4x2", "backfill")
    assert "can never start here" in run.jobs[0].never


def test_a_cluster_without_devices() -> None:
    run = sim.played(sim.a_trace([(0, 1, 10)]), "3x0", "fifo")
    assert run.jobs[0].never
    assert run.summary is not None
    assert run.summary.utilization == 0


# ── what starting, resuming and stopping cost ───────────────────────────────────────────


def test_a_start_takes_its_time_and_holds_devices_meanwhile() -> None:
    settings = Settings(start_ms=7)
    run = sim.played(sim.a_trace([(DAY, 1, 10), (DAY, 1, 10)]), "1x1", "fifo", settings)
    assert times(run) == [(DAY + 7, DAY + 17), (DAY + 24, DAY + 34)]
    assert [job.ran_ms for job in run.jobs] == [10, 10]


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_a_job_that_is_sent_away_goes_slowly_and_comes_back_slowly(policy: str) -> None:
    """Long runs 2 to 10, is gone at 13; short runs 15 to 20; long has 92 ms left from 24."""
    settings = Settings(start_ms=2, resume_ms=4, stop_ms=3)
    rows = [(DAY, 1, 100), (DAY + 10, 1, 5)]
    run = sim.played(sim.a_trace(rows), "1x1", policy, settings)
    assert times(run) == [(DAY + 2, DAY + 116), (DAY + 15, DAY + 20)]
    assert [job.preemptions for job in run.jobs] == [1, 0]
    assert run.jobs[0].ran_ms == 100 + 3, "it holds its devices while it goes"


def test_a_job_that_is_sent_away_before_it_got_to_run_lost_nothing() -> None:
    settings = Settings(start_ms=50, resume_ms=50)
    rows = [(DAY, 1, 100), (DAY + 10, 1, 5)]
    run = sim.played(sim.a_trace(rows), "1x1", "srtf", settings)
    assert times(run) == [(DAY + 115, DAY + 215), (DAY + 60, DAY + 65)]


@pytest.mark.parametrize("round_ms", [2, 360 * SECOND])
@pytest.mark.parametrize("policy", sorted(RECIPES))
def test_whatever_stopping_costs_everybody_ends(policy: str, round_ms: int) -> None:
    settings = Settings(
        start_ms=3, resume_ms=5, stop_ms=11, queues=(20, 60), first_ms=4,
        round_ms=round_ms, lead_ms=1,
    )  # fmt: skip
    rows = [(DAY + place * 3, place % 3 + 1, 7 + place * 13 % 41) for place in range(30)]
    run = sim.Watched(rows, "2x2", policy, settings, most=20_000)
    assert all(end > 0 for end in run.end)


@pytest.mark.parametrize("policy", ["las", "las2d", "maxmin", "ftf"])
def test_a_start_longer_than_any_turn_is_not_in_vain(policy: str) -> None:
    """A job is not sent away for the time that its start took, by equals that never end."""
    settings = Settings(
        start_ms=100, resume_ms=100, stop_ms=7, queues=(5, 20), first_ms=1, round_ms=10,
        lead_ms=0,
    )  # fmt: skip
    rows = [(DAY, 1, 30), (DAY, 1, 30), (DAY, 1, 30)]
    run = sim.Watched(rows, "1x1", policy, settings, most=2_000)
    assert all(end > 0 for end in run.end)


# ── promises, history, and words ────────────────────────────────────────────────────────


def test_a_limit_ends_a_job_that_runs_beyond_it() -> None:
    trace = a_trace(a_job("over", DAY, 100, limit_ms=40), a_job("next", DAY, 10))
    run = sim.played(trace, "1x1", "fifo")
    assert times(run) == [(DAY, DAY + 40), (DAY + 40, DAY + 50)]
    assert run.jobs[0].ran_ms == 40


def test_a_censored_job_runs_but_is_not_counted_among_the_completed() -> None:
    trace = a_trace(a_job("cut", DAY, 10, ending=Ending.CENSORED), a_job("whole", DAY, 10))
    run = sim.played(trace, "1x2", "fifo")
    assert [job.censored for job in run.jobs] == [True, False]
    assert run.summary is not None
    assert (run.summary.completed, run.summary.censored) == (1, 1)


def test_higher_priority_takes_the_place_of_lower() -> None:
    trace = a_trace(
        a_job("low", DAY, 100, priority=1),
        a_job("high", DAY + 10, 20, priority=9),
        a_job("same", DAY + 10, 20, priority=1),
    )
    run = sim.played(trace, "1x1", "priority")
    assert times(run) == [(DAY, DAY + 120), (DAY + 10, DAY + 30), (DAY + 120, DAY + 140)]


@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "conservative", "priority"])
def test_first_come_first_served_is_by_priority_unless_that_is_ignored(policy: str) -> None:
    trace = a_trace(
        a_job("first", DAY, 100, priority=5),
        a_job("second", DAY + 1, 100, priority=5),
        a_job("urgent", DAY + 2, 100, priority=6),
    )
    starts = [start - DAY for start, _ in times(sim.played(trace, "1x1", policy))]
    assert starts[1] > starts[2]
    equal = Settings(priorities="ignore")
    ignored = sim.played(trace, "1x1", policy, equal)
    assert [start - DAY for start, _ in times(ignored)] == [0, 100, 200]
    assert ignored.settings == (("priorities", "ignore"),)


def test_an_equal_in_priority_does_not_give_way() -> None:
    trace = a_trace(
        a_job("first", DAY, 100, priority=5),
        a_job("large", DAY + 1, 50, 2, priority=5),
        a_job("passes", DAY + 2, 200, priority=5),
        a_job("higher", DAY + 3, 10, priority=6),
    )
    run = sim.played(trace, "1x2", "priority")
    assert times(run) == [
        (DAY, DAY + 100),
        (DAY + 212, DAY + 262),
        (DAY + 2, DAY + 212),
        (DAY + 3, DAY + 13),
    ]


def test_a_job_that_needs_what_is_left_beside_the_promise_gets_it() -> None:
    """A job that does not fit now must not use up what may be used beside the promise."""
    rows = [
        (DAY, 4, 100),
        (DAY, 1, 200),
        (DAY + 1, 3, 50),
        (DAY + 2, 2, 500),
        (DAY + 3, 1, 500),
    ]
    run = sim.played(sim.a_trace(rows), "1x6", "easy")
    assert [start - DAY for start, _ in times(run)] == [0, 0, 100, 150, 3]


def test_a_run_tells_what_it_was_made_from() -> None:
    trace = Trace("t.csv", "simple", "abc", (a_job("a", 0, 1),), (("too old", 3),), ("odd",))
    run = sim.played(trace, "2x4xA100", "srtf", Settings(start_ms=5), seed=9)
    assert (run.trace, run.trace_digest, run.dropped, run.warnings, run.seed) == (
        "t.csv", "abc", (("too old", 3),), ("odd",), 9,
    )  # fmt: skip
    assert run.cluster == "2 nodes × 4 A100"
    assert (run.nodes, run.capacity_milli) == (2, 8_000)
    assert run.settings == (("start", "5ms"),)
    assert run.clairvoyant
    assert not sim.played(trace, "1x1", "las2d").clairvoyant
    assert run.events > 0


@pytest.mark.parametrize(
    ("policy", "order", "clairvoyant", "rule"),
    [
        ("easy", "", True, "jobs overtake if the first is not delayed"),
        ("backfill", "", False, "any job that fits overtakes"),
        ("backfill", "easy", True, "jobs overtake if the first is not delayed"),
        ("fifo", "conservative", True, "jobs overtake if no job before them is delayed"),
        ("easy", "strict", False, "no job overtakes"),
        ("conservative", "skip", False, "any job that fits overtakes"),
        ("srtf", "strict", True, "no job overtakes"),
        ("las", "strict", False, "no job overtakes"),
    ],
)
def test_a_job_that_goes_by_run_times_is_told_by_what_really_may_pass(
    policy: str, order: str, clairvoyant: bool, rule: str
) -> None:
    trace = a_trace(a_job("a", 0, 1))
    settings = read_settings([f"order={order}"] if order else [])
    run = sim.played(trace, "1x1", policy, settings)
    assert (run.clairvoyant, run.rule.partition("; ")[2]) == (clairvoyant, rule)
    blind = msgspec.structs.replace(settings, estimates="predicted")
    assert not sim.played(trace, "1x1", policy, blind).clairvoyant


def test_a_policy_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(
        UnknownPolicy, match=r"'stf'\. Did you mean srtf or .*There are: fifo, "
    ):
        recipe("stf")
    with pytest.raises(UnknownPolicy, match=r"'zzzzzz'\. There are: "):
        recipe("zzzzzz")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_says_its_rule(policy: str) -> None:
    assert len(RECIPES[policy].says) > 10
