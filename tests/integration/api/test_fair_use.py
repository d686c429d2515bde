"""One user at work, or at mischief, holds up nobody else: limits for each user at the front."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.ids import SYSTEM
from allotment.model.tenancy import Limits, PerUser
from tests.integration.api.live import CONFIG, Live
from tests.integration.api.test_guard import NOBODY, as_user
from tests.integration.api.test_streams import reading, running
from tests.support.cluster import UnixConnection, until

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

FEW = PerUser(requests=4, streams=2, execs=1, jobs=3)
YAML = "name: late\ncommand: 'true'\nenv:\n"
LONG = YAML + "".join(f"  V{number}: a b c d e f\n" for number in range(4_000))


def limited(per_user: PerUser) -> Limits:
    return Limits(per_user=per_user)


@pytest.fixture
def few(reachable: Path) -> Iterator[Live]:
    """A service on which one user may have very little."""
    with Live(
        reachable / "state", msgspec.structs.replace(CONFIG, limits=limited(FEW))
    ) as live:
        yield live


def allow(live: Live, per_user: PerUser) -> None:
    config = msgspec.structs.replace(CONFIG, limits=limited(per_user))
    live.run(live.service.pipeline.command(c.ApplyConfig(config), SYSTEM))


def test_a_stream_too_many_is_refused_with_what_to_do(few: Live) -> None:
    with (
        reading(few, "/v1/events?follow=true"),
        reading(few, "/v1/events?follow=true"),
    ):
        refused = few.ask("GET", "/v1/events?follow=true")
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json["code"] == "too_many"
        assert "root has 2 streams open" in refused.json["detail"]
        assert "limits.per_user.streams" in refused.json["hint"]
        assert as_user(NOBODY, few, "GET", "/v1/events").status == 200
        allow(few, PerUser())
        with reading(few, "/v1/events?follow=true") as third:
            assert third.response.status == 200


def test_a_job_too_many_is_refused_and_others_may_submit(few: Live) -> None:
    for _ in range(2):
        few.submit("fake forever")
    body = {"name": "n", "command": "true", "array": {"count": 2}}
    refused = few.ask("POST", "/v1/jobs", body)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "60"
    assert "root has 2 jobs that are not over" in refused.json["detail"]
    assert "this is 2 more" in refused.json["detail"]
    third = few.submit("fake forever")
    assert few.ask("POST", "/v1/jobs", {"name": "n", "command": "true"}).status == 429
    one = {"name": "n", "command": "true"}
    assert as_user(NOBODY, few, "POST", "/v1/jobs", one).status == 201
    few.ask("POST", f"/v1/jobs/{third}:cancel")
    few.wait_for(third, "cancelled")
    assert few.ask("POST", "/v1/jobs", one).status == 201


def test_a_command_too_many_in_tasks_is_refused(few: Live) -> None:
    job = running(few)
    upgrade = (
        f"GET /v1/jobs/{job}/exec HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    answers: list[bytes] = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(few.socket)
            sock.sendall(upgrade.encode())
            answers.append(sock.recv(4096))
    assert answers[0].startswith(b"HTTP/1.1 101")
    assert b" 429 " in answers[1] or b" 403 " in answers[1]


def test_long_files_of_one_user_are_read_in_turn_with_those_of_others(few: Live) -> None:
    """Two would be read at a time: but of one user only one, so a place stays for others."""
    allow(few, PerUser(requests=8))
    order: list[str] = []

    def send(who: str) -> None:
        connection = UnixConnection(few.socket)
        headers = {"Content-Type": "application/yaml"}
        connection.request("POST", "/v1/jobs", LONG.replace("late", who), headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        order.append(f"{who} {answer.status}")

    threads = [threading.Thread(target=send, args=(f"n{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: at_work(few) >= 4, "the crowd to be at work")
    before = len(order)
    theirs = {"name": "other", "command": "true", "env": {"LONG": "x" * 9_000}}
    assert as_user(NOBODY, few, "POST", "/v1/jobs", theirs).status == 201
    assert len(order) - before <= 3, "it did not wait for the whole crowd"
    for thread in threads:
        thread.join()


def at_work(live: Live) -> int:
    """Return the most requests that one user has at work."""
    lines = as_user(NOBODY, live, "GET", "/metrics").body.decode().splitlines()
    line = next(each for each in lines if each.startswith('allot_in_use_most{kind="requests"}'))
    return int(float(line.split()[1]))


def test_work_is_dropped_when_its_client_is_gone(few: Live) -> None:
    body = LONG.encode()
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/yaml\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    socks: list[socket.socket] = []
    for _ in range(12):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(few.socket)
        sock.sendall(head.encode() + body)
        socks.append(sock)
    until(lambda: at_work(few) == 4, "all that may be at work")
    for sock in socks:
        sock.close()
    until(lambda: at_work(few) <= 1, "the rest to be dropped")
    jobs = few.ask("GET", "/v1/jobs").json["items"]
    assert len(jobs) < 12, "not all of it was carried out"


def test_the_client_comes_back_when_it_is_told_to(few: Live) -> None:
    """A request that was one too many is sent again: nobody sees that it was refused."""
    from allotment.client.address import Address
    from allotment.client.transport import Transport

    with (
        reading(few, "/v1/events?follow=true"),
        reading(few, "/v1/events?follow=true") as second,
    ):
        transport = Transport(lambda: [Address(socket=few.socket)])
        threading.Timer(0.3, second.close).start()
        assert b"[" in transport.fetch("GET", "/v1/events?limit=1")
        transport.close()


def test_long_readings_of_one_user_keep_no_other_waiting_and_end_with_their_clients(
    few: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.service.history.PIECE", 1)
    monkeypatch.setattr("allotment.service.history.BREATH_S", 0.05)
    for _ in range(3):
        few.submit("fake forever")
    path = "/v1/statistics"
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(few.raw()) for _ in range(4)]
        for sock in socks:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            sock.setblocking(False)
        until(lambda: at_work(few) == 4, "the readings to begin")
        assert as_user(NOBODY, few, "GET", path).status == 200
        assert sum(map(has_answer, socks)) <= 2
    until(lambda: at_work(few) == 1, "what nobody waits for to be dropped")


def has_answer(sock: socket.socket) -> bool:
    """Whether anything came on a connection."""
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return False
