"""What Allotment does with a real GPU: enforced devices, memory handed over, turns, packing."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.driver.self_test import kept_test
from allotment.backends.local.machine import real_devices
from allotment.backends.local.memory_by_process import Memory, memory_of
from allotment.backends.local.sharing import USUAL_PIPE, mps_here
from tests.gpu.conftest import RUN, Report, Trainer, hog, seconds_since
from tests.support.cluster import RealCluster, until

pytestmark = [pytest.mark.needs_root, pytest.mark.slow]
NOTE = "driver-checkpoint.json"
BY_DRIVER: dict[str, Any] = {"checkpoint": {"driver": True}}


def device() -> Memory:
    return memory_of(real_devices()[0][0].uuid)


def nearly_all() -> int:
    """MiB that are there only while no trainer has memory."""
    return (device().total >> 20) - 2500


def took_ms(cluster: RealCluster, words: str) -> dict[str, float]:
    """Return the steps and their times of the last line of the service's log that says so."""
    log = cluster.state / "service.log"
    told: list[str] = []

    def is_told() -> bool:
        lines = log.read_text(errors="replace").splitlines()
        told[:] = [line for line in lines if words in line]
        return bool(told)

    until(is_told, f"the log to say: {words}")
    names = "lock|checkpoint|restore|unlock|seen_gone|bytes"
    found = re.findall(rf"\b({names})\W+([\d.]+)", told[-1])
    return {name: float(number) for name, number in found}


# ── devices ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.needs_gpu("that devices are found, and the node's test of the driver")
def test_the_doctor_finds_the_gpu_and_what_the_driver_can(
    cluster: RealCluster, report: Report, undisturbed: Callable[[], str]
) -> None:
    assert undisturbed, "it begins now, and is there once it is needed"
    until(lambda: kept_test(cluster.state) is not None, "the node's test")
    found = kept_test(cluster.state)
    assert found is not None
    doctor = cluster.allot("doctor").stdout
    print(doctor)
    report(
        "self-test", passed=found.passed, why=found.why, bytes=found.size, driver=found.driver,
        away_ms=found.away_ms, back_ms=found.back_ms,
    )  # fmt: skip
    nodes = cluster.allot("nodes").stdout
    print(nodes)
    (first, *_) = real_devices()
    assert first[0].type in nodes
    assert "through NVML" in doctor
    assert found.passed, found.why
    assert "can take that of a suspended job" in doctor
    assert "counted, not enforced" in doctor


@pytest.mark.needs_gpu("that a job without a GPU cannot open one")
def test_a_job_has_the_devices_it_asked_for_and_no_others(
    cluster: RealCluster, report: Report
) -> None:
    look = "ls /dev | grep nvidia; head -c 0 /dev/nvidia0 && echo opened"
    jobs = [
        cluster.submit({
            "name": f"look-{gpus}", "tenant": "own", "command": ["sh", "-c", f"{look}; true"],
            "resources": {"gpu": gpus, "cpu": 1, "memory": "1GiB"},
        })
        for gpus in (0, 1)
    ]  # fmt: skip
    for job in jobs:
        cluster.wait_for(job, "succeeded", "failed")
    without, with_one = (cluster.allot("logs", str(job)).stdout for job in jobs)
    assert "opened" not in without
    assert "nvidia0" not in without
    assert "opened" in with_one
    report("devices", without=without.split(), with_one=with_one.split())


# ── memory handed over ──────────────────────────────────────────────────────────────────


def suspended_by(trainer: Trainer, no: int) -> str:
    """Return the grade of the last suspension, once that is told."""
    until(lambda: len(trainer.events("TaskSuspended")) >= no, "how it is suspended")
    return trainer.events("TaskSuspended")[-1]["detail"]["how"]["grade"]


