"""Jobs over HTTP, from submission to end."""

import http.client
import json
import threading

import msgspec
import pytest

from allotment.model.ids import AttemptNo, TaskIndex, TaskKey
from allotment.service.views import JobRow, JobView, Submitted
from tests.integration.api.live import Live
from tests.support.cluster import UnixConnection, until

JOB = {"name": "job", "tenant": "vision", "command": "fake forever"}
CLASSIC = """{
  // as in the old days
  jobName: 'old', virtualCluster: "vision", image: "none",
  taskRoles: [{name: "worker", taskNumber: 2, cpuNumber: 1, memoryMB: 100, gpuNumber: 0,
               command: "fake forever"},]
}"""


def test_a_job_goes_from_submission_to_its_end(live: Live) -> None:
    answer = live.ask("POST", "/v1/jobs", {**JOB, "command": "fake 0.05"})
    assert answer.status == 201
    made = msgspec.json.decode(answer.body, type=Submitted)
    assert answer.headers["location"] == f"/v1/jobs/{made.id}"
    live.wait_for(made.id, "succeeded")
    for ref in (made.id, "last", "job"):
        job = msgspec.json.decode(live.ask("GET", f"/v1/jobs/{ref}").body, type=JobView)
        assert job.id == made.id
        assert job.state == "succeeded"
    # A job may be over before its last event is durable, and so told.
    until(lambda: kinds_of(live, made.id)[-1] == "JobSucceeded", "its last event")
    assert kinds_of(live, made.id)[0] == "JobSubmitted"


@pytest.mark.parametrize("tail", ["", "/why", "/events", "/logs", "/outputs", ":cancel"])
@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_a_name_may_have_a_slash(live: Live, slash: str, tail: str) -> None:
    method = "POST" if tail.startswith(":") else "GET"
    answer = live.ask(method, f"/v1/jobs/team-a{slash}train-0{tail}")
    assert (answer.status, answer.json["code"]) == (404, "no_such_job")
    assert "no job team-a/train-0" in answer.json["detail"]


def kinds_of(live: Live, job: int) -> list[str]:
    return [event["kind"] for event in live.get(f"/v1/jobs/{job}/events")]


@pytest.mark.parametrize(
    ("body", "kind", "query", "name"),
    [
        (b"name: y\ntenant: vision\ncommand: 'true'\n", "application/yaml", "", "y"),
        (CLASSIC.encode(), "application/yaml", "", "old"),
        (CLASSIC.encode(), "application/json", "", "old"),
        (CLASSIC.encode(), "text/plain", "?form=classic", "old"),
        (json.dumps(JOB).encode(), "application/json", "?form=native", "job"),
        (json.dumps(JOB).encode(), "application/x-www-form-urlencoded", "", "job"),
    ],
)
def test_every_form_is_read(live: Live, body: bytes, kind: str, query: str, name: str) -> None:
    answer = live.ask("POST", f"/v1/jobs{query}", body, {"Content-Type": kind})
    assert answer.status == 201, answer
    assert answer.json["name"] == name


def test_a_native_job_may_speak_of_the_classic_form(live: Live) -> None:
    job = {**JOB, "env": {"WHAT": "jobName and taskRoles"}}
    assert live.ask("POST", "/v1/jobs", job).status == 201


def test_a_key_makes_one_job_however_often_it_is_said(live: Live) -> None:
    headers = {"Idempotency-Key": "only-one"}
    first = live.ask("POST", "/v1/jobs", JOB, headers)
    again = live.ask("POST", "/v1/jobs", JOB, headers)
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    assert again.json["repeated"]
    assert live.ask("POST", "/v1/jobs", JOB, {"Idempotency-Key": "other"}).status == 201


def test_a_submission_is_found_by_its_key(live: Live) -> None:
    made = live.ask("POST", "/v1/jobs", JOB, {"Idempotency-Key": "a/b?c"})
    found = live.ask("GET", "/v1/submissions?key=a%2Fb%3Fc")
    assert (found.status, found.json["id"]) == (200, made.json["id"])
    missing = live.ask("GET", "/v1/submissions?key=none")
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    assert "was accepted" in missing.json["detail"]


