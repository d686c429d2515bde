"""What others may know of a job: every way to read, as another user, looked through."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.client import Client
from allotment.model.ids import TaskKey
from allotment.model.tenancy import Visibility
from allotment.service.views import EventView
from allotment.sim.history import history_of
from allotment.wiring.history import records_of
from scripts.openapi_docs import TARGET
from tests.integration.api.live import CONFIG, Answer, Live
from tests.integration.api.test_guard import NOBODY, as_user, is_refused
from tests.support.cluster import until

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

MARK = "hush-hush"
"""Stands in everything that is private, and in nothing else."""

PRIVATE = {
    "env": {"LR": MARK, MARK.replace("-", "_"): "1"},
    "secrets": {"TOKEN": MARK},
    "image": f"{MARK}:1",
    "checkpoint": {"dir": f"/tmp/{MARK}/saved", "every": "10min"},
}
# A key means a job of whoever asks: that of another finds nothing.
ASKS = {"/v1/submissions": "?key=another", "/v1/images:inspect": "?image=busybox"}
NAMES = {"ref": "1", "attempt": "1", "path": "x", "name": "n0", "tenant": "vision"}


def reads(jobs: int) -> list[str]:
    """List every path that can be read, of each job."""
    paths = json.loads(TARGET.read_text())["paths"]
    found = [path for path, ways in paths.items() if "get" in ways]
    made: list[str] = []
    for job in range(1, jobs + 1):
        for path in found:
            filled = path.replace("{path}", "x")
            for name, value in (NAMES | {"ref": str(job)}).items():
                filled = filled.replace(f"{{{name}}}", value)
            made.append(filled + ASKS.get(path, ""))
    return list(dict.fromkeys(made))


@pytest.fixture
def live(reachable: Path) -> Iterator[Live]:
    with Live(reachable / "state") as server:
        yield server


def private_jobs(live: Live) -> int:
    """Submit one that fails and one that waits; both have something to hide everywhere."""
    folder = live.folder.parent / MARK
    folder.mkdir()
    private = {**PRIVATE, "output": str(folder), "workdir": str(folder), "data": str(folder)}
    made = live.submit([MARK, "fake 0.01 exit 3"], **private)
    live.backend.output[TaskKey(made, 1, 0), "stdout"] = f"{MARK}\n".encode()  # type: ignore[arg-type]
    live.wait_for(made, "failed")
    held = live.ask(
        "POST",
        "/v1/jobs?held=true",
        {"name": "waits", "tenant": "vision", "command": MARK, **private},
        {"Idempotency-Key": MARK},
    )
    assert held.status == 201, held
    changed = live.ask("PATCH", f"/v1/jobs/{held.json['id']}", {"set": [f"env.A={MARK}"]})
    assert changed.status == 200, changed
    sweep = {"parameters": {MARK.replace("-", "_"): [MARK, "x"]}, "metric": MARK}
    swept = {"name": "swept", "tenant": "vision", "command": "fake forever", "sweep": sweep}
    made = live.ask("POST", "/v1/jobs", swept)
    assert made.status == 201, made
    assert MARK in live.ask("GET", "/v1/sweeps/swept").body.decode()
    return made.json["id"]


def read_by_another(live: Live, path: str) -> Answer:
    return as_user(NOBODY, live, "GET", path)


def test_nothing_private_of_a_job_can_be_read_by_others(live: Live) -> None:
    jobs = private_jobs(live)
    for path in [*reads(jobs), "/v1/jobs?finished=true", "/v1/jobs/1/events?follow=true"]:
        answer = read_by_another(live, path)
        assert answer.status in (200, 403, 404, 405, 409, 501), (path, answer)
        assert MARK not in answer.body.decode(), path
    for path in ("", "/events"):
        assert MARK in live.ask("GET", f"/v1/jobs/1{path}").body.decode()  # its owner sees it


def test_what_others_need_for_why_stays(live: Live) -> None:
    private_jobs(live)
    of_a_sweep = read_by_another(live, "/v1/sweeps/swept").json
    assert (of_a_sweep["private"], len(of_a_sweep["trials"])) == (True, 2)
    assert is_refused(as_user(NOBODY, live, "POST", "/v1/sweeps/swept:stop"))
    row = read_by_another(live, "/v1/jobs/1").json
    assert row["private"] is True
    assert (row["row"]["name"], row["row"]["user"]) == ("job", "root")
    assert row["spec"]["roles"]["main"]["command"] == "***"
    assert row["spec"]["roles"]["main"]["resources"]["cpu"]
    assert row["diagnosis"]["cause"]
    mine = live.get("/v1/jobs/1")
    assert mine["private"] is False
    assert mine["spec"]["env"]["LR"] == MARK
    events = read_by_another(live, "/v1/events").json
    assert [each["seq"] for each in events] == [each["seq"] for each in live.get("/v1/events")]
    assert any(each["text"] == "submitted as job to vision/default" for each in events)


def test_a_job_of_others_is_not_cloned_with_what_it_hides(live: Live) -> None:
    private_jobs(live)
    taken = as_user(NOBODY, live, "POST", "/v1/jobs/1:clone", {"set": ["env.X=1"]})
    assert is_refused(taken)
    assert MARK not in taken.body.decode()


def test_an_archived_job_is_as_private(reachable: Path) -> None:
    limits = msgspec.structs.replace(CONFIG.limits, keep_finished=0)
    with Live(reachable / "state", msgspec.structs.replace(CONFIG, limits=limits)) as live:
        made = live.submit([MARK, "fake 0.01"], env={"LR": MARK})
        until(lambda: live.get(f"/v1/jobs/{made}")["archived"], "the job to be archived")
        for path in ("/v1/jobs?finished=true", f"/v1/jobs/{made}", "/v1/events"):
            answer = read_by_another(live, path)
            assert answer.status == 200
            assert MARK not in answer.body.decode(), path
        theirs = as_user(NOBODY, live, "POST", f"/v1/jobs/{made}:clone", {"set": []})
        assert is_refused(theirs)


def test_an_owner_without_privileges_sees_all_of_its_own(live: Live) -> None:
    job = {"name": "theirs", "tenant": "vision", "command": [MARK, "fake 0.01"]}
    made = as_user(NOBODY, live, "POST", "/v1/jobs", job).json["id"]
    live.wait_for(made, "succeeded")
    assert MARK in read_by_another(live, f"/v1/jobs/{made}").body.decode()
    assert MARK in read_by_another(live, "/v1/events").body.decode()
    other = as_user(NOBODY - 1, live, "GET", "/v1/events")
    assert MARK not in other.body.decode()


def test_with_open_visibility_all_see_all_but_secrets(reachable: Path) -> None:
    config = msgspec.structs.replace(CONFIG, visibility=Visibility.OPEN)
    with Live(reachable / "state", config) as live:
        made = live.submit([MARK, "fake 0.01"], env={"LR": "0.1"}, secrets={"T": "s3cret"})
        live.backend.output[TaskKey(made, 1, 0), "stdout"] = b"loss 0.3 s3cret\n"  # type: ignore[arg-type]
        live.wait_for(made, "succeeded")
        shown = read_by_another(live, f"/v1/jobs/{made}").json
        assert shown["private"] is False
        assert shown["spec"]["env"] == {"LR": "0.1"}
        assert shown["spec"]["secrets"] == {"T": "***"}
        assert MARK in read_by_another(live, "/v1/events").body.decode()
        assert read_by_another(live, f"/v1/jobs/{made}/logs").body == b"loss 0.3 ***\n"
        assert is_refused(as_user(NOBODY, live, "POST", f"/v1/jobs/{made}:clone", {"set": []}))
        assert is_refused(as_user(NOBODY, live, "POST", f"/v1/jobs/{made}:hold"))


def test_the_history_as_others_read_it_can_be_replayed(live: Live) -> None:
    private_jobs(live)
    answer = read_by_another(live, "/v1/events?limit=2000")
    told = msgspec.json.decode(answer.body, type=list[EventView])
    with Client(state=str(live.folder)) as client:
        # Jobs may have ended since.
        seen = [
            each for each in client.events(after=0, limit=10_000) if each.seq <= told[-1].seq
        ]
        whole = history_of(records_of(seen), 0, 1 << 60)
    found = history_of(records_of(told), 0, 1 << 60)
    assert [job.id for job in found.trace.jobs] == [job.id for job in whole.trace.jobs]
