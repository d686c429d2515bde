"""`allot eta` and `allot submit --dry-run`: of canned answers, and of a real service."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.model.forecast import Counted, Ground
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.service.estimate_view import Accuracy, Outlook, Place, StartEstimate
from allotment.service.estimating import ASSUMPTIONS
from tests.integration.cli.canned import Answer, Service
from tests.support.cluster import RealCluster, a_real_cluster, end_launchers
from tests.support.invoke import allot

HOUR, MINUTE = 3_600_000, 60_000
NOW = 1_790_000_000_000

LATER = StartEstimate(
    job=JobId(12),
    name="train",
    outlook=Outlook.LATER,
    asked_at=NOW,
    earliest=NOW + 55 * MINUTE,
    expected=NOW + 2 * HOUR + 5 * MINUTE,
    latest=NOW + 50 * HOUR,
    places=tuple(Place(f"a-node-of-a-long-name-{n}", (0, 1, 2, 3)) for n in range(6)),
    entitlement=Entitlement.OPPORTUNISTIC,
    basis=(Counted(Ground.SAME_NAME, 10), Counted(Ground.UNKNOWN, 2)),
    confidence="weak: nothing is known of how long 2 of 12 jobs run",
    assumptions=ASSUMPTIONS,
)


def canned(service: Service, found: StartEstimate) -> None:
    service.routes["GET /v1/jobs/12/eta"] = Answer(msgspec.json.encode(found))


def test_a_range_in_words_of_eighty_columns(service: Service, state: Path) -> None:
    canned(service, LATER)
    ran = allot("eta", "12", "--state", state)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    text = " ".join(ran.out.split())
    assert text.startswith("Job 12 (train) starts in 2h5m (")
    assert "At the earliest in 55m (" in text
    assert "at the latest in 2d2h (2026-09-2" in text
    assert "and 2 more nodes; borrowed, until another tenant reclaims it." in text
    assert "12, 10 from earlier jobs of the same user and name; 2 from nothing known." in text
    assert "Confidence: weak: nothing is known of how long 2 of 12 jobs run." in text
    assert "Assumed: Nobody submits" in text


def test_json_is_the_answer_itself(service: Service, state: Path) -> None:
    canned(service, LATER)
    ran = allot("eta", "12", "--state", state, "--json")
    assert msgspec.json.decode(ran.out, type=StartEstimate) == LATER


def test_what_cannot_be_told(service: Service, state: Path) -> None:
    found = msgspec.structs.replace(
        LATER, outlook=Outlook.UNKNOWN, expected=None, latest=None, places=(),
        entitlement=None, note="Why.", not_before=NOW + HOUR,
    )  # fmt: skip
    canned(service, found)
    text = " ".join(allot("eta", "12", "--state", state).out.split())
    assert text.startswith("Job 12 (train) waits, and its start cannot be estimated. Why.")
    assert "At the earliest in 55m (" in text
    assert "Likely not before" in text


def test_the_earliest_start_names_who_would_have_to_end(service: Service, state: Path) -> None:
    found = msgspec.structs.replace(
        LATER, outlook=Outlook.UNKNOWN, expected=None, latest=None, places=(),
        entitlement=None, note="Why.", endless=(JobId(7),),
    )  # fmt: skip
    canned(service, found)
    text = " ".join(allot("eta", "12", "--state", state).out.split())
    assert "if job 7 ended at once." in text
    assert "not before" not in text
    canned(service, msgspec.structs.replace(found, endless=(JobId(7), JobId(8))))
    assert "if they ended at once." in " ".join(
        allot("eta", "12", "--state", state).out.split()
    )


@pytest.mark.parametrize(
    ("outlook", "said"),
    [
        (Outlook.STARTED, "has started, at "),
        (Outlook.NOW, "starts now."),
        (Outlook.NEVER, "cannot start as things are now."),
    ],
)
def test_in_a_word(service: Service, state: Path, outlook: Outlook, said: str) -> None:
    canned(service, msgspec.structs.replace(LATER, outlook=outlook, expected=NOW))
    assert said in allot("eta", "12", "--state", state).out


def test_accuracy(service: Service, state: Path) -> None:
    found = Accuracy(0, 10, 7, 5 * MINUTE, 4, 5, 2, 1)
    service.routes["GET /v1/estimates"] = Answer(msgspec.json.encode(found))
    ran = allot("eta", "--accuracy", "--state", state)
    assert ran.out.splitlines() == [
        "Of 10 estimates, 7 can be judged: their jobs have started.",
        "  Median error: 5m, either way.",
        "  Within the range told: 4 of 5 (80%).",
        "  2 of jobs that still wait.",
        "  1 of jobs that ended without having started.",
    ]
    service.routes["GET /v1/estimates"] = Answer(msgspec.json.encode(Accuracy(0, 0, 0)))
    assert "No estimate was given yet." in allot("eta", "--accuracy", "--state", state).out


@pytest.mark.parametrize("words", [(), ("12", "--accuracy")])
def test_a_job_or_accuracy(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = allot("eta", *words, "--state", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "Name a job, or ask for --accuracy." in ran.err


# ── a real service ──────────────────────────────────────────────────────────────────────

CONFIG = """
virtual_gpus: {type: A100, count: 2}
tenants: {vision: {guaranteed: {gpu: 2}}}
"""
JOB = """
name: train
tenant: vision
resources: {gpu: 2, cpu: 1, memory: 64MiB}
max_run_time: 1h
command: sleep 60
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            yield cluster
    finally:
        end_launchers(folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_whether_where_and_when(cluster: RealCluster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    tried = cluster.allot("submit", str(file), "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.startswith("Job train would start now.\n")
    assert "GPU 0,1, within its tenant's guarantee." in tried.stdout
    assert cluster.get("/v1/jobs")["items"] == []

    for _ in range(2):
        assert cluster.allot("submit", str(file)).returncode == 0
    cluster.wait_for(1, "running")
    told = cluster.allot("eta", "2")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("Job 2 (train) starts in ")
    assert "an upper bound" in told.stdout
    found = json.loads(cluster.allot("submit", str(file), "--dry-run", "--json").stdout)
    assert found["outlook"] == "later"
    assert abs(found["expected"] - found["asked_at"] - 2 * HOUR) < 5 * MINUTE

    file.write_text(JOB.replace("gpu: 2", "gpu: 3"))
    refused = cluster.allot("submit", str(file), "--dry-run")
    assert (refused.returncode, refused.stdout) == (1, "")
    cluster.allot("cancel", "2")
    cluster.wait_for(2, "cancelled")
    assert "1 of jobs that ended" in cluster.allot("eta", "--accuracy").stdout


def test_what_no_engine_can_do_is_refused_as_by_a_submission(
    cluster: RealCluster, tmp_path: Path
) -> None:
    file = tmp_path / "ranks.yaml"
    file.write_text(f"{JOB}\nmpi: pmix")
    dry, real = (cluster.allot("submit", str(file), *words) for words in (("--dry-run",), ()))
    assert (dry.returncode, dry.stderr) == (1, real.stderr)
    assert "No engine here can start its tasks as the ranks" in dry.stderr
