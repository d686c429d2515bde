"""`allot objectives`: of canned answers, and of a real service."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.metrics.objectives import JobConcerned, Measured
from allotment.model.objectives import Objective
from allotment.model.quantity import HOUR, MINUTE
from allotment.service.objectives_view import ObjectivesReport
from tests.integration.cli.canned import Answer, Service
from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import allot

FIRST = 1_790_000_000_000
CONFIG = """
virtual_gpus: {type: A100, count: 4}
tenants:
  vision:
    guaranteed: {gpu: 2}
    objectives: {guarantee_back_within: 1m, wait_within_guarantee: 1ms, availability: 99.9%}
  nlp: {guaranteed: {gpu: 2}}
"""
LATE = (JobConcerned(7, "train", 20 * MINUTE, FIRST), JobConcerned(9, "eval", 11 * MINUTE, 0))


def told(*rows: Measured) -> ObjectivesReport:
    return ObjectivesReport(FIRST, FIRST + HOUR, FIRST, 0, rows)


BROKEN = told(
    Measured(
        "vision", Objective.WAIT, 10 * MINUTE, False, 20 * MINUTE, 20 * MINUTE, 20 * MINUTE,
        31, 2, LATE,
    ),
    Measured("vision", Objective.AVAILABILITY, 995_000, False, 990_000, 500_000, 0, 1, 1),
    Measured("nlp", Objective.GUARANTEE_BACK, 2 * MINUTE, True, 9000, 8000, 9000, 4, 0),
    Measured("nlp", Objective.WAIT, MINUTE, True, 0, 0, 0, 0, 0),
)  # fmt: skip


def test_in_words(service: Service, state: Path) -> None:
    service.routes["GET /v1/objectives"] = Answer(msgspec.json.encode(BROKEN))
    ran = allot("objectives", "--state", state, "--since", "3d")
    assert ran.code == 0, ran.err
    table, _, words = ran.out.partition("\n\n")
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["TENANT", "OBJECTIVE", "TARGET", "KEPT", "WORST", "P99", "CASES", "BROKEN"],
        ["vision", "wait", "within", "guarantee", "10m", "NO", "20m", "20m", "31", "2"],
        ["vision", "availability", "99.5%", "NO", "0%", "50%", "1", "1"],
        ["nlp", "guarantee", "back", "2m", "yes", "9s", "8s", "4", "0"],
        ["nlp", "wait", "within", "guarantee", "1m", "-", "-", "-", "0", "0"],
    ]
    assert words.splitlines() == [
        "vision: 2 times of 31 a job within its guarantee had not started within 10m.",
        "  job 7 (train) waited 20m",
        "  job 9 (eval) waited 11m, and still waits",
        "vision could have 99% of its guarantee; the objective is 99.5%.",
    ]


def test_it_fits_a_screen_of_eighty_columns(
    service: Service, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    service.routes["GET /v1/objectives"] = Answer(msgspec.json.encode(BROKEN))
    ran = allot("objectives", "--state", state, terminal=True)
    assert max(map(len, ran.out.splitlines())) <= 80


def test_without_objectives(service: Service, state: Path) -> None:
    service.routes["GET /v1/objectives"] = Answer(msgspec.json.encode(told()))
    ran = allot("objectives", "--state", state)
    assert ran.out.splitlines()[-1] == "No tenant has service objectives."
    kept = told(BROKEN.rows[2])
    service.routes["GET /v1/objectives"] = Answer(msgspec.json.encode(kept))
    assert allot("objectives", "--state", state).out.endswith("Every objective was met.\n")


def test_bad_input(tmp_path: Path) -> None:
    ran = allot("objectives", "--state", tmp_path, "--since", "1h", "--until", "2h")
    assert (ran.code, ran.out) == (2, "")
    assert "--since is not before --until" in ran.err
    assert allot("objectives", "--state", tmp_path).code == 3


# ── a real service ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_real_service(cluster: RealCluster) -> None:
    """What was borrowed comes back within a minute; the job waited longer than 1 ms."""
    need = {"gpu": 2, "cpu": 0.1, "memory": "16MiB"}
    job = {"name": "j", "command": "sleep 60", "resources": need}
    lent = [cluster.submit({**job, "tenant": "nlp"}) for _ in range(2)]
    for each in lent:
        cluster.wait_for(each, "running")
    own = cluster.submit({**job, "tenant": "vision", "command": "sleep 0.1"})
    cluster.wait_for(own, "succeeded")
    words = ("--state", cluster.state)
    found = json.loads(allot("objectives", *words, "--json").out)
    rows = {row["objective"]: row for row in found["rows"]}
    assert {row["tenant"] for row in found["rows"]} == {"vision"}
    back = rows["guarantee_back_within"]
    assert (back["kept"], back["cases"], back["broken"]) == (True, 1, 0)
    wait = rows["wait_within_guarantee"]
    assert (wait["kept"], [each["job"] for each in wait["jobs"]]) == (False, [own])
    assert wait["jobs"][0]["ms"] >= back["worst"]
    assert rows["availability"]["measured"] == 1_000_000
    ran = allot("objectives", *words)
    assert ran.code == 0, ran.err
    assert f"job {own} (j) waited" in ran.out