def test_many_at_once_with_one_key_make_one_job(live: Live) -> None:
    seen: list[tuple[int, int]] = []

    def submit() -> None:
        answer = live.ask("POST", "/v1/jobs", JOB, {"Idempotency-Key": "race"})
        seen.append((answer.status, answer.json["id"]))

    threads = [threading.Thread(target=submit) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job for _, job in seen}) == 1
    assert sorted(status for status, _ in seen) == [200] * 11 + [201]


def test_warnings_stay_with_the_job(live: Live) -> None:
    answer = live.ask("POST", "/v1/jobs", {**JOB, "image": "pytorch:2"})
    assert "pytorch:2" in answer.json["warnings"][0]
    assert live.get(f"/v1/jobs/{answer.json['id']}")["warnings"] == answer.json["warnings"]


def test_held_until_released(live: Live) -> None:
    job = live.ask("POST", "/v1/jobs?held=true", JOB).json["id"]
    assert live.get(f"/v1/jobs/{job}")["row"]["state"] == "held"
    assert live.get(f"/v1/jobs/{job}/why")["reason"] == "held"
    assert live.ask("POST", f"/v1/jobs/{job}:release").status == 200
    live.wait_for(job, "running")
    assert live.ask("GET", f"/v1/jobs/{job}/why").body == b"null"
    assert live.ask("POST", f"/v1/jobs/{job}:suspend").json["row"]["state"] == "suspended"
    assert live.ask("POST", f"/v1/jobs/{job}:resume").status == 200
    live.wait_for(job, "running")
    assert live.ask("POST", f"/v1/jobs/{job}:cancel").status == 200
    live.wait_for(job, "cancelled")
    late = live.ask("POST", f"/v1/jobs/{job}:cancel")
    assert (late.status, late.json["code"]) == (409, "wrong_state")


def test_a_waiting_job_is_edited_and_cloned(live: Live) -> None:
    job = live.ask("POST", "/v1/jobs?held=true", JOB).json["id"]
    change = {"set": ["priority=high", "env.LR=0.1"]}
    edited = live.ask("PATCH", f"/v1/jobs/{job}", change)
    assert edited.status == 200, edited
    assert edited.json["spec"]["env"] == {"LR": "0.1"}
    cloned = live.ask("POST", f"/v1/jobs/{job}:clone", {"set": ["name=twin"]})
    assert cloned.status == 201
    twin = live.get(f"/v1/jobs/{cloned.json['id']}")
    assert twin["row"]["name"] == "twin"
    assert twin["spec"]["env"] == {"LR": "0.1"}
    bad = live.ask("PATCH", f"/v1/jobs/{job}", {"set": ["colour=red", "nonsense"]})
    assert bad.status == 422
    assert {problem["path"] for problem in bad.json["problems"]} >= {"nonsense"}


def test_secrets_are_never_shown(live: Live) -> None:
    job = live.submit("fake 0.01", secrets={"TOKEN": "hunter22"}, env={"A": "b"})
    live.wait_for(job, "succeeded")
    for path in ("", "/events", "/why"):
        assert b"hunter22" not in live.ask("GET", f"/v1/jobs/{job}{path}").body
    assert b"hunter22" not in live.ask("GET", "/v1/events").body


def test_pages_follow_one_another(live: Live) -> None:
    made = [live.ask("POST", "/v1/jobs?held=true", JOB).json["id"] for _ in range(7)]
    seen: list[int] = []
    query = ""
    while True:
        page = live.get(f"/v1/jobs?limit=3{query}")
        rows = msgspec.convert(page["items"], list[JobRow])
        seen += [row.id for row in rows]
        if page["next"] is None:
            break
        query = f"&before={page['next']}"
    assert seen == made[::-1]
    assert live.get("/v1/jobs?state=running")["items"] == []
    assert len(live.get("/v1/jobs?state=held&state=running&tenant=vision")["items"]) == 7
    assert live.get("/v1/jobs?user=stranger")["items"] == []


