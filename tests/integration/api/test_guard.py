"""Who may talk to the service: each way in that must be shut, tried."""

import http.client
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect, unix_connect

from tests.integration.api.live import Answer, Live
from tests.support.patience import PATIENCE_S

EVIL = "http://evil.example"
WS_PATH = "/v1/jobs/1/exec"


def bearer(live: Live) -> dict[str, str]:
    return {"Authorization": f"Bearer {live.token}"}


def is_refused(answer: Answer, code: str = "forbidden", status: int = 403) -> bool:
    return (
        answer.status == status
        and answer.json["code"] == code
        and answer.headers["content-type"] == "application/problem+json"
        and bool(answer.json["hint"])
    )


# ── the token ───────────────────────────────────────────────────────────────────────────


def test_the_token_opens_the_port_as_the_services_own_user(live: Live) -> None:
    answer = live.ask_tcp("GET", "/v1/service", headers=bearer(live))
    assert answer.status == 200
    job = {"name": "job", "tenant": "vision", "command": "true"}
    made = live.ask_tcp("POST", "/v1/jobs", job, bearer(live)).json["id"]
    record = live.service.state.jobs[made]
    assert record.owner.uid == os.geteuid()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer \xe4\xf6"},
    ],
)
def test_without_the_token_the_port_is_shut(live: Live, headers: dict[str, str]) -> None:
    answer = live.ask_tcp("GET", "/v1/jobs", headers=headers)
    assert is_refused(answer, "unauthenticated", 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_part_of_the_token_is_not_enough(live: Live) -> None:
    for wrong in (live.token[:-1], live.token + "x", live.token.swapcase()):
        headers = {"Authorization": f"Bearer {wrong}"}
        assert live.ask_tcp("GET", "/v1/jobs", headers=headers).status == 401


def test_health_needs_no_token_and_says_one_word(live: Live) -> None:
    assert live.ask_tcp("GET", "/healthz").body == b"ok\n"
    assert live.ask_tcp("GET", "/readyz").body == b"ready\n"
    assert live.ask_tcp("POST", "/v1/service:stop").status == 401


def test_files_are_closed_to_others(live: Live) -> None:
    for name in ("token", "allot.db"):
        assert stat.S_IMODE((live.folder / name).stat().st_mode) == 0o600
    root = os.geteuid() == 0
    assert stat.S_IMODE(live.folder.stat().st_mode) == (0o711 if root else 0o700)
    assert stat.S_IMODE(Path(live.socket).stat().st_mode) == (0o666 if root else 0o600)


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "token").write_text("x" * 43)
    (state / "token").chmod(0o644)
    with Live(state) as live:
        assert live.token != "x" * 43
        assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600


# ── web pages ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "[::1]", ""])
def test_another_host_is_refused_even_with_the_token(live: Live, host: str) -> None:
    answer = live.ask_tcp("GET", "/v1/jobs", headers={**bearer(live), "Host": host})
    assert is_refused(answer)


def test_a_missing_or_second_host_is_refused(live: Live) -> None:
    for hosts in ([], [f"127.0.0.1:{live.port}", "evil.example"]):
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
        connection.putrequest("GET", "/healthz", skip_host=True)
        for host in hosts:
            connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == 403
        connection.close()


def test_our_own_hosts_are_taken(live: Live) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        headers = {**bearer(live), "Host": f"{name}:{live.port}"}
        assert live.ask_tcp("GET", "/v1/jobs", headers=headers).status == 200


@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1", "http://localhost:1"])
def test_a_web_page_is_refused_everywhere(live: Live, origin: str) -> None:
    headers = {"Origin": origin}
    assert is_refused(live.ask_tcp("POST", "/v1/jobs", {}, {**bearer(live), **headers}))
    assert is_refused(live.ask("POST", "/v1/jobs", {}, headers))
    preflight = {**headers, "Access-Control-Request-Method": "POST"}
    answer = live.ask_tcp("OPTIONS", "/v1/jobs", headers=preflight)
    assert is_refused(answer)
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_our_own_origin_is_taken(live: Live) -> None:
    headers = {**bearer(live), "Origin": f"http://127.0.0.1:{live.port}"}
    assert live.ask_tcp("GET", "/v1/jobs", headers=headers).status == 200


