"""Which runs are a job's, and what of them is its progress."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model.code import CodeBundle
from allotment.model.data_use import DataUse
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.lifecycle import JobState
from allotment.model.quantity import WallTime
from allotment.model.tracking import MlflowSetup
from allotment.service.archive import Archive
from allotment.service.finding import Finding
from allotment.service.launch import Account, Folders, gang_launch
from allotment.service.tracking.ports import Metric, Registered, Run, TrackerAway
from allotment.service.tracking.tracking import Tracking
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.memory_store import MemoryStore
from tests.support.world import World

CONFIG = msgspec.structs.replace(
    a_config(a_tenant("vision", 4)), mlflow=MlflowSetup("http://tracks:5000")
)


class Told:
    """A server that says what a test gives it."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.registered: list[Registered] = []
        self.is_away = False
        self.asked: list[str] = []

    def _say(self, what: str, runs: Sequence[Run]) -> list[Run]:
        self.asked.append(what)
        if self.is_away:
            raise TrackerAway("it is away")
        return list(runs)

    def newest(self, address: str, since_ms: int) -> list[Run]:
        del address
        return self._say("newest", [run for run in self.runs if run.started_ms >= since_ms])

    def of_job(self, address: str, job: int, submitted: int) -> list[Run]:
        del address
        mine = [run for run in self.runs if (run.job, run.submitted) == (job, submitted)]
        return self._say("of_job", mine)

    def again(self, address: str, runs: Sequence[str]) -> list[Run]:
        del address
        return self._say("again", [run for run in self.runs if run.id in runs])

    def models(self, address: str) -> list[Registered]:
        del address
        self._say("models", [])
        return self.registered

    def keep(self, setup: MlflowSetup | None) -> None: ...

    def end(self) -> None: ...


class Place:
    """A job that runs, and what watches its runs."""

    def __init__(self) -> None:
        self.world, self.told = World(CONFIG), Told()
        self.id = self.world.submit(a_job().gpus(1))
        self.world.cycle()
        self.world.runs(self.id)
        self.tracking = Tracking(self.world.state, self.told, lambda: WallTime(10**7))

    @property
    def job(self) -> JobRecord:
        return self.world.job(self.id)

    def run(self, name: str = "r1", step: int = 3, **more: Any) -> Run:
        metrics = (Metric("loss", 0.5, 1000 * step, step), Metric("system/cpu", 1.0, 9, 999))
        made = Run(
            name, f"http://tracks:5000/{name}", "RUNNING", 5, self.id, self.job.submitted_at,
            self.job.attempts[-1].no, is_nested=False, metrics=metrics,
        )  # fmt: skip
        return msgspec.structs.replace(made, **more)

    def look(self) -> None:
        asyncio.run(self.tracking.look())


def test_each_task_is_told_where_and_who_it_is() -> None:
    place = Place()
    told = place.tracking.variables(place.job)
    assert told["MLFLOW_TRACKING_URI"] == "http://tracks:5000"
    tags = json.loads(told["MLFLOW_RUN_CONTEXT"])
    assert tags["allotment.job"] == str(place.id)
    assert tags["allotment.tenant"] == "vision"
    assert tags["allotment.attempt"] == "1"
    assert "ALLOT_MLFLOW_LAST_RUN" not in told
    job, nodes = place.job, place.world.state.cluster.nodes
    gang = gang_launch(
        job, job.task_keys(), CONFIG, nodes, Folders("/s"), Account("a", "/"),
        at_barrier=False, tracked=told,
    )  # fmt: skip
    assert dict(gang.tasks[0].env)["MLFLOW_TRACKING_URI"] == "http://tracks:5000"


def test_a_run_is_told_image_commit_and_versions_of_data_exactly() -> None:
    place = Place()
    digest = f"sha256:{'a' * 64}"
    place.job.spec = msgspec.structs.replace(
        place.job.spec,
        image=f"registry.example.org/torch:2.9@{digest}",
        code=CodeBundle("c" * 64, commit="d" * 40, changed=2),
        data=(DataUse("vision", "words", 3, "/data/words"),),
    )
    tags = json.loads(place.tracking.variables(place.job)["MLFLOW_RUN_CONTEXT"])
    assert tags["allotment.image"].endswith(f"@{digest}")
    assert (tags["allotment.code"], tags["allotment.commit"]) == ("c" * 64, "d" * 40)
    assert tags["allotment.changed_files"] == "2"
    assert tags["allotment.data"] == "vision/words@3"
    assert "allotment.environment" not in tags, "what a job has not is no tag"


