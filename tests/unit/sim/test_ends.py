"""How jobs end in a simulation, what is said of it, and worlds in which none does."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.metrics.jobs import Fate
from allotment.model import events as e
from allotment.model.quantity import DAY, DEVICE, HOUR, MINUTE, SECOND, Millis, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.machines import Standstill
from allotment.sim.outcome import Run
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import BadSetting, Settings, read_settings
from allotment.sim.trace import Trace, TraceJob
from tests.support import sim


def fates(run: Run) -> list[Fate]:
    return [job.fate for job in run.jobs]


def counted(run: Run) -> dict[Fate, int]:
    assert run.summary is not None
    found = {fate: getattr(run.summary, fate) for fate in Fate}
    assert sum(found.values()) == run.summary.jobs
    return {fate: count for fate, count in found.items() if count}


# ── what became of a job ────────────────────────────────────────────────────────────────


def test_a_job_that_runs_into_its_limit_is_not_completed() -> None:
    """The first of two is stopped after 40 s of its 100; means are over the second alone."""
    jobs = (
        TraceJob("over", DAY, 100 * SECOND, limit_ms=Millis(40 * SECOND)),
        TraceJob("just", DAY, 40 * SECOND, limit_ms=Millis(40 * SECOND)),
    )
    run = sim.played(Trace("t.csv", "simple", "0", jobs), "1x1", "fifo")
    assert fates(run) == [Fate.TIMED_OUT, Fate.COMPLETED]
    assert counted(run) == {Fate.TIMED_OUT: 1, Fate.COMPLETED: 1}
    assert run.summary is not None
    assert (run.summary.avg_jct_s, run.summary.makespan_s) == (80, 80)
    assert run.summary.throughput_jobs_per_h == 3600 / 80
    assert run.summary.utilization == 1


def test_a_job_that_fails_more_often_than_it_is_tried_again_is_not_completed() -> None:
    sure = Settings(job_failure=1, retries=2, checkpoint_ms=DAY)
    run = sim.played(sim.a_trace([(DAY, 1, HOUR)] * 5), "1x8", "fifo", sure)
    assert counted(run) == {Fate.FAILED: 5}
    assert run.summary is not None
    assert run.summary.avg_jct_s == run.summary.throughput_jobs_per_h == 0
    assert run.summary.makespan_s > 0
    assert run.summary.nothing_ran == ""


def test_a_job_that_is_too_large_is_counted_apart_from_one_that_fails() -> None:
    sure = Settings(job_failure=1, retries=0)
    run = sim.played(sim.a_trace([(DAY, 9, HOUR), (DAY, 1, HOUR)]), "1x8", "fifo", sure)
    assert counted(run) == {Fate.NEVER_SCHEDULABLE: 1, Fate.FAILED: 1}


# ── what faults take ────────────────────────────────────────────────────────────────────

worlds = st.fixed_dictionaries({
    "start_ms": st.integers(0, 400),
    "resume_ms": st.integers(0, 400),
    "stop_ms": st.integers(0, 90),
    "checkpoint_ms": st.integers(0, 300),
    "mtbf_ms": st.integers(1_000, 9_000),
    "mttr_ms": st.integers(1, 900),
    "job_failure": st.sampled_from([0.0, 0.4]),
})  # fmt: skip
a_row = st.tuples(st.integers(0, 900), st.integers(1, 4), st.integers(1, 700))


class Ledger:
    """What each job has done and kept, from the log alone. The machines are asked nothing."""

    def __init__(self, checkpoint_ms: int) -> None:
        self.checkpoint_ms = checkpoint_ms
        self.done: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.stopped: dict[int, int] = {}
        self.evictions = self.faults = 0

    def take(self, records: Sequence[e.Record]) -> None:
        for record in records:
            match record.event:
                case e.AttemptStarted(job):
                    self.since[job] = record.at
                case e.StopRequested(job):
                    self.stopped[job] = record.at
                case e.AttemptEnded():
                    assert record.event.lost_ms == self.lost(record.event, record.at)
                case _:
                    pass

    def lost(self, event: e.AttemptEnded, at: int) -> int:
        """Return what an attempt's end costs: what it did in vain, and what was not safe."""
        job, done = event.job, self.done.get(event.job, 0)
        since, stopped = self.since.pop(job, None), self.stopped.pop(job, None)
        if since is None:
            return 0
        until = at if stopped is None else stopped
        done += until - since
        kept = self.kept.get(job, 0)
        if (
            stopped is not None
            or event.outcome is e.Outcome.SUCCEEDED
            or not self.checkpoint_ms
        ):
            self.evictions += stopped is not None
            kept = done
        else:
            self.faults += 1
            kept = max(kept, done // self.checkpoint_ms * self.checkpoint_ms)
        self.done[job] = self.kept[job] = kept
        return at - until + done - kept


def ledger_of(rows: list[tuple[int, int, int]], world: Settings, policy: str, seed: int):
    """Play rows and check what each attempt lost; give the ledger and the run."""
    trace = sim.a_trace(sorted((DAY + at, gpus, run) for at, gpus, run in rows))
    ledger = Ledger(world.checkpoint_ms)
    run = simulate(Scenario(trace, cluster_of("2x2"), policy, world, seed), tap=ledger.take)
    done = [job for job in run.jobs if job.fate is Fate.COMPLETED]
    # Jobs get their ids in the order of the trace.
    assert all(ledger.done[int(job.id) + 1] == job.run_ms for job in done)
    return ledger, run


@settings(max_examples=150)
@given(
    st.lists(a_row, min_size=1, max_size=8),
    worlds,
    st.sampled_from(["fifo", "srtf", "srsf", "las2d"]),
    st.integers(0, 9),
)
def test_a_stop_keeps_all_and_a_fault_takes_what_is_not_safe(
    rows: list[tuple[int, int, int]], world: dict[str, float], policy: str, seed: int
) -> None:
    ledger_of(rows, Settings(**world), policy, seed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_job_that_lost_its_work_is_expected_to_do_it_again(policy: str) -> None:
    """The first fails and begins anew before the others come: there is time for the last."""
    seconds = [(0, 1, 100_000), (120_000, 2, 100), (120_001, 1, 1_000)]
    rows = [(DAY + at * SECOND, gpus, run * SECOND) for at, gpus, run in seconds]
    faulty = Settings(job_failure=0.9, retries=9, checkpoint_ms=3_000 * DAY)
    first, wide, last = sim.played(sim.a_trace(rows), "1x2", policy, faulty).jobs
    assert first.start_ms < wide.submit_ms < first.end_ms, "it is running when they come"
    assert first.ran_ms > first.run_ms, "again"
    assert last.start_ms == last.submit_ms


def test_that_is_tried_with_faults_after_preemptions() -> None:
    """The world of the test above, at its most restless, has many of both."""
    rows = [(place * 60, 1 + place % 4, 900 - place * 70) for place in range(12)]
    world = Settings(mtbf_ms=1_000, mttr_ms=50, checkpoint_ms=200, stop_ms=20, start_ms=5)
    found = [ledger_of(rows, world, "srtf", seed)[0] for seed in range(10)]
    assert sum(ledger.evictions for ledger in found) > 20
    assert sum(ledger.faults for ledger in found) > 20


# ── worlds in which nothing comes to an end ─────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["fifo", "maxmin"])
@pytest.mark.parametrize(("mtbf", "mttr"), [(1, 4 * HOUR), (1, 1), (20, SECOND)])
def test_nodes_that_only_fail_end_the_run_with_the_reason(
    policy: str, mtbf: int, mttr: int
) -> None:
    trace = sim.a_trace([(DAY, 1, HOUR), (DAY, 30, HOUR)])
    with pytest.raises(Standstill, match="nodes work at a time: take a longer mtbf") as caught:
        sim.played(trace, "4x8", policy, Settings(mtbf_ms=mtbf, mttr_ms=mttr))
    assert "while no job ran" in str(caught.value)


def test_nodes_that_fail_while_nobody_is_there_do_no_harm() -> None:
    """A hundred idle days between two jobs, with a failure an hour."""
    trace = sim.a_trace([(DAY, 1, MINUTE), (101 * DAY, 1, MINUTE)])
    faults = Settings(mtbf_ms=4 * HOUR, mttr_ms=MINUTE)
    run = sim.played(trace, "4x1", "fifo", faults)
    assert counted(run) == {Fate.COMPLETED: 2}


@pytest.mark.parametrize("text", ["1ms", "1s", "59s"])
def test_nodes_that_fail_every_minute_are_a_slip(text: str) -> None:
    with pytest.raises(
        BadSetting, match=r"mtbf: a node that fails every minute .* 1min, or never"
    ):
        read_settings([f"mtbf={text}"])


@pytest.mark.parametrize("text", ["0", "never", "1min", "30d"])
def test_nodes_that_fail_seldom_or_never_are_not(text: str) -> None:
    read_settings([f"mtbf={text}"])


# ── nothing could run ───────────────────────────────────────────────────────────────────


def nothing(trace: Trace, cluster: str) -> str:
    run = sim.played(trace, cluster, "fifo")
    assert run.summary is not None
    return run.summary.nothing_ran


def test_a_run_in_which_no_job_fits_says_which_how_large_and_why() -> None:
    why = nothing(sim.a_trace([(DAY, 50, 10), (DAY, 99, 10)]), "2x8")
    assert why.startswith(
        "made.csv: no job can ever run on this cluster (0, 1). The largest, 1, "
    )
    assert "asks for 99 devices; there are 16: 2 nodes × 8 gpu. Of 0: It can never start" in why


def test_a_job_that_asks_for_more_cpu_than_devices_bring_is_told_what_they_bring() -> None:
    need = Resources(gpu_milli=DEVICE, cpu_milli=40_000)
    why = nothing(Trace("t.csv", "spot", "0", (TraceJob("a", DAY, 9, need=need),)), "1x2")
    assert "The largest node has 2 GPU, 32 CPU, 256 GiB" in why
    assert "a node has 16 CPU and 128 GiB for each device; a cluster file can say more" in why


def test_of_many_that_do_not_fit_a_few_are_named() -> None:
    why = nothing(sim.a_trace([(DAY, 50, 10)] * 20), "2x8")
    assert "(0, 1, 2, 3, 4 and 15 more)" in why


def test_a_trace_without_jobs_says_what_was_left_out() -> None:
    empty = Trace("t.csv", "simple", "0", (), (("no device was asked for", 3), ("odd", 1)))
    assert nothing(empty, "1x1") == (
        "t.csv: no job to play. Left out: 3 rows (no device was asked for), 1 row (odd)."
    )


def test_one_that_can_run_is_enough() -> None:
    assert nothing(sim.a_trace([(DAY, 99, 10), (DAY, 1, 10)]), "1x1") == ""


# ── sharing devices ─────────────────────────────────────────────────────────────────────


def packed(*rows: tuple[int, int, int]) -> Run:
    return sim.played(sim.a_trace(rows), "1x2", "gavel-pack")


def test_a_packed_device_is_in_use_once_and_wholly() -> None:
    """Three jobs on two devices: two share one at half speed; both devices are in use."""
    run = packed((DAY, 1, 100_000), (DAY, 1, 100_000), (DAY, 1, 100_000))
    assert run.summary is not None
    held = sum(sample.busy_milli == 2 * DEVICE for sample in run.samples)
    assert held
    assert max(sample.busy_milli for sample in run.samples) == 2 * DEVICE
    # One ends at 100 s; the pair does 50 s of work each by then, and then is alone or not.
    assert 0.5 < run.summary.utilization <= 1


def test_a_job_alone_on_its_device_uses_all_of_it() -> None:
    run = packed((DAY, 1, 100_000))
    assert run.summary is not None
    assert run.summary.utilization == 0.5
    assert [sample.busy_milli for sample in run.samples] == [DEVICE, 0]


def test_two_jobs_on_the_only_device_use_it_all_the_time() -> None:
    run = sim.played(sim.a_trace([(DAY, 1, 100_000), (DAY, 1, 40_000)]), "1x1", "gavel-pack")
    assert run.summary is not None
    assert (run.summary.utilization, run.summary.makespan_s) == (1, 140)


def test_a_part_of_a_device_uses_the_device() -> None:
    half = TraceJob("half", DAY, 60_000, 1, Resources(gpu_milli=DEVICE // 2))
    run = sim.played(Trace("t", "simple", "0", (half,)), "1x1", "fifo")
    assert run.summary is not None
    assert run.summary.utilization == 1
