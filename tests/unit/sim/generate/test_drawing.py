"""Drawing jobs: the same everywhere, at the load that was asked for."""

import os
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import msgspec
import pytest

from allotment.model.quantity import DEVICE
from allotment.sim.generate import BadModel, default_model, generate
from allotment.sim.trace import Ending, TraceJob

PRINTS_A_WORKLOAD = """
import sys
from allotment.sim.generate import default_model, generate, write_csv
write_csv(generate(default_model(), 2000, 42, 0.7, 64000), sys.stdout)
"""


def load_of(jobs: list[TraceJob], capacity_milli: int) -> float:
    asked = sum(job.run_ms * job.gpu_milli for job in jobs)
    return asked / (capacity_milli * (jobs[-1].submit_ms - jobs[0].submit_ms))


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


@pytest.mark.parametrize("load", [0.1, 0.8, 1.5])
@pytest.mark.parametrize("devices", [64, 512])
@pytest.mark.parametrize("jobs", [10, 5000])
def test_the_load_is_what_was_asked_for(load: float, devices: int, jobs: int):
    drawn = list(generate(default_model(), jobs, 9, load, devices * DEVICE))
    assert load_of(drawn, devices * DEVICE) == pytest.approx(load, rel=0.03)


def test_without_a_load_the_rate_is_the_models():
    model = default_model()
    jobs = list(generate(model, 4000, 3))
    mean_ms = (jobs[-1].submit_ms - jobs[0].submit_ms) / 3999
    assert mean_ms == pytest.approx(model.span_ms / (model.jobs - 1), rel=0.001)


def test_a_load_changes_when_jobs_come_and_nothing_else():
    model = default_model()
    plain = generate(model, 300, 4)
    scaled = generate(model, 300, 4, 0.5, 8 * DEVICE)
    for one, other in zip(plain, scaled, strict=True):
        assert msgspec.structs.replace(one, submit_ms=0) == msgspec.structs.replace(
            other, submit_ms=0
        )


def test_failures_have_their_shares():
    model = msgspec.structs.replace(default_model(), failed_ppm=200_000, cancelled_ppm=100_000)
    endings = [job.ending for job in generate(model, 20_000, 8)]
    assert endings.count(Ending.FAILED) / 20_000 == pytest.approx(0.2, abs=0.01)
    assert endings.count(Ending.CANCELLED) / 20_000 == pytest.approx(0.1, abs=0.01)


def test_jobs_are_not_held_in_memory():
    tracemalloc.start()
    try:
        for _ in generate(default_model(), 30_000, 6, 0.8, 64_000):
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
