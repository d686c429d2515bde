"""Drawing jobs: the same everywhere, at the load that was asked for."""

import os
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import msgspec
import pytest

from allotment.model.quantity import DEVICE
from allotment.sim.generate import BadModel, default_model, drawn, generate, planned
from allotment.sim.trace import Ending, TraceJob

PRINTS_A_WORKLOAD = """
import sys
from allotment.sim.generate import default_model, generate, write_csv
write_csv(generate(default_model(), 2000, 42, 0.7, 64000), sys.stdout)
"""


def load_of(jobs: list[TraceJob], capacity_milli: int) -> float:
    """Return what is in use from the first submission to the last, if nobody waits."""
    first, last = jobs[0].submit_ms, jobs[-1].submit_ms
    used = sum(
        min(job.run_ms, last - job.submit_ms) * job.gpu_milli
        for job in jobs
        if job.gpu_milli <= capacity_milli
    )
    return used / (capacity_milli * (last - first))


def test_the_same_bytes_under_any_hash_seed():
    def printed(hash_seed: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-c", PRINTS_A_WORKLOAD],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout

    once = printed("1")
    assert once.count(b"\n") == 2001
    assert printed("2") == once


GOLDEN = [
    (1704067200000, 1539000, 1, "team3"),
    (1704090119000, 2251000, 1, "team1"),
    (1704106450000, 56000, 1, "team1"),
    (1704135644000, 1000, 1, "team5"),
]


def test_these_very_jobs_for_ever():
    """A change here changes everybody's workloads: say so in the changelog."""
    jobs = list(generate(default_model(), 1000, 1))
    assert [(job.submit_ms, job.run_ms, job.tasks, job.tenant) for job in jobs[::250]] == GOLDEN


def test_another_seed_gives_other_jobs():
    model = default_model()
    assert list(generate(model, 50, 1)) == list(generate(model, 50, 1))
    assert list(generate(model, 50, 1)) != list(generate(model, 50, 2))


def test_jobs_come_in_order_and_are_named_by_number():
    jobs = list(generate(default_model(), 3000, 5))
    assert [job.id for job in jobs] == [str(number) for number in range(1, 3001)]
    assert all(before.submit_ms <= after.submit_ms for before, after in pairwise(jobs))
    assert all(job.submit_ms % 1000 == job.run_ms % 1000 == 0 for job in jobs)
    assert all(job.run_ms > 0 for job in jobs)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("jobs", "devices", "load"),
    [(60, 4, 0.5), (300, 16, 0.9), (2000, 128, 0.9), (5000, 512, 0.8), (5000, 64, 0.1),
     (3000, 64, 1.5)],
)  # fmt: skip
def test_the_load_is_what_was_asked_for(jobs: int, devices: int, load: float, seed: int):
    capacity = devices * DEVICE
    span, told = planned(default_model(), jobs, seed, load, capacity)
    made = list(drawn(default_model(), jobs, seed, span))
    assert load_of(made, capacity) == pytest.approx(load, rel=0.015)
    assert told is not None
    assert told.load == pytest.approx(load_of(made, capacity), rel=0.005)
    assert told.too_large == sum(job.gpu_milli > capacity for job in made)
    whole = list(generate(default_model(), jobs, seed))
    cut = [job for job, old in zip(made, whole, strict=True) if job.run_ms != old.run_ms]
    assert len(cut) == told.cut <= jobs // 20
    assert {job.run_ms for job in cut} <= {told.longest_ms}
    assert told.longest_ms == pytest.approx(span.length_ms / 2, abs=1)


def test_most_of_the_work_is_done_while_jobs_come():
    made = list(generate(default_model(), 2000, 1, 0.9, 128 * DEVICE))
    end = max(job.submit_ms + job.run_ms for job in made)
    span = made[-1].submit_ms - made[0].submit_ms
    assert end - made[0].submit_ms <= 1.5 * span


def test_too_few_jobs_for_a_load_are_refused_with_how_many_would_do():
    with pytest.raises(BadModel, match=r"10 jobs are too few for a load of 0\.8: about [\d,]+"):
        generate(default_model(), 10, 1, 0.8, 512 * DEVICE)


def test_without_a_load_the_rate_is_the_models():
    model = default_model()
    jobs = list(generate(model, 4000, 3))
    mean_ms = (jobs[-1].submit_ms - jobs[0].submit_ms) / 3999
    assert mean_ms == pytest.approx(model.span_ms / (model.jobs - 1), rel=0.001)


def test_a_load_changes_when_jobs_come_and_the_longest_runs_alone():
    model = default_model()
    plain = generate(model, 300, 4)
    span, _ = planned(model, 300, 4, 0.5, 8 * DEVICE)
    for one, other in zip(plain, drawn(model, 300, 4, span), strict=True):
        expected = msgspec.structs.replace(one, run_ms=min(one.run_ms, span.longest_ms))
        assert msgspec.structs.replace(other, submit_ms=one.submit_ms) == expected


def test_failures_have_their_shares():
    model = msgspec.structs.replace(default_model(), failed_ppm=200_000, cancelled_ppm=100_000)
    endings = [job.ending for job in generate(model, 20_000, 8)]
    assert endings.count(Ending.FAILED) / 20_000 == pytest.approx(0.2, abs=0.01)
    assert endings.count(Ending.CANCELLED) / 20_000 == pytest.approx(0.1, abs=0.01)


def test_jobs_are_not_held_in_memory():
    tracemalloc.start()
    try:
        for _ in generate(default_model(), 10_000, 6, 0.8, 64_000):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("jobs", "seed", "load", "capacity", "said"),
    [
        (0, 1, None, 0, "at least 1"),
        (-5, 1, None, 0, "at least 1"),
        (10, -1, None, 0, "seed -1"),
        (10, 1, 0.0, 1000, "load 0.0"),
        (10, 1, -0.5, 1000, "load -0.5"),
        (10, 1, float("nan"), 1000, "load nan"),
        (10, 1, float("inf"), 1000, "load inf"),
        (10, 1, 1e-300, 1000, "too small"),
        (10, 1, 0.8, 0, "size of the cluster"),
        (10, 1, 0.8, -8, "size of the cluster"),
    ],
)
def test_bad_numbers_are_refused_at_once(
    jobs: int, seed: int, load: float | None, capacity: int, said: str
):
    with pytest.raises(BadModel, match=said):
        generate(default_model(), jobs, seed, load, capacity)


def test_a_load_without_devices_is_refused():
    model = default_model()
    sizes = tuple(msgspec.structs.replace(size, gpu_milli=0) for size in model.sizes)
    with pytest.raises(BadModel, match="ask for devices"):
        generate(msgspec.structs.replace(model, sizes=sizes), 10, 1, 0.8, 1000)
