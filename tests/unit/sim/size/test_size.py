"""How many nodes: the search against trying every size, and what is known beforehand."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.metrics.summarise import summarise
from allotment.metrics.usage import Totals
from allotment.model.quantity import DEVICE, GIB, HOUR, MINUTE, Millis, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import JobOutcome, Run
from allotment.sim.size import (
    BadSize,
    Range,
    busy_nodes,
    check_node,
    find,
    hopeless,
    least_nodes,
    tasks_on,
)
from allotment.sim.size_target import read_target
from allotment.sim.trace import Ending, TraceJob
from tests.support.sim import a_trace, played

NOTHING = summarise([], Totals(), 1)
NODE = cluster_of("1x8xA100")[0]


class Machine:
    """Plays sizes by a table of mean waits in minutes; busier when smaller."""

    def __init__(self, waits: Sequence[int]) -> None:
        self.waits = waits
        self.asked: list[int] = []

    def __call__(self, sizes: Sequence[int]) -> list[Run]:
        self.asked += sizes
        return [self._run(size) for size in sizes]

    def wait(self, size: int) -> int:
        return self.waits[min(size, len(self.waits)) - 1]

    def _run(self, size: int) -> Run:
        wait = self.wait(size)
        summary = msgspec.structs.replace(
            NOTHING,
            completed=1,
            avg_queue_delay_s=wait * 60.0,
            utilization=1 / size,
            peak_waiting_jobs=wait,
        )
        return Run("fifo", False, "", size, 0, (), (), summary=summary)


waits = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@given(waits, st.integers(1, 45), st.integers(1, 4), st.integers(1, 5), st.integers(0, 60))
def test_where_delay_falls_it_is_the_least_of_all_sizes(
    waits: list[int], guess: int, width: int, low: int, bound: int
) -> None:
    machine, most = Machine(sorted(waits, reverse=True)), 45
    target = read_target(f"avg_queue_delay<={bound}min")
    found = find(machine, target, Range(low, most, max(low, guess), width))
    good = [size for size in range(low, most + 1) if machine.wait(size) <= bound]
    assert found.chosen == min(good, default=0)
    assert found.odd == ()
    assert bool(found.why) == (not good)
    assert len(machine.asked) == len(set(machine.asked)), "nothing is played twice"
    assert all(low <= size <= most for size in machine.asked)


@given(waits, st.integers(1, 45), st.integers(1, 4), st.integers(1, 60))
def test_whatever_the_curve_the_answer_will_do_and_one_less_will_not(
    waits: list[int], guess: int, width: int, bound: int
) -> None:
    machine = Machine(waits)
    target = read_target(f"avg_queue_delay<={bound}min")
    found = find(machine, target, Range(1, 45, guess, width))
    if found.chosen:
        assert machine.wait(found.chosen) <= bound
        assert found.chosen == 1 or machine.wait(found.chosen - 1) > bound
        assert found.chosen == 1 or found.chosen - 1 in machine.asked
    missed = {size for size in machine.asked if machine.wait(size) > bound}
    assert set(found.odd) == {size for size in missed if 0 < found.chosen < size}


@given(st.integers(1, 45), st.integers(1, 4), st.integers(1, 50))
def test_what_size_is_in_the_way_of_bounds_it_from_above(
    guess: int, width: int, share: int
) -> None:
    machine = Machine([0])
    found = find(machine, read_target(f"utilization>={share}%"), Range(1, 45, guess, width))
    assert not found.least
    assert found.chosen == min(
        45, max(size for size in range(1, 101) if 1 / size >= share / 100)
    )


def test_both_kinds_of_bound() -> None:
    machine = Machine([60, 40, 20, 10, 0])
    within = Range(1, 100, 1, 2)
    both = find(machine, read_target("avg_queue_delay<=20min and utilization>=0.3"), within)
    assert (both.chosen, both.why) == (3, "")
    none = find(machine, read_target("avg_queue_delay<=20min and utilization>=0.4"), within)
    assert none.chosen == 0
    assert none.why == (
        "It takes 3 nodes for avg_queue_delay<=20min, and there utilization is 33.3% and not "
        ">=0.4."
    )


def test_when_nobody_waits_more_nodes_are_not_tried() -> None:
    machine = Machine([9, 0])
    found = find(machine, read_target("avg_queue_delay<0s"), Range(1, 10_000, 1, 1))
    assert found.chosen == 0
    assert found.why.startswith("With 4 nodes no job waits any more, and still avg_queue_delay")
    assert machine.asked == [1, 2, 4]


def test_where_no_job_completes_no_size_will_do() -> None:
    asked: list[int] = []

    def play(sizes: Sequence[int]) -> list[Run]:
        asked.extend(sizes)
        failed = msgspec.structs.replace(NOTHING, failed=1, jobs=1, peak_waiting_jobs=1)
        return [Run("fifo", False, "", size, 0, (), (), summary=failed) for size in sizes]

    found = find(play, read_target("p90_queue_delay<=1h"), Range(1, 10_000, 1))
    assert (found.chosen, asked) == (0, [1, 2])
    assert found.why == (
        "With 2 nodes, no job completes, so there is no p90_queue_delay. `allot sim run` shows "
        "what happens to them."
    )
    assert find(play, read_target("failed<=1"), Range(1, 10_000, 1)).chosen == 1


def test_when_even_the_most_will_not_do() -> None:
    found = find(Machine([9]), read_target("avg_queue_delay<=5min"), Range(1, 12, 4, 2))
    assert found.why == (
        "Even with 12 nodes, avg_queue_delay is 9 min 0 s and not <=5min. Allow more with "
        "--most, or another target."
    )
    assert max(size for size, _ in found.curve) == 12


def test_when_the_least_is_too_much() -> None:
    found = find(Machine([9]), read_target("utilization>=0.5"), Range(4, 12, 4, 2))
    assert found.why.startswith("Even with 4 nodes, which the largest job needs, utilization")


def test_a_job_that_can_never_run_is_told() -> None:
    row = JobOutcome("j7", "t", 1000, 0, Millis(1), never="There is no V100.")

    def play(sizes: Sequence[int]) -> list[Run]:
        return [Run("fifo", False, "", size, 0, (row,), (), summary=NOTHING) for size in sizes]

    with pytest.raises(BadSize, match=r"1 of 1 jobs can never run.*Job j7: There is no V100\."):
        find(play, read_target("avg_jct<=1h"), Range(1, 10, 1))


def test_against_every_size_on_a_real_workload() -> None:
    rows = [
        (at * 7 * MINUTE, 1 + at * 5 % 13, (20 + at * 37 % 90) * MINUTE) for at in range(80)
    ]
    trace = a_trace(rows)

    def play(sizes: Sequence[int]) -> list[Run]:
        return [played(trace, f"{size}x4", "backfill") for size in sizes]

    (condition,) = target = read_target("p90_queue_delay<=25min")
    node = cluster_of("1x4")[0]
    low, guess = least_nodes(trace.jobs, node), busy_nodes(trace.jobs, node)
    found = find(play, target, Range(low, 100, guess, 2))
    by_size = {run.nodes: run.summary for run in play(range(low, 60))}
    good = [size for size, summary in by_size.items() if summary and condition.met(summary)]
    assert found.chosen == min(good)
    assert found.chosen - 1 in dict(found.curve)


# ── beforehand ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["8", "4xV100", "8x3090", "8xA100-80G", "0"])
def test_nodes(text: str) -> None:
    check_node(text)


@pytest.mark.parametrize("text", ["", "x", "2x8", "2x8xA100", "A100", "8x", "1+1", "99999"])
def test_no_nodes(text: str) -> None:
    with pytest.raises(BadSize, match="is not a node"):
        check_node(text)


@pytest.mark.parametrize(
    ("need", "room"),
    [
        (Resources(gpu_milli=1000), 8),
        (Resources(gpu_milli=3000), 2),
        (Resources(gpu_milli=500), 16),
        (Resources(gpu_milli=700), 8),
        (Resources(gpu_milli=9000), 0),
        (Resources(gpu_milli=1000, cpu_milli=50_000), 2),
        (Resources(cpu_milli=1000, memory=600 * GIB), 1),
    ],
)
def test_room_on_a_node(need: Resources, room: int) -> None:
    assert tasks_on(NODE, TraceJob("1", 0, 1, tasks=99, need=need)) == room


def test_the_largest_job_needs_so_many_nodes() -> None:
    jobs = a_trace([(0, 3, 1), (0, 17, 1), (0, 16, 1)]).jobs
    assert least_nodes(jobs, NODE) == 3
    with pytest.raises(BadSize, match=r"Job 1 has tasks of 9 GPU, for which a node of 8 GPU"):
        least_nodes([TraceJob("1", 0, 1, need=Resources(gpu_milli=9 * DEVICE))], NODE)


def test_it_is_looked_for_first_where_the_work_just_fits() -> None:
    jobs = a_trace([(at * HOUR, 8, 3 * HOUR) for at in range(100)]).jobs
    assert busy_nodes(jobs, NODE) == 3
    assert busy_nodes([], NODE) == 1


def test_a_target_that_run_times_alone_miss() -> None:
    jobs = a_trace([(0, 1, 2 * HOUR), (HOUR, 1, 4 * HOUR)]).jobs
    assert hopeless(jobs, read_target("avg_jct<=3h, avg_queue_delay<=0s, makespan<=5h")) == ""
    assert hopeless(jobs, read_target("avg_jct<=2h")) == (
        "avg_jct<=2h is missed by run times alone: if no job ever waited, it would be "
        "3 h 0 min."
    )
    assert "makespan<5h" in hopeless(jobs, read_target("makespan<5h"))
    limited = [msgspec.structs.replace(job, limit_ms=Millis(3 * HOUR)) for job in jobs]
    assert hopeless(limited, read_target("avg_jct<=2h")) == "", "the other one times out"
    limited = [msgspec.structs.replace(job, limit_ms=Millis(HOUR)) for job in jobs]
    assert "no job completes" in hopeless(limited, read_target("avg_jct<=1h"))
    censored = [msgspec.structs.replace(job, ending=Ending.CENSORED) for job in jobs]
    assert hopeless(censored, read_target("makespan<=5h")) == ""
    assert hopeless(censored, read_target("avg_jct<=9h")) == (
        "avg_jct<=9h: even if no job waited, no job completes, so there is no avg_jct."
    )
    above = read_target("avg_jct>=4h, makespan>=1d, throughput_jobs_per_h<=0.1")
    assert hopeless(jobs, above) == "", "fewer nodes may do it"
    assert "throughput" in hopeless(jobs, read_target("throughput_jobs_per_h>=1"))