def test_what_the_user_says_wins() -> None:
    place = Place()
    env = (("MLFLOW_TRACKING_URI", "http://mine"),)
    place.job.spec = msgspec.structs.replace(place.job.spec, env=env)
    job, nodes = place.job, place.world.state.cluster.nodes
    gang = gang_launch(
        job, job.task_keys(), CONFIG, nodes, Folders("/s"), Account("a", "/"),
        at_barrier=False, tracked=place.tracking.variables(job),
    )  # fmt: skip
    assert dict(gang.tasks[0].env)["MLFLOW_TRACKING_URI"] == "http://mine"


def test_what_the_newest_run_logs_is_progress() -> None:
    place = Place()
    place.told.runs = [
        place.run("old", step=9, started_ms=1),
        place.run("new", step=4, started_ms=2),
        place.run("inner", step=7, started_ms=3, is_nested=True),
    ]
    place.look()
    seen = place.tracking.progress(place.job)
    assert seen is not None
    assert (seen.step, dict(seen.metrics), seen.steps_per_hour) == (4, {"loss": 0.5}, None)
    place.told.runs[1] = place.run("new", step=6, started_ms=2)
    place.look()
    seen = place.tracking.progress(place.job)
    assert seen is not None
    assert (seen.step, seen.steps_per_hour) == (6, 3600)


@pytest.mark.parametrize(
    "other", [{"submitted": 12}, {"job": 99}, {"attempt": 7}, {"metrics": ()}]
)
def test_what_is_not_of_this_attempt_is_no_progress(other: dict[str, Any]) -> None:
    place = Place()
    place.told.runs = [place.run(**other)]
    place.look()
    assert place.tracking.progress(place.job) is None


def test_a_run_that_began_long_ago_is_looked_at_still() -> None:
    place = Place()
    place.told.runs = [place.run(step=3, started_ms=5)]
    place.look()
    place.told.runs = [place.run(step=8, started_ms=5)]  # It is not among the newest now.
    place.look()
    assert place.told.asked == ["newest", "newest", "again"]
    seen = place.tracking.progress(place.job)
    assert seen is not None
    assert seen.step == 8


def test_without_jobs_that_run_nothing_is_asked() -> None:
    place = Place()
    place.world.do(c.CancelJob(place.id))
    place.world.ends(place.id)
    assert place.world.is_(place.id) is not JobState.RUNNING
    place.look()
    assert place.told.asked == []


def test_a_server_that_is_away_is_asked_once_in_a_while_and_what_is_known_stays() -> None:
    place = Place()
    place.told.runs = [place.run()]
    place.look()
    place.told.is_away = True
    place.look()
    shown = [asyncio.run(place.tracking.runs(place.job)) for _ in range(3)]
    assert [[run.run for run in runs] for runs in shown] == [["r1"]] * 3
    assert place.told.asked == ["newest", "newest"]
    assert place.tracking.progress(place.job) is not None


def test_whoever_looks_at_a_job_again_and_again_does_not_ask_each_time() -> None:
    place = Place()

    async def story() -> None:
        await asyncio.gather(*(place.tracking.runs(place.job) for _ in range(50)))
        for _ in range(50):
            assert await place.tracking.runs(place.job) == ()

    asyncio.run(story())
    assert place.told.asked == ["of_job"]


def test_the_next_attempt_is_told_the_run_before() -> None:
    place = Place()
    place.told.runs = [place.run("first"), place.run("inner", started_ms=9, is_nested=True)]
    place.look()
    assert "ALLOT_MLFLOW_LAST_RUN" not in place.tracking.variables(place.job)
    place.job.attempts.append(msgspec.structs.replace(place.job.attempts[-1], no=2))  # pyright: ignore
    assert place.tracking.variables(place.job)["ALLOT_MLFLOW_LAST_RUN"] == "first"


def test_models_name_jobs_of_this_service_only() -> None:
    place = Place()
    finding = Finding(place.world.state, Archive(MemoryStore(), {}))
    runs = [place.run(), place.run(submitted=1), place.run(job=99), None]
    place.told.registered = [Registered("m", "1", 5, "u", run) for run in runs]
    rows = asyncio.run(place.tracking.models(finding, Actor("me"))).items
    assert [(row.job, row.user) for row in rows] == [(place.id, "alice"), *[(0, "")] * 3]
    place.told.is_away = True
    with pytest.raises(Rejected, match="it is away") as refused:
        asyncio.run(place.tracking.models(finding, Actor("me")))
    assert refused.value.code is Code.UNAVAILABLE
