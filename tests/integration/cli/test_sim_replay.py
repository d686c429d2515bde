"""`allot sim replay` on the log of a real service that ran real jobs."""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.sim.settings import read_length
from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import Ran, allot

CONFIG = """
virtual_gpus: {type: A100, count: 4}
tenants:
  vision: {guaranteed: {gpu: 4}, queues: {default: {order: skip}}}
"""
OVER = ("succeeded", "failed", "cancelled")


def a_job(command: str, gpu: float, **others: object) -> dict[str, object]:
    need = {"gpu": gpu, "cpu": 0.1, "memory": "16MiB"}
    return {"name": "j", "tenant": "vision", "command": command, "resources": need, **others}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    """A service with a history: job 5 waited for job 1, job 6 was cancelled, job 7 runs."""
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            jobs = [
                cluster.submit(a_job("sleep 0.3", 2, secrets={"KEY": "hunter22"})),
                cluster.submit(a_job("sleep 0.2", 4)),
                cluster.submit(a_job("true", 1)),
                cluster.submit(a_job("false", 1, max_run_time="1h", priority=150)),
                cluster.submit(a_job("sleep 0.1", 0.5, depends_on=[1])),
            ]
            for job in jobs:
                cluster.wait_for(job, *OVER)
            held = cluster.allot("submit", "--held", "-", input=json.dumps(a_job("true", 1)))
            assert held.returncode == 0, held.stderr
            assert cluster.allot("cancel", "6").returncode == 0
            last = cluster.submit(a_job("sleep 600", 1))
            cluster.wait_for(last, "running")
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replay(cluster: RealCluster, *words: str) -> Ran:
    return allot("sim", "replay", "--state", cluster.state, *words)


def as_json(cluster: RealCluster, *words: str) -> dict[str, Any]:
    ran = replay(cluster, "--json", *words)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_the_policy_it_had_gives_what_it_did(cluster: RealCluster) -> None:
    told = as_json(cluster, "--since", "1d", "--policy", "backfill")
    run, compared = told["run"], told["compared"]
    assert (run["jobs"], run["completed"], run["censored"]) == (6, 5, 1)
    assert run["cluster"] == "1 node × 4 A100"
    assert run["dropped"] == {"never ran, so its run time is not known": 1}
    assert compared["jobs"] == 5
    history, again = compared["history"], compared["replay"]
    assert history["preemptions"] == again["preemptions"] == 0
    assert history["p90_jct_s"] == pytest.approx(again["p90_jct_s"], abs=0.15)
    assert history["avg_queue_delay_s"] == pytest.approx(again["avg_queue_delay_s"], abs=0.1)


def test_its_own_policy_gives_the_order_in_which_jobs_started(
    cluster: RealCluster, tmp_path: Path
) -> None:
    out = tmp_path / "jobs.csv"
    ran = replay(cluster, "--since", "1d", "--policy", "own", "--jobs-out", str(out))
    assert ran.code == 0, ran.err
    rows = csv.DictReader(out.read_text().splitlines())
    again = sorted((float(row["start_time"]), row["job_id"]) for row in rows)
    events = cluster.get("/v1/events")
    starts = [str(event["job"]) for event in events if event["kind"] == "AttemptPlaced"]
    assert [job for _, job in again] == starts
    assert "told every run time" not in ran.out
    assert "  this is the policy that was in force, and " in ran.out


def test_a_dependent_job_waits_for_the_other(cluster: RealCluster, tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    ran = replay(cluster, "--since", "1d", "--policy", "backfill", "--jobs-out", str(out))
    assert ran.code == 0, ran.err
    rows = {row["job_id"]: row for row in csv.DictReader(out.read_text().splitlines())}
    assert sorted(rows) == ["1", "2", "3", "4", "5", "7"]
    assert rows["5"]["num_gpus"] == "0.5"
    for job in ("1", "5"):
        told = cluster.get(f"/v1/jobs/{job}")["row"]
        assert float(rows[job]["submit_time"]) * 1000 == pytest.approx(
            told["submitted_at"], abs=1
        )
    assert float(rows["5"]["start_time"]) >= float(rows["1"]["end_time"])


def test_in_words(cluster: RealCluster) -> None:
    ran = replay(cluster, "--since", "12h", "--policy", "srtf", "--cluster", "1x2")
    assert ran.code == 0, ran.err
    assert "srtf on 1 node × 2 gpu, which knew every run time beforehand" in ran.out
    assert "how far replays of this history are off: allot sim replay --policy own" in ran.out
    assert "1 job can never run on these machines" in ran.out
    lines = ran.out.splitlines()
    head = next(at for at, line in enumerate(lines) if "mean wait" in line)
    assert lines[head + 1].startswith("as it was")
    assert lines[head + 2].startswith("srtf *")
    assert "* clairvoyant: it knew every run time beforehand" in ran.out
    assert "of 4 jobs that ended:" in ran.out
    assert "Not ended yet: 1 of 6 jobs." in ran.err
    assert "hunter22" not in ran.out + ran.err


def test_a_report(cluster: RealCluster, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = replay(cluster, "--since", "1d", "--policy", "las2d", "--report", str(page))
    assert ran.code == 0, ran.err
    assert "las2d" in page.read_text()


def test_starting_takes_as_long_as_it_did_unless_said(cluster: RealCluster) -> None:
    told = as_json(cluster, "--since", "1d", "--policy", "fifo")
    assert read_length(told["run"]["settings"]["start"]) > 0
    told = as_json(cluster, "--since", "1d", "--policy", "fifo", "--set", "start=0")
    assert "start" not in told["run"]["settings"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "1d", "--until", "6h", "--policy", "fifo"], "No job ran between"),
        (["--since", "2020-01-01", "--until", "2020-02-01", "--policy", "fifo"], "No job ran"),
        (["--since", "1d", "--until", "2d", "--policy", "fifo"], "--since is not before"),
        (["--since", "soon", "--policy", "fifo"], "neither a length of time nor a date"),
        (["--since=-1d", "--policy", "fifo"], "lies ahead"),
        (["--since", "1d", "--policy", "fife"], "Did you mean fifo"),
        (["--since", "1d", "--policy", "fifo", "--set", "strat=1"], "no such setting"),
        (["--since", "1d", "--policy", "fifo", "--cluster", "no.yaml"], "no.yaml"),
    ],
)
def test_bad_input(cluster: RealCluster, words: list[str], said: str) -> None:
    ran = replay(cluster, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_no_service(tmp_path: Path) -> None:
    ran = allot("sim", "replay", "--state", tmp_path, "--since", "1d", "--policy", "fifo")
    assert ran.code == 3
    assert "No Allotment service answers" in ran.err
    bad = allot("sim", "replay", "--state", tmp_path, "--since", "1d", "--policy", "nope")
    assert bad.code == 2, "what can be checked without the service is checked first"


def test_help_has_examples() -> None:
    ran = allot("sim", "replay", "--help")
    assert ran.code == 0
    assert "allot sim replay --since 30d --policy las2d" in ran.out
