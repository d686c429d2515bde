"""Workloads like the real ones that others published."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from allotment.sim.generate import (
    Verdict,
    anonymous,
    compare,
    default_model,
    fit,
    generate,
    model_to_json,
)
from allotment.sim.generate.default import ABOUT
from allotment.sim.readers import read_trace
from allotment.sim.trace import Trace

TRACES = Path(__file__).parents[5] / "shared" / "traces"

pytestmark = pytest.mark.needs_shared("traces")


@pytest.fixture(scope="module")
def philly() -> Trace:
    return read_trace(TRACES / "philly_sia_82k.csv.zst")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_workload_like_philly(philly: Trace, seed: int):
    report = compare(philly, list(generate(fit(philly), len(philly.jobs), seed)))
    assert report.row("run time").distance <= 0.01
    assert report.row("time between submissions").distance <= 0.07
    assert report.row("devices").distance <= 0.01
    assert report.row("tenant").distance <= 0.01
    assert report.row("hour of the day").distance <= 0.05
    assert report.row("day of the week").distance <= 0.05
    assert report.row("device time of a job").distance <= 0.05
    assert all(row.verdict is not Verdict.POOR for row in report.rows), report.lines()


def test_the_default_model_is_philly(philly: Trace):
    fitted = msgspec.structs.replace(anonymous(fit(philly)), about=ABOUT)
    assert model_to_json(fitted) == model_to_json(default_model())


def test_fractions_and_cpu_only_pods_of_openb():
    (path,) = sorted((TRACES / "openb").glob("*pod*"))
    trace = read_trace(path)
    report = compare(trace, made := list(generate(fit(trace), len(trace.jobs), 1)))
    assert all(before.submit_ms <= after.submit_ms for before, after in pairwise(made))
    assert report.row("devices").distance <= 0.03
    assert report.row("run time").distance <= 0.05
    assert any(job.gpu_milli == 0 for job in made) == any(
        job.gpu_milli == 0 for job in trace.jobs
    )
