"""What should never come, and comes: each gets a clear answer and harms nobody."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection

import pytest

from tests.integration.api.live import Answer, Live
from tests.support.patience import PATIENCE_S

JOB = {"name": "job", "tenant": "vision", "command": "true"}
JSON = {"Content-Type": "application/json"}


def problem(answer: Answer, status: int, code: str) -> dict[str, object]:
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json["code"] == code
    assert answer.json["detail"]
    return answer.json


@pytest.fixture(autouse=True)
def is_well_afterwards(live: Live) -> Iterator[None]:
    yield
    assert live.ask("POST", "/v1/jobs", JOB).status == 201
    assert not live.service.trouble


BODIES = {
    "nothing": b"",
    "spaces": b"   \n",
    "half": b'{"name": "x", ',
    "a list": b"[1, 2]",
    "a word": b'"hello"',
    "null": b"null",
    "binary": bytes(range(256)) * 40,
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "NUL": b'{"name": "a\\u0000b", "command": "true"}',
    "unknown key": b'{"name": "x", "command": "true", "colour": "red"}',
    "wrong type": b'{"name": 17, "command": ["a", 1, {}]}',
    "negative": b'{"name": "x", "command": "true", "resources": {"cpu": -1}}',
    "absurd": b'{"name": "x", "command": "true", "resources": {"memory": "1e99GiB"}}',
    "huge number": b'{"name": "x", "command": "true", "priority": ' + b"9" * 5000 + b"}",
    "infinite": b'{"name": "x", "command": "true", "resources": {"gpu": Infinity}}',
    "traversal": b'{"name": "../../etc/passwd", "command": "true"}',
    "twice": b'{"name": "x", "name": "y", "command": "true"}',
    "deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep list": b"[" * 100_000,
}


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_bad_body_is_refused_with_its_place(live: Live, what: str, kind: str) -> None:
    answer = live.ask("POST", "/v1/jobs", BODIES[what], {"Content-Type": kind})
    if len(BODIES[what]) > 256 * 1024:
        problem(answer, 413, "too_large")
        return
    found = problem(answer, 422, "bad_spec")
    assert found["problems"]
    assert len(answer.body) < 64_000


def test_ten_megabytes_are_refused_and_the_connection_lives(live: Live) -> None:
    answer = live.ask("POST", "/v1/jobs", b" " * (10 << 20), JSON)
    found = problem(answer, 413, "too_large")
    assert "256 KiB" in str(found["detail"])
    for method, path in (("PATCH", "/v1/jobs/1"), ("POST", "/v1/service:backup")):
        live.ask("POST", "/v1/jobs", JOB)
        problem(live.ask(method, path, b"x" * (10 << 20), JSON), 413, "too_large")


def test_a_body_without_a_length_is_bounded_while_it_is_read(live: Live) -> None:
    with live.raw() as sock:
        sock.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(6):
            sock.sendall(chunk)
        assert b" 413 " in sock.recv(100)


def test_a_body_without_an_end_is_not_read_for_ever(live: Live) -> None:
    with live.raw() as sock:
        sock.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
        )
        sent = 0
        with suppress(BrokenPipeError, ConnectionResetError):
            while sent < 256 << 20:
                sent += sock.send(b" " * 65536)
        assert sent < 64 << 20


def test_endless_headers_are_cut_off(live: Live) -> None:
    for head in (b"GET /" + b"x" * 300_000, b"GET / HTTP/1.1\r\nA: " + b"y" * 300_000):
        with live.raw() as sock:
            try:
                sock.sendall(head)
                answer = sock.recv(100)
            except (BrokenPipeError, ConnectionResetError):
                answer = b" 431 "
            assert b" 431 " in answer or b" 400 " in answer


def test_what_is_no_http_is_refused(live: Live) -> None:
    for junk in (b"\x16\x03\x01\x02\x00" + bytes(500), b"hello\r\n\r\n", b"\0" * 1000):
        with live.raw() as sock:
            sock.sendall(junk)
            assert b" 400 " in sock.recv(100)


def test_a_client_that_leaves_in_the_middle_costs_nothing(live: Live) -> None:
    for _ in range(20):
        with live.raw() as sock:
            sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert live.get("/v1/jobs")["items"] == []


def test_slow_talkers_do_not_hold_up_others(live: Live) -> None:
    with live.raw() as one, live.raw() as other:
        for sock in (one, other):
            sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        began = time.monotonic()
        assert live.get("/v1/service")["ready"]
        assert time.monotonic() - began < 2


def test_a_large_bad_file_does_not_hold_up_others(live: Live) -> None:
    """The careful reader takes its time in a thread of its own."""
    text = "env:\n" + "".join(f"  A{n}: *x{n}\n" for n in range(12_000))
    with live.raw() as sock:
        sock.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/yaml\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(text), text.encode())
        )
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert live.get("/v1/service")["ready"]
            slowest = max(slowest, time.monotonic() - began)
        assert b" 422 " in sock.recv(1000)
        assert slowest < 1


MOST = 40
"""Connections of one user, where a test takes them all."""


def test_a_connection_too_many_is_turned_away(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.api.connections.MOST_CONNECTIONS", MOST)
    held: list[socket.socket] = []
    try:
        for _ in range(MOST):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(live.socket)
            held.append(sock)
        with live.raw() as sock:
            assert b" 429 " in sock.recv(100)
    finally:
        for sock in held:
            sock.close()
    deadline = time.monotonic() + PATIENCE_S
    while not _is_let_in(live):
        assert time.monotonic() < deadline


def _is_let_in(live: Live) -> bool:
    """Whether there is room again: one that is turned away may be so before it has asked."""
    try:
        return live.ask("GET", "/healthz").status == 200
    except OSError:
        return False


def test_idle_connections_without_a_token_keep_nobody_out(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has been there longest gives way; those with a token stay."""
    monkeypatch.setattr("allotment.api.connections.MOST_CONNECTIONS", MOST)
    bearer = {"Authorization": f"Bearer {live.token}"}
    with ExitStack() as held:
        known = HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
        held.callback(known.close)
        known.request("GET", "/v1/service", headers=bearer)
        known.getresponse().read()
        strangers = [
            held.enter_context(socket.create_connection(("127.0.0.1", live.port), PATIENCE_S))
            for _ in range(MOST + 5)
        ]
        for _ in range(3):
            assert live.ask_tcp("GET", "/v1/service", headers=bearer).status == 200
        with suppress(ConnectionResetError):
            assert strangers[0].recv(1) == b""
        known.request("GET", "/v1/service", headers=bearer)
        assert known.getresponse().status == 200