@pytest.mark.needs_gpu("device memory handed over by the driver and taken back, with times")
def test_memory_is_handed_over_and_taken_back_and_the_losses_are_the_same(
    cluster: RealCluster, report: Report, undisturbed: Callable[[], str]
) -> None:
    same = undisturbed()
    trainer = Trainer(cluster, "by-driver", **BY_DRIVER).submit(*RUN)
    trainer.until_step(200)
    top = cluster.allot("top", "--once", "--json").stdout
    report("top", rows=json.loads(top))
    before = device()
    began = time.monotonic()
    assert cluster.allot("suspend", str(trainer.job)).returncode == 0
    assert suspended_by(trainer, 1) == "driver_checkpoint"
    away_s = seconds_since(began)
    freed = before.used - device().used
    wanted = hog(cluster, nearly_all())
    cluster.wait_for(wanted, "succeeded", "failed")
    assert "had" in cluster.allot("logs", str(wanted)).stdout
    at = trainer.steps()
    out = took_ms(cluster, "device memory was taken away")

    began = time.monotonic()
    assert cluster.allot("resume", str(trainer.job)).returncode == 0
    trainer.until_step(at + 1)
    back_s = seconds_since(began)
    back = took_ms(cluster, "device memory was given back")

    folder = next((cluster.state / "tasks").glob(f"{trainer.job}/**/status.json")).parent
    cluster.allot("suspend", str(trainer.job))
    until(lambda: (folder / NOTE).exists(), "the second hand-over to begin")
    cluster.kill()
    cluster.up()
    assert suspended_by(trainer, 2) == "driver_checkpoint"
    assert before.used - device().used >= freed * 9 // 10
    cluster.allot("resume", str(trainer.job))
    cluster.wait_for(trainer.job, "succeeded", "failed")
    size = out.get("bytes", 0.0)
    report(
        "driver checkpoint", freed_mib=freed >> 20, suspend_to_told_s=away_s,
        resume_to_step_s=back_s, away_ms=out, back_ms=back,
        away_gb_s=round(size / 1e6 / max(1.0, out.get("checkpoint", 0.0)), 2),
        back_gb_s=round(size / 1e6 / max(1.0, back.get("restore", 0.0)), 2),
        killed_in_the_middle=True, attempts=len(trainer.events("AttemptPlaced")),
        same=trainer.digest() == same,
    )  # fmt: skip
    assert trainer.digest() == same
    assert len(trainer.events("AttemptPlaced")) == 1
    assert freed > RUN[1] << 20


def told_ms(trainer: Trainer) -> int:
    """Return how long its last suspension took, until what it keeps was measured."""
    asked, told = (trainer.events(kind)[-1] for kind in ("AttemptSuspended", "TaskSuspended"))
    return told["at"] - asked["at"]


@pytest.mark.needs_gpu("device memory given back by a PyTorch job itself and taken again")
def test_a_job_gives_its_memory_back_itself_and_the_losses_are_the_same(
    cluster: RealCluster, report: Report, undisturbed: Callable[[], str]
) -> None:
    same = undisturbed()
    trainer = Trainer(cluster, "offloads").submit(*RUN, "offload")
    trainer.until_step(200)
    for no in (1, 2):
        before = device().used
        cluster.allot("suspend", str(trainer.job))
        grade = suspended_by(trainer, no)
        how = trainer.events("TaskSuspended")[-1]["detail"]["how"]
        freed = before - device().used
        if no == 1:
            wanted = hog(cluster, nearly_all() - 1000)
            cluster.wait_for(wanted, "succeeded", "failed")
            assert "had" in cluster.allot("logs", str(wanted)).stdout
        at = trainer.steps()
        began = time.monotonic()
        cluster.allot("resume", str(trainer.job))
        trainer.until_step(at + 1)
        report(
            "offloaded", no=no, grade=grade, kept_mib=how["kept"], freed_mib=freed >> 20,
            away_ms=told_ms(trainer), resume_to_step_s=seconds_since(began),
        )  # fmt: skip
        assert grade == "offloaded"
        assert freed > RUN[1] << 20
    cluster.wait_for(trainer.job, "succeeded", "failed")
    report("offloaded", same=trainer.digest() == same)
    assert trainer.digest() == same