def test_an_element_of_an_array_keeps_its_index_when_cloned_or_edited(live: Live) -> None:
    """Without it another experiment would run."""
    job = {**JOB, "array": {"count": 5, "max_running": 1}}
    ids = live.ask("POST", "/v1/jobs?held=true", job).json["ids"]
    made = live.ask("POST", f"/v1/jobs/{ids[3]}:clone", {"set": ["priority=7"]}).json["id"]
    changed = live.ask("PATCH", f"/v1/jobs/{ids[4]}", {"set": ["priority=7"]})
    assert changed.status == 200
    specs = {job: live.service.state.jobs[job].spec for job in (made, ids[4])}
    clone, edited = specs[made].array, specs[ids[4]].array
    assert clone is not None
    assert edited is not None
    assert (clone.index, clone.size, clone.parent, clone.max_running) == (3, 5, made, 0)
    assert (edited.index, edited.size, edited.parent, edited.max_running) == (4, 5, ids[0], 1)
    assert (specs[made].name, specs[made].priority) == ("job.3", 7)
    live.wait_for(made, "running")
    key = TaskKey(made, AttemptNo(1), TaskIndex(0))
    env = dict(live.backend.tasks[key].task.env)
    assert (env["ALLOT_ARRAY_INDEX"], env["ALLOT_ARRAY_SIZE"]) == ("3", "5")
    assert env["ALLOT_ARRAY_ID"] == str(made)


def test_an_array_is_many_jobs(live: Live) -> None:
    job = {**JOB, "array": {"count": 3, "max_running": 1}}
    answer = live.ask("POST", "/v1/jobs", job)
    assert answer.status == 201, answer
    assert len(answer.json["ids"]) == 3


def test_nodes_and_tenants(live: Live) -> None:
    assert [node["name"] for node in live.get("/v1/nodes")] == ["n0"]
    assert live.ask("POST", "/v1/nodes/n0:drain", {"reason": "new driver"}).status == 200
    assert live.get("/v1/nodes")[0]["state"] == "drained"
    assert live.get("/v1/nodes")[0]["reason"] == "new driver"
    assert live.ask("POST", "/v1/nodes/n0:undrain").status == 200
    assert live.get("/v1/nodes")[0]["state"] == "ready"
    assert live.ask("POST", "/v1/nodes/n9:drain", {}).json["code"] == "no_such_node"
    assert [tenant["name"] for tenant in live.get("/v1/tenants")] == ["vision", "nlp"]


def test_a_backup_is_made_once(live: Live) -> None:
    live.submit()
    target = live.folder.parent / "backup.db"
    assert live.ask("POST", "/v1/service:backup", {"target": str(target)}).status == 200
    assert target.stat().st_size > 0
    again = live.ask("POST", "/v1/service:backup", {"target": str(target)})
    assert (again.status, again.json["code"]) == (409, "conflict")
    relative = live.ask("POST", "/v1/service:backup", {"target": "here.db"})
    assert (relative.status, relative.json["code"]) == (422, "path_unusable")


def test_one_connection_bears_many_requests(live: Live) -> None:
    connection = UnixConnection(live.socket)
    statuses: list[int] = []
    for path in ("/v1/jobs", "/nope", "/v1/jobs/none", "/v1/service") * 5:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    assert statuses == [200, 404, 404, 200] * 5


def test_jobs_outlive_their_service(live: Live) -> None:
    held = live.ask("POST", "/v1/jobs?held=true", JOB).json["id"]
    live.__exit__()
    with Live(live.folder) as again:
        assert again.get(f"/v1/jobs/{held}")["row"]["state"] == "held"


def test_a_stop_is_answered_before_it_happens(live: Live) -> None:
    connection = UnixConnection(live.socket)
    connection.request("POST", "/v1/service:stop")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"ok": True})
    connection.close()
    live.__exit__()
    with pytest.raises((FileNotFoundError, ConnectionRefusedError, http.client.HTTPException)):
        live.ask("GET", "/healthz")
    assert not (live.folder / "address.json").exists()