def test_a_connection_that_shows_no_token_is_closed_after_a_while(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.api.connections.STRANGER_S", 0.05)
    sock = socket.create_connection(("127.0.0.1", live.port), PATIENCE_S)
    with sock, suppress(ConnectionResetError):
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/", 404, "not_found"),
        ("/v2/jobs", 404, "not_found"),
        ("/v1/jobs/", 404, "not_found"),
        ("/v1/jobs?limit=0", 422, "bad_request"),
        ("/v1/jobs?limit=many", 422, "bad_request"),
        ("/v1/jobs?state=happy", 422, "bad_request"),
        ("/v1/jobs?before=-1", 422, "bad_request"),
        ("/v1/jobs?before=99999999999999999999999", 422, "bad_request"),
        ("/v1/jobs/nobody", 404, "no_such_job"),
        ("/v1/jobs/999999", 404, "no_such_job"),
        ("/v1/jobs/99999999999999999999999999", 404, "no_such_job"),
        ("/v1/jobs/%00", 404, "no_such_job"),
        ("/v1/jobs/%F0%9F%92%A9", 404, "no_such_job"),
        ("/v1/jobs/" + "x" * 5000, 404, "no_such_job"),
        ("/v1/jobs/..%2f..%2fetc%2fpasswd", 404, "no_such_job"),
        ("/v1/jobs/..", 404, "no_such_job"),
        ("/v1/events?follow=perhaps", 422, "bad_request"),
        ("/v1/events?after=-1", 422, "bad_request"),
        ("/v1/events?limit=1000000", 422, "bad_request"),
    ],
)
def test_a_wrong_path_or_question_is_explained(
    live: Live, path: str, status: int, code: str
) -> None:
    problem(live.ask("GET", path), status, code)


def test_a_wrong_method_is_told_the_right_ones(live: Live) -> None:
    answer = live.ask("DELETE", "/v1/jobs")
    problem(answer, 405, "not_supported")
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/service:backup", b"{}"),
        ("/v1/service:backup", b'{"target": 7}'),
        ("/v1/service:backup", b'{"target": "/x", "mode": 1}'),
        ("/v1/service:backup", b"[" * 100_000),
        ("/v1/nodes/n0:drain", b'{"reason": ["a"]}'),
        ("/v1/nodes/n0:drain", b"\xff\xfe"),
    ],
)
def test_a_small_body_is_read_as_strictly(live: Live, path: str, body: bytes) -> None:
    problem(live.ask("POST", path, body, JSON), 422, "bad_spec")


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "tab\there", "ü"])
def test_a_bad_key_is_refused(live: Live, key: str) -> None:
    answer = live.ask("POST", "/v1/jobs", JOB, {"Idempotency-Key": key})
    found = problem(answer, 422, "bad_spec")
    assert "Idempotency-Key" in json.dumps(found)


@pytest.mark.parametrize("query", ["form=old", "held=perhaps", "priority=high", "form="])
def test_a_bad_parameter_of_a_submission_is_refused(live: Live, query: str) -> None:
    problem(live.ask("POST", f"/v1/jobs?{query}", JOB), 422, "bad_spec")


def test_what_nobody_foresaw_is_not_shown(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("the inside of the service")

    monkeypatch.setattr(live.service, "tenants", broken)
    found = problem(live.ask("GET", "/v1/tenants"), 500, "internal")
    assert "inside of the service" not in json.dumps(found)
    assert "logged as" in str(found["detail"])


def test_trouble_with_the_log_is_said(live: Live) -> None:
    live.call(lambda: setattr(live.service.pipeline.committer, "trouble", "disk full"))
    answer = live.ask("GET", "/readyz")
    assert (answer.status, answer.body) == (503, b"not ready\n")
    assert live.get("/v1/service")["trouble"] == "disk full"
    live.call(lambda: setattr(live.service.pipeline.committer, "trouble", ""))
