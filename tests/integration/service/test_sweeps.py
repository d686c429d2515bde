"""Sweeps on real processes: the bad trials are stopped, the best goes on, whatever dies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.client import Client
from allotment.client.errors import Refused
from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.training import loss_of, training

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants: {us: {guaranteed: {gpu: 4}}}
"""
RUNG = 50


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable_once, CONFIG) as running:
        yield running


def a_sweep(
    cluster: RealCluster, parameters: object, steps: int = 10**6, **more: object
) -> int:
    sweep = {
        "parameters": parameters,
        "metric": "loss",
        "halving": {"rungs": [RUNG], "eta": 3},
        **more,
    }
    return cluster.submit({**training(steps), "sweep": sweep})


def shown(cluster: RealCluster, sweep: int) -> dict[str, Any]:
    return cluster.get(f"/v1/sweeps/{sweep}")


def by_state(cluster: RealCluster, sweep: int) -> dict[str, list[str]]:
    """Return the rates of the trials in each state."""
    found: dict[str, list[str]] = {}
    for trial in shown(cluster, sweep)["trials"]:
        found.setdefault(trial["state"], []).append(trial["params"]["lr"])
    return found


def test_the_bad_are_stopped_and_the_best_goes_on(cluster: RealCluster) -> None:
    sweep = a_sweep(cluster, {"lr": ["1e-5", "2e-2", "1e-4"]})
    until(lambda: len(by_state(cluster, sweep).get("cancelled", [])) == 2, "two to be stopped")
    found = shown(cluster, sweep)
    best, *rest = found["trials"]
    assert (best["params"]["lr"], best["state"]) == ("2e-2", "running")
    assert found["row"]["best"]["job"] == best["job"]
    assert sorted(trial["stopped"] for trial in rest) == [
        "2nd of 3 at rung 1",
        "3rd of 3 at rung 1",
    ]
    for trial in found["trials"]:  # The values at the rung are those of just that step.
        (at_rung,) = trial["rungs"]
        assert at_rung == pytest.approx(loss_of(float(trial["params"]["lr"]), RUNG))
    told = cluster.allot("show", str(rest[0]["job"])).stdout
    assert "by its sweep: only" in told
    lines = cluster.allot("sweep", "show", str(sweep)).stdout
    assert "one in 3 continues at step 50" in lines
    assert "2 stopped by comparison" in lines
    stopped = cluster.allot("sweep", "stop", "tune")
    assert "is stopped" in stopped.stderr, stopped
    until(lambda: shown(cluster, sweep)["row"]["finished_at"] > 0, "the sweep to be over")
    assert shown(cluster, sweep)["row"]["state"] == "asked"


def test_a_kill_in_the_middle_changes_nothing(cluster: RealCluster) -> None:
    sweep = a_sweep(
        cluster, {"lr": {"log": [1e-5, 1e-1]}}, 300, random={"count": 6, "seed": 11}
    )
    until(lambda: any(trial["step"] for trial in shown(cluster, sweep)["trials"]), "a report")
    before = shown(cluster, sweep)
    for _ in range(2):
        cluster.kill()
        cluster.up()
    until(lambda: shown(cluster, sweep)["row"]["finished_at"] > 0, "the sweep to be over")
    after = shown(cluster, sweep)
    assert [after["sweep"], len(after["trials"])] == [before["sweep"], 6]
    trials = {trial["job"]: trial for trial in after["trials"]}
    assert {job: trial["params"] for job, trial in trials.items()} == {
        trial["job"]: trial["params"] for trial in before["trials"]
    }
    events = [event for job in trials for event in cluster.get(f"/v1/jobs/{job}/events")]
    for kind in ("JobSubmitted", "AttemptPlaced"):
        jobs = [event["job"] for event in events if event["kind"] == kind]
        assert len(jobs) == len(set(jobs)), f"twice: {kind}"
    assert all(trial["state"] in ("succeeded", "cancelled") for trial in trials.values())
    good = max(float(trial["params"]["lr"]) for trial in trials.values())
    assert float(after["trials"][0]["params"]["lr"]) == good
    for trial in trials.values():
        assert all(value is None or value >= 0 for value in trial["rungs"])


def test_one_that_diverges_is_stopped_and_says_so(cluster: RealCluster) -> None:
    sweep = a_sweep(cluster, {"lr": ["50.0", "1e-2"]}, halving={"rungs": [600], "eta": 2})
    until(lambda: by_state(cluster, sweep).get("cancelled") == ["50.0"], "it to be stopped")
    worst = shown(cluster, sweep)["trials"][-1]
    assert worst["value"] is None
    events = cluster.allot("events", str(worst["job"])).stdout
    assert "reached rung 1 at step 600 with no number" in events
    cluster.allot("sweep", "stop", str(sweep))


def test_a_budget_ends_it(cluster: RealCluster) -> None:
    sweep = a_sweep(cluster, {"lr": ["1e-2", "2e-2"]}, gpu_hours=0.001)
    until(lambda: shown(cluster, sweep)["row"]["finished_at"] > 0, "the sweep to be over")
    row = shown(cluster, sweep)["row"]
    assert row["state"] == "gpu_hours"
    assert row["counts"] == {"cancelled": 2}
    assert row["gpu_ms"] >= 3_600_000


def test_a_dry_run_lists_just_the_trials_that_are_made(
    cluster: RealCluster, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(training(10)))
    words = (str(file), "--param", "lr=log:1e-5..0.1", "--random", "4", "--seed", "3")
    listed = json.loads(cluster.allot("sweep", "submit", *words, "--dry-run", "--json").stdout)
    done = cluster.allot("sweep", "submit", *words)
    assert done.returncode == 0, done.stderr
    trials = shown(cluster, int(done.stdout))["trials"]
    by_index = sorted(trials, key=lambda trial: trial["index"])
    assert [trial["params"] for trial in by_index] == listed
    cluster.allot("sweep", "stop", done.stdout.strip())


def test_python_does_the_same(cluster: RealCluster) -> None:
    with Client(state=str(cluster.state)) as client:
        made = client.submit({**training(10**6), "sweep": {"parameters": {"lr": [0.01]}}})
        assert next(row.id for row in client.sweeps()) == made.id
        assert client.sweep(made.id).trials[0].params == {"lr": "0.01"}
        assert client.sweep("tune.0").row.id == made.id
        assert client.stop_sweep("last").row.state == "asked"
        with pytest.raises(Refused, match="There is no sweep nothing"):
            client.sweep("nothing")