def test_the_guard_stands_before_websockets_too(live: Live) -> None:
    uri = f"ws://127.0.0.1:{live.port}{WS_PATH}"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(InvalidStatus) as refused:
            connect(uri, additional_headers=headers, proxy=None)
        assert refused.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        connect(uri, additional_headers=bearer(live), origin=EVIL, proxy=None)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        unix_connect(live.socket, "ws://localhost" + WS_PATH, origin=EVIL)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body or b"")["code"] == "forbidden"


# ── neighbours ──────────────────────────────────────────────────────────────────────────

NOBODY = 65534


def as_user(uid: int, live: Live, method: str, path: str, body: object = None) -> Answer:
    """Ask as another user: a child process that gave up being root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            answer = live.ask(method, path, body)
            text = json.dumps([answer.status, answer.headers, answer.body.decode()])
        except BaseException as error:
            text = json.dumps([0, {}, f"{type(error).__name__}: {error}"])
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        status, headers, text = json.loads(pipe.read())
    os.waitpid(child, 0)
    return Answer(status, headers, text.encode())


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_kernel_says_who_is_asking(reachable: Path) -> None:
    with Live(reachable / "state") as live:
        job = {"name": "theirs", "tenant": "vision", "command": "fake forever"}
        made = as_user(NOBODY, live, "POST", "/v1/jobs", job)
        assert made.status == 201, made
        record = live.service.state.jobs[made.json["id"]]
        assert record.owner.uid == NOBODY
        assert record.owner.user == "nobody"
        assert record.owner.groups

        mine = live.submit()
        cancelled = as_user(NOBODY, live, "POST", f"/v1/jobs/{mine}:cancel")
        assert is_refused(cancelled)
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/service:stop"))
        backup = {"target": "/tmp/stolen"}
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/service:backup", backup))
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/nodes/n0:drain", {}))
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/health", {"where": "n0"}))
        fans = {"name": "fans", "begin": 1, "end": 1 << 42, "nodes": ["n0"]}
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/reservations", fans))
        assert is_refused(as_user(NOBODY, live, "POST", "/v1/reservations/fans:end"))
        for what in ("outputs", "logs", "logs?follow=true"):
            assert is_refused(as_user(NOBODY, live, "GET", f"/v1/jobs/{mine}/{what}"))
        assert as_user(NOBODY, live, "GET", "/v1/jobs").status == 200


@contextmanager
def a_service_of(uid: int, folder: Path) -> Iterator[Live]:
    """Run a service in a child process that gave up being root, its files open to all."""
    up, said = os.pipe()
    end, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            with Live(folder) as live:
                live.folder.chmod(0o755)
                Path(live.socket).chmod(0o666)
                os.write(said, b"up")
                os.read(end, 1)
            os._exit(0)
        except BaseException as error:
            os.write(said, repr(error).encode())
        os._exit(1)
    os.close(said)
    os.close(end)
    try:
        assert os.read(up, 1000) == b"up"
        service = Live(folder)
        service.socket = str(folder / "allot.sock")
        yield service
    finally:
        os.close(told)
        os.close(up)
        _, status = os.waitpid(child, 0)
        assert status == 0


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_users_own_service_answers_only_this_user_and_root(reachable: Path) -> None:
    state = reachable / "state"
    state.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    with a_service_of(NOBODY, state) as theirs:
        assert theirs.ask("GET", "/v1/jobs").status == 200  # we are root
        assert as_user(NOBODY, theirs, "GET", "/v1/jobs").status == 200
        other = as_user(NOBODY - 1, theirs, "GET", "/v1/jobs")
        assert is_refused(other)
        assert "belongs to nobody" in other.json["detail"]
        assert is_refused(as_user(NOBODY - 1, theirs, "GET", "/healthz"))
