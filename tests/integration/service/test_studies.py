"""Studies on real processes, with the real Optuna: whatever dies, each trial comes once."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.optuna import OptunaProposer
from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.grid import Parameters
from allotment.model.ids import Actor
from allotment.model.sweeps import Came, Range, Sampler, Scale, Sweep, Tried
from allotment.service.clock import SteadyClock
from allotment.service.ports import Proposer
from allotment.service.service import Service
from allotment.store.sqlite import SqliteStore
from allotment.wiring.engines import Engines
from allotment.wiring.kept_config import Kept
from allotment.wiring.service import config_files
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.fake_backend import FakeBackend
from tests.support.patience import PATIENCE_S
from tests.support.training import loss_of, training

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants: {us: {guaranteed: {gpu: 4}}}
"""
STEPS = 20
ME = Actor("me", None, ())
STUDY = Sweep(
    (("lr", ("1", "2", "3")),), draws=3, seed=1, sampler=Sampler.OPTUNA, metric="loss"
)


class Broken:
    """What should propose trials, and cannot."""

    def missing(self) -> str:
        return ""

    def propose(self, sweep: Sweep, tried: Sequence[Tried]) -> Parameters:
        raise RuntimeError(f"no idea after {len(tried)} trials")


class Slow:
    """What takes its time until it is told to go on, and notes for which study it was asked."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked: list[int | None] = []

    def missing(self) -> str:
        return ""

    def propose(self, sweep: Sweep, tried: Sequence[Tried]) -> Parameters:
        self.asked.append(sweep.seed)
        assert self.go_on.wait(PATIENCE_S)
        return (("lr", str(len(tried) + 1)),)


def a_service(folder: Path, proposer: Proposer | None) -> Service:
    return Service(
        store=SqliteStore.open(folder),
        backend=FakeBackend(),
        clock=SteadyClock(),
        policies=POLICIES,
        state_dir=str(folder),
        write_spec=lambda spec: {"name": spec.name},
        version="test",
        config_files=config_files(Kept(folder), Engines(folder)),
        proposer=proposer,
    )


def test_without_optuna_a_study_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async def story() -> None:
        service = a_service(tmp_path, None)
        await service.start(a_config(a_tenant("us", 4)))
        job = a_job().gpus(1).of("us").spec()
        with pytest.raises(Rejected, match="proposes no trials") as refused:
            await service.submit(c.SubmitJob(job, copies=3, sweep=STUDY), ME)
        assert "pip install 'allotment[optuna]'" in refused.value.hint
        random = Sweep(STUDY.space, draws=3, seed=1)
        assert await service.submit(c.SubmitJob(job, copies=3, sweep=random), ME)
        await service.stop()

    asyncio.run(story())


def test_a_study_for_which_nothing_can_be_proposed_waits_and_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        service = a_service(tmp_path, Broken())
        await service.start(a_config(a_tenant("us", 4)))
        job = a_job().gpus(1).of("us").spec()
        made = await service.submit(c.SubmitJob(job, copies=3, sweep=STUDY), ME)
        async with asyncio.timeout(PATIENCE_S):
            while not service.studying.trouble(made.id):
                await asyncio.sleep(0.005)
        found = await service.sweeping.sweep(str(made.id), ME)
        assert found.hint == "No trial can be proposed: no idea after 0 trials"
        assert found.row.counts == {"held": 3}
        await service.stop()

    asyncio.run(story())


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable_once, CONFIG) as running:
        yield running


def a_study(cluster: RealCluster, count: int, at_once: int, steps: int = STEPS) -> int:
    sweep = {
        "parameters": {"lr": {"log": [1e-5, 1e-1]}},
        "optuna": {"count": count, "seed": 7},
        "metric": "loss",
    }
    return cluster.submit(
        {**training(steps), "array": {"max_running": at_once}, "sweep": sweep}
    )


def trials_of(cluster: RealCluster, study: int) -> list[dict[str, Any]]:
    found = cluster.get(f"/v1/sweeps/{study}")["trials"]
    return sorted(found, key=lambda trial: trial["index"])


def test_the_studies_of_one_user_do_not_keep_those_of_others_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        proposer = Slow()
        service = a_service(tmp_path, proposer)
        await service.start(a_config(a_tenant("us", 4)))
        job = a_job().gpus(1).of("us").spec()
        for user, seed in ((ME, 1), (Actor("you", None, ()), 2)):
            study = msgspec.structs.replace(STUDY, seed=seed)
            await service.submit(c.SubmitJob(job, copies=3, sweep=study), user)
        proposer.go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            while len(proposer.asked) < 6:
                await asyncio.sleep(0.005)
        assert proposer.asked[:3] != [1, 1, 1]
        assert sorted(map(str, proposer.asked)) == ["1", "1", "1", "2", "2", "2"]
        await service.stop()

    asyncio.run(story())


@pytest.mark.slow
def test_a_study_goes_on_from_the_log_after_kills(cluster: RealCluster) -> None:
    study = a_study(cluster, 13, at_once=1)
    for enough in (3, 11):
        until(
            lambda enough=enough: sum(map(bool, params_of(cluster, study))) >= enough,
            "trials to be proposed",
        )
        cluster.kill()
        cluster.up()
    until(lambda: cluster.get(f"/v1/sweeps/{study}")["row"]["finished_at"] > 0, "the end")
    trials = trials_of(cluster, study)
    assert [trial["state"] for trial in trials] == ["succeeded"] * 13
    space = (("lr", Range(Scale.LOG, 1e-5, 1e-1)),)
    sweep = Sweep(space, draws=13, seed=7, sampler=Sampler.OPTUNA, metric="loss")
    tried: list[Tried] = []
    for trial in trials:  # Each was proposed from all that were before it, and nothing else.
        params = tuple(trial["params"].items())
        assert params == OptunaProposer().propose(sweep, tried)
        value = loss_of(float(trial["params"]["lr"]), STEPS)
        assert trial["value"] == pytest.approx(value)
        tried.append(Tried(params, Came.TO_ITS_END, ((STEPS, trial["value"]),)))
    for trial in trials:
        events = cluster.get(f"/v1/jobs/{trial['job']}/events")
        kinds = [event["kind"] for event in events]
        assert kinds.count("TrialProposed") == kinds.count("AttemptPlaced") == 1


def params_of(cluster: RealCluster, study: int) -> list[dict[str, str]]:
    return [trial["params"] for trial in trials_of(cluster, study)]


def test_no_more_run_than_may_and_the_rest_say_why(cluster: RealCluster) -> None:
    study = a_study(cluster, 6, at_once=2, steps=10**6)
    until(lambda: sum(map(bool, params_of(cluster, study))) == 2, "two to be proposed")
    states = [trial["state"] for trial in trials_of(cluster, study)]
    assert states[2:] == ["held"] * 4
    waits = str(trials_of(cluster, study)[2]["job"])
    assert "no parameters yet" in cluster.allot("why", waits).stdout
    refused = cluster.allot("release", waits)
    assert refused.returncode != 0
    assert "no parameters yet" in refused.stderr
    lines = cluster.allot("sweep", "show", str(study)).stdout
    assert "6 proposed by Optuna with seed 7; minimize loss; 2 at a time" in lines
    assert lines.count("no parameters yet") == 4
    first = f"{study}[0]"
    assert cluster.allot("cancel", first).returncode == 0
    until(lambda: sum(map(bool, params_of(cluster, study))) == 3, "the next to be proposed")
    assert "gets its parameters: lr=" in cluster.allot("events", first).stdout
    cluster.allot("sweep", "stop", str(study))
    until(lambda: cluster.get(f"/v1/sweeps/{study}")["row"]["finished_at"] > 0, "the end")


def test_options_make_one_of_any_job_file(cluster: RealCluster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ncommand: 'true'\nresources: {gpu: 1}\n")
    words = (str(file), "--param", "lr=log:1e-5..0.1", "--optuna", "3", "--seed", "9")
    refused = cluster.allot("sweep", "submit", *words)
    assert "sweep.metric: is missing, and `optuna` learns from it" in refused.stderr
    dry = cluster.allot("sweep", "submit", *words, "--metric", "loss", "--dry-run")
    assert "3 trial(s), proposed with --seed 9 as results come" in dry.stderr
    done = cluster.allot("sweep", "submit", *words, "--metric", "loss")
    study = int(done.stdout)
    until(lambda: cluster.get(f"/v1/sweeps/{study}")["row"]["finished_at"] > 0, "the end")
    assert all(params_of(cluster, study)), "trials that report nothing harm nothing"
