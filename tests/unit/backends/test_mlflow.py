"""What a server says that calls itself MLflow: anything, slowly, without end."""

import json
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.mlflow import rest, server
from allotment.backends.mlflow.rest import MlflowRest
from allotment.backends.mlflow.server import MlflowServer
from allotment.model.tracking import MlflowSetup
from allotment.service.tracking.ports import TrackerAway
from tests.support.cluster import until

Answering = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@contextmanager
def answering(answer: Answering) -> Iterator[str]:
    """Run a server that answers everything in one way; give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            asked = json.loads(self.rfile.read(size) or b"{}")
            try:
                answer(self, asked)
            except OSError:
                self.close_connection = True

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def saying(body: object, status: int = 200, **headers: str) -> Answering:
    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def a_run(run: str = "r1", **tags: str) -> dict[str, Any]:
    told = {"allotment.job": "7", "allotment.submitted": "99", "allotment.attempt": "2", **tags}
    return {
        "info": {"run_id": run, "experiment_id": "3", "status": "RUNNING", "start_time": 5},
        "data": {
            "tags": [{"key": key, "value": value} for key, value in told.items()],
            "metrics": [
                {"key": "loss", "value": 0.5, "timestamp": 11, "step": 4},
                {"key": "worse", "value": "NaN", "timestamp": 11, "step": 4},
            ],
        },
    }


def test_a_run_is_read_with_its_job_and_finite_metrics() -> None:
    with answering(saying({"runs": [a_run()], "experiments": [{"experiment_id": "3"}]})) as at:
        (run,) = MlflowRest().of_job(at, 7, 99)
    assert (run.id, run.job, run.submitted, run.attempt) == ("r1", 7, 99, 2)
    assert run.url == f"{at}/#/experiments/3/runs/r1"
    assert [metric.name for metric in run.metrics] == ["loss"]


@pytest.mark.parametrize(
    "wrong",
    [
        a_run("../../x"),
        a_run("r' OR ''='"),
        a_run(**{"allotment.job": "many"}),
        a_run(**{"allotment.job": "1" * 30}),
        a_run(**{"allotment.job": "٣"}),
        {"info": {"run_id": "r"}},
        {},
    ],
)
def test_a_run_of_no_job_is_left_out(wrong: dict[str, Any]) -> None:
    with answering(saying({"runs": [wrong]})) as at:
        assert MlflowRest().newest(at, 0) == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (saying(b"<html>"), "does not answer as an MLflow server does"),
        (saying(b"[" * 100_000), "does not answer as an MLflow server does"),
        (saying({"runs": 3}), "does not answer as an MLflow server does"),
        (saying({"message": "no\x1b[31m such"}, 404), r"HTTP 404: no \[31m such"),
        (saying(b'{"x":' * 100_000, 500), "HTTP 500$"),
        (saying(b"", 401), "needs a password"),
        (saying(b"", 302, Location="http://127.0.0.1:1/"), "HTTP 302"),
    ],
)
def test_what_is_no_answer_is_told_in_words(answer: Answering, why: str) -> None:
    with answering(answer) as at, pytest.raises(TrackerAway, match=why):
        MlflowRest().newest(at, 0)


def test_nobody_there_is_told_in_words() -> None:
    with pytest.raises(TrackerAway, match="refused"):
        MlflowRest().models("http://127.0.0.1:1")


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_MOST_BYTES", 1 << 20)

    def endless(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 65536)

    with answering(endless) as at, pytest.raises(TrackerAway, match="more than"):
        MlflowRest().newest(at, 0)


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_WHOLE_S", 0.05)
    over = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.01):
            handler.wfile.write(b" ")

    with answering(dripping) as at:
        try:
            with pytest.raises(TrackerAway, match="not whole"):
                MlflowRest().newest(at, 0)
        finally:
            over.set()


def test_an_answer_whose_beginning_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_WHOLE_S", 0.05)
    over = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
        for letter in [b"x"] * 500:
            if over.wait(0.01):
                return
            handler.wfile.write(letter)

    with answering(dripping) as at:
        try:
            with pytest.raises(TrackerAway, match="not whole"):
                MlflowRest().newest(at, 0)
        finally:
            over.set()


def test_an_answer_of_very_many_small_things_is_not_read() -> None:
    runs = b'{"runs":[' + b"{}," * 600_000 + b"{}]}"
    with answering(saying(runs)) as at, pytest.raises(TrackerAway, match="more than 500,000"):
        MlflowRest().newest(at, 0)


def test_of_a_run_with_very_many_metrics_those_of_the_newest_steps_are_kept() -> None:
    run = a_run()
    metrics = [{"key": f"m{step}", "value": 1, "step": step} for step in range(300)]
    machine = [{"key": f"system/{n}", "value": 1, "step": 10**6} for n in range(200)]
    strange = [{"key": "x" * 300, "value": 1}, {"key": "none"}]
    run["data"]["metrics"] = metrics + machine + strange
    with answering(saying({"runs": [run]})) as at:
        (found,) = MlflowRest().of_job(at, 7, 99)
    assert [metric.name for metric in found.metrics] == [f"m{n}" for n in range(299, 199, -1)]


def test_a_number_beyond_all_is_no_metric() -> None:
    run = json.dumps(a_run()).replace("0.5", "1" + "0" * 400)
    with answering(saying(f'{{"runs": [{run}]}}'.encode())) as at:
        try:
            (found,) = MlflowRest().of_job(at, 7, 99)
        except TrackerAway:
            return
    assert found.metrics == ()


def test_pages_without_end_are_read_so_far() -> None:
    asked: list[str] = []

    def again(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if "page_token" in body:
            asked.append(body["page_token"])
        runs = [a_run(f"r{len(asked)}-{at}") for at in range(300)]
        saying({"runs": runs, "next_page_token": "more"})(handler, body)

    with answering(again) as at:
        assert len(MlflowRest().newest(at, 0)) == 1000
    assert asked == ["more"] * 4


def test_the_newest_version_of_a_model_counts() -> None:
    versions = [{"version": "9"}, {"version": "10", "run_id": "r1", "creation_timestamp": 8}]
    models = [{"name": "a/b ☃", "latest_versions": versions}, {"name": "empty"}]
    with answering(saying({"registered_models": models, "runs": [a_run()]})) as at:
        (model,) = MlflowRest().models(at)
    assert (model.name, model.version, model.made_ms) == ("a/b ☃", "10", 8)
    assert model.url == f"{at}/#/models/a%2Fb%20%E2%98%83"
    assert model.run is not None
    assert model.run.job == 7


def test_a_server_that_always_ends_is_started_less_and_less_often(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(server.log, "warning", lambda _, **more: told.append(more))
    kept = MlflowServer(reachable, lambda: now[0])
    setup = MlflowSetup(port=1, program="/bin/false")

    def has_ended(times: int) -> bool:
        kept.keep(setup)
        return len(told) == times

    for times, pause_s in enumerate((0.0, 1.0, 2.0, 4.0), start=1):
        now[0] += pause_s
        until(partial(has_ended, times), "its end")
    assert [each["in_s"] for each in told] == [1.0, 2.0, 4.0, 8.0]
    kept.keep(None)
    kept.end()


def test_it_gives_way_before_the_disk_is_full(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [100]
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(server.shutil, "disk_usage", lambda _: usage(1000, 0, free[0]))
    told: list[str] = []
    monkeypatch.setattr(server.log, "warning", lambda _, why, **__: told.append(why))
    program = reachable / "program"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    kept, setup = MlflowServer(reachable), MlflowSetup(port=1, program=str(program))
    kept.keep(setup)
    process = kept._process  # noqa: SLF001
    assert process is not None
    free[0] = 49
    kept.keep(setup)
    assert process.poll() is not None
    kept.keep(setup)
    assert told == ["less than 1/20 of the disk is free"]
    free[0] = 50
    kept.keep(setup)
    assert kept._process is not None  # noqa: SLF001
    kept.end()


def test_nothing_is_started_without_a_program(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "installed", lambda: "")
    told: list[str] = []
    monkeypatch.setattr(server.log, "warning", lambda _, why, **__: told.append(why))
    MlflowServer(reachable).keep(MlflowSetup(port=1))
    assert told == ["no mlflow is installed here: pip install 'allotment[mlflow]'"]
    assert not list(reachable.iterdir())
