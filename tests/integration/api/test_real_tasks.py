"""The API around tasks that are real processes of this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import unix_connect

from tests.integration.api.test_exec import heard
from tests.integration.api.test_wiring import Started
from tests.support.cluster import end_launchers, until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Started]:
    state = tmp_path / "state"
    started = Started(state, backend="local", gpus="8")
    try:
        assert started.address is not None, started.end()
        yield started
    finally:
        if started.address is not None:
            for row in started.ask("GET", "/v1/jobs").json["items"]:
                started.ask("POST", f"/v1/jobs/{row['id']}:cancel")
            until(lambda: all_over(started), "jobs to end")
        started.end()
        end_launchers(state)


def rows(service: Started) -> list[dict[str, object]]:
    return service.ask("GET", "/v1/jobs").json["items"]


def all_over(service: Started) -> bool:
    over = {"succeeded", "failed", "cancelled", "timed_out"}
    return all(row["state"] in over for row in rows(service))


def submit(service: Started, command: str, **more: object) -> int:
    small = {"cpu": 0.1, "memory": "64MiB"}
    job = {"name": "real", "command": command, "resources": small, **more}
    answer = service.ask("POST", "/v1/jobs", job)
    assert answer.status == 201, answer
    return answer.json["id"]


def test_output_and_files_of_a_real_task(service: Started) -> None:
    command = "echo hello; echo oh >&2; echo 42 > $ALLOT_OUTPUT_DIR/answer"
    job = submit(service, command, secrets={"KEY": "hunter22"})
    text = service.ask("GET", f"/v1/jobs/{job}/logs?follow=true").body.decode()
    data = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert {"task": "main.0", "stream": "stdout", "text": "hello\n"} in data
    assert {"task": "main.0", "stream": "stderr", "text": "oh\n"} in data
    assert data[-1] == {"state": "succeeded"}
    assert service.ask("GET", f"/v1/jobs/{job}/logs?stream=stdout").body == b"hello\n"
    assert service.ask("GET", f"/v1/jobs/{job}/outputs/1/answer").body == b"42\n"


def test_a_terminal_in_a_real_task(service: Started) -> None:
    job = submit(service, "sleep 60", env={"COLOUR": "red"})
    until(lambda: rows(service)[0]["state"] == "running", "the job to run")
    assert service.address is not None
    uri = f"ws://localhost/v1/jobs/{job}/exec"
    with unix_connect(service.address["socket"], uri, compression=None) as connection:
        words = ["sh", "-c", "echo $COLOUR; stty size; exit 4"]
        connection.send(json.dumps({"argv": words, "tty": True, "rows": 31, "cols": 77}))
        out, code = heard(connection)
    assert out == b"red\r\n31 77\r\n"
    assert code == 4


def test_what_a_job_prints_of_devices_takes_none_away(service: Started) -> None:
    xid = "NVRM: Xid (PCI:0000:86:00): 48, pid=918, An uncorrectable double bit error"
    whole = {"cpu": 0.1, "memory": "64MiB", "gpu": 8}
    liar = submit(service, f"echo '{xid}'; exit 1", resources=whole)
    until(lambda: service.ask("GET", "/v1/health").json, "its word to be taken down")
    told = service.ask("GET", "/v1/health").json
    assert {one["device"] for one in told} == set(range(8))
    assert {(one["health"], one["by"]) for one in told} == {("doubted", "job")}
    assert {one["words"] for one in told} == {
        f"job {liar}: The driver reported a fault of a GPU (Xid)."
    }
    service.ask("POST", f"/v1/jobs/{liar}:cancel")
    other = submit(service, "sleep 60", resources=whole)
    until(
        lambda: service.ask("GET", f"/v1/jobs/{other}").json["row"]["state"] == "running",
        "another job to run on the same devices",
    )
    assert "suspected" not in service.ask("GET", "/v1/nodes").json[0]["trouble"]


def test_a_stop_leaves_tasks_running(service: Started) -> None:
    job = submit(service, "sleep 1; echo still here")
    until(lambda: rows(service)[0]["state"] == "running", "the job to run")
    assert service.end()[0] == 0
    again = Started(service.state, backend="local")
    service.process, service.address = again.process, again.address
    text = service.ask("GET", f"/v1/jobs/{job}/logs?follow=true").body
    assert b"still here" in text
    view = service.ask("GET", f"/v1/jobs/{job}").json
    assert view["row"]["state"] == "succeeded"
    assert len(view["attempts"]) == 1