@pytest.mark.needs_gpu("device memory given back by a Keras job on JAX and taken again")
def test_a_keras_job_gives_its_memory_back_and_the_losses_are_the_same(
    cluster: RealCluster, report: Report
) -> None:
    if not all(find_spec(name) for name in ("keras", "jax")):
        pytest.skip("a GPU, and no Keras or no JAX: pip install keras jax[cuda13]")
    run = 600, 2048, 5
    whole = Trainer(cluster, "keras-whole", program="keras_trainer.py").submit(*run)
    cluster.wait_for(whole.job, "succeeded", "failed", seconds=100)
    trainer = Trainer(cluster, "keras", program="keras_trainer.py").submit(*run)
    trainer.until_step(100)
    before = device().used
    cluster.allot("suspend", str(trainer.job))
    grade = suspended_by(trainer, 1)
    freed = before - device().used
    wanted = hog(cluster, nearly_all() - 1000)
    cluster.wait_for(wanted, "succeeded", "failed")
    assert "had" in cluster.allot("logs", str(wanted)).stdout
    at, began = trainer.steps(), time.monotonic()
    cluster.allot("resume", str(trainer.job))
    trainer.until_step(at + 1)
    back_s = seconds_since(began)
    cluster.wait_for(trainer.job, "succeeded", "failed", seconds=100)
    same = trainer.digest() == whole.digest()
    report(
        "offloaded by Keras on JAX", grade=grade, freed_mib=freed >> 20,
        away_ms=told_ms(trainer), resume_to_step_s=back_s, same=same,
    )  # fmt: skip
    assert grade == "offloaded"
    assert freed > 1900 << 20
    assert same
    assert len(trainer.events("AttemptPlaced")) == 1


@pytest.mark.needs_gpu("that the memory of a frozen job stays, and is not lent")
def test_a_frozen_job_keeps_its_memory_and_who_needs_it_waits(
    cluster: RealCluster, report: Report
) -> None:
    trainer = Trainer(cluster, "frozen").submit(100_000, 1024)
    trainer.until_step(20)
    before = device()
    cluster.allot("suspend", str(trainer.job))
    cluster.wait_for(trainer.job, "suspended")
    wanted = hog(cluster, nearly_all())
    short = "too little is free of: GPU memory"
    until(lambda: short in cluster.allot("why", str(wanted)).stdout, "why it waits")
    why = cluster.allot("why", str(wanted)).stdout
    held = device().used
    cluster.allot("cancel", str(trainer.job))
    cluster.wait_for(wanted, "succeeded", "failed")
    report("frozen", held_mib=held >> 20, before_mib=before.used >> 20, why=why.splitlines())
    assert held >= before.used * 9 // 10
    assert "had" in cluster.allot("logs", str(wanted)).stdout


# ── turns and pairs ─────────────────────────────────────────────────────────────────────


def pace(trainer: Trainer, first: int, last: int) -> float:
    """Return the median of what its steps took, in milliseconds."""
    took = sorted(float(line.split()[1]) for line in trainer.lines()[first:last])
    return round(1000 * took[len(took) // 2], 2)


@pytest.mark.needs_gpu("turns of two jobs, what a switch costs, and both at once")
def test_two_jobs_take_turns_and_are_packed_if_both_gain(
    cluster: RealCluster, report: Report
) -> None:
    first, second = (
        Trainer(cluster, f"turns-{n}", queue="turns").submit(100_000, 512, 25) for n in range(2)
    )
    both = (first, second)
    until(
        lambda: any(job.events("PackingMeasured") for job in both), "a pair to be measured", 100
    )
    switches = [event for job in both for event in job.events("AttemptSuspended")]
    measured = next(event for job in both for event in job.events("PackingMeasured"))
    at = [job.steps() for job in both]
    alone = [pace(job, 20, min(200, count)) for job, count in zip(both, at, strict=True)]
    until(lambda: all(job.steps() > n + 100 for job, n in zip(both, at, strict=True)), "both")
    together = [pace(job, -100, -1) for job in both]
    report(
        "turns and packing", switches=len(switches), measured=measured["detail"],
        step_ms_alone=alone, step_ms_together=together, used_mib=device().used >> 20,
    )  # fmt: skip
    for job in both:
        cluster.allot("cancel", str(job.job))
    assert measured["detail"]["kept"]
    assert [len(job.events("AttemptPlaced")) for job in both] == [1, 1]


@pytest.mark.needs_gpu("turns of two jobs, and what they cost")
def test_two_jobs_take_turns_at_little_cost(cluster: RealCluster, report: Report) -> None:
    both = [
        Trainer(cluster, f"slices-{n}", queue="slices").submit(100_000, 512, 5)
        for n in range(2)
    ]

    def turns() -> int:
        return sum(len(job.events("AttemptSuspended")) for job in both)

    # Until both have begun, a turn is spent on starting.
    until(lambda: turns() >= 2 and all(job.steps() > 50 for job in both), "both to have begun")
    began, first, before = time.monotonic(), turns(), [job.steps() for job in both]
    until(lambda: turns() >= first + 4, "four more turns")
    lasted, done = time.monotonic() - began, [job.steps() for job in both]
    made = [now - then for now, then in zip(done, before, strict=True)]
    step_s = pace(both[0], 20, before[0]) / 1000
    loss = 1 - sum(made) * step_s / lasted
    report(
        "turns", seconds=round(lasted, 1), turns=turns() - first, steps=made,
        step_ms=round(1000 * step_s, 2), lost=round(loss, 4), used_mib=device().used >> 20,
    )  # fmt: skip
    for job in both:
        cluster.allot("cancel", str(job.job))
    assert all(made)
    assert [len(job.events("AttemptPlaced")) for job in both] == [1, 1]


@pytest.mark.needs_gpu("turns of two jobs that each need most of the memory")
def test_jobs_that_do_not_fit_at_once_take_turns_by_the_driver(
    cluster: RealCluster, report: Report
) -> None:
    most = f"{(device().total >> 20) * 6 // 10}MiB"
    need = {"gpu": 1, "cpu": 2, "memory": "24GiB", "gpu_memory": most}
    fields: dict[str, Any] = {"queue": "slices", "resources": need, **BY_DRIVER}
    both = [Trainer(cluster, f"large-{n}", **fields).submit(100_000, 1024) for n in range(2)]

    def told(job: Trainer) -> list[str]:
        return [each["detail"]["how"]["grade"] for each in job.events("TaskSuspended")]

    until(lambda: all(len(told(job)) >= 2 for job in both), "two turns of each", 110)
    grades = [told(job) for job in both]
    report("large turns", grades=grades, steps=[job.steps() for job in both])
    for job in both:
        cluster.allot("cancel", str(job.job))
    assert set(grades[0] + grades[1]) == {"driver_checkpoint"}
    assert [len(job.events("AttemptPlaced")) for job in both] == [1, 1]


# ── parts ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def mps() -> Iterator[None]:
    """Run NVIDIA's daemon of MPS where programs look for it."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or Path(USUAL_PIPE).exists():
        pytest.skip("no program nvidia-cuda-mps-control, or a daemon that is not this test's")
    with tempfile.TemporaryDirectory() as logs:
        env = {**os.environ, "CUDA_MPS_LOG_DIRECTORY": logs}
        subprocess.run([control, "-d"], env=env, check=True)
        try:
            until(lambda: mps_here() is not None, "the daemon")
            yield
        finally:
            subprocess.run([control], input="quit -t 5\n", text=True, env=env, check=False)
            until(lambda: mps_here() is None, "the daemon to be gone")
            shutil.rmtree(USUAL_PIPE, ignore_errors=True)


@pytest.mark.needs_gpu("that two jobs share a device by MPS, each with its limits")
@pytest.mark.usefixtures("mps")
def test_jobs_with_a_part_are_told_their_limits_by_mps(
    cluster: RealCluster, report: Report
) -> None:
    doctor = cluster.allot("doctor").stdout
    assert f"MPS runs ({USUAL_PIPE})" in doctor

    def part(name: str, mebibytes: int) -> int:
        argv = [sys.executable, str(Path(__file__).parent / "hog.py"), str(mebibytes)]
        limits = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
        words = f'echo "{" ".join(f"${each}" for each in limits)}"; exec {shlex.join(argv)}'
        return cluster.submit({
            "name": name, "tenant": "own", "command": ["sh", "-c", words],
            "resources": {"gpu": 0.5, "cpu": 1, "memory": "2GiB", "gpu_memory": "8GiB"},
        })  # fmt: skip

    jobs = [part("within", 4096), part("beyond", 12288)]
    for job in jobs:
        cluster.wait_for(job, "succeeded", "failed")
    within, beyond = (cluster.allot("logs", str(job)).stdout for job in jobs)
    report("MPS", within=within.splitlines(), beyond=beyond.splitlines())
    assert "50 0=8192M" in within
    assert "had 4096 MiB" in within
    assert "CUDA error" in beyond
