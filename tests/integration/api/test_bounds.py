"""What one client can make the service hold: little, and not for long."""

import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from allotment.api import body, connections
from allotment.client.address import Address
from allotment.client.errors import Refused
from allotment.client.transport import Transport
from tests.integration.api.live import Live
from tests.integration.api.test_fair_use import at_work, few
from tests.integration.api.test_guard import NOBODY, as_user
from tests.support.cluster import until

__all__ = ["few"]

GET = b"GET /v1/service HTTP/1.1\r\nHost: x\r\n"
CROWD = 150
"""Connections, each of which would take megabytes."""
MOST_MIB = 40


def resident_mib() -> float:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize() / 2**20


@contextmanager
def crowd(live: Live, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that send something, as far as it is taken, and read nothing."""
    with ExitStack() as stack:
        socks: list[socket.socket] = []
        for _ in range(CROWD):
            sock = stack.enter_context(live.raw())
            sock.setblocking(False)
            with suppress(BlockingIOError, BrokenPipeError):
                sock.send(sent)
            socks.append(sock)
        yield socks


def said(sock: socket.socket, *, until_closed: bool = True) -> bytes:
    """Return what comes on a connection."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := sock.recv(1 << 16):
            data += piece
            if not until_closed:
                break
    return data


@pytest.mark.parametrize(
    "sent",
    [GET + b"a:\r\n" * 15_000, GET + b"a:\r\n" * 15_000 + b"\r\n"],
    ids=["open", "whole"],
)
def test_many_small_headers_take_no_memory(live: Live, sent: bytes) -> None:
    with live.raw() as sock:
        sock.sendall(sent)
        assert said(sock).startswith(b"HTTP/1.1 431 ")
    before = resident_mib()
    with crowd(live, sent):
        assert live.get("/v1/service")["ready"]
        assert resident_mib() - before < MOST_MIB
    with live.raw() as sock:
        sock.sendall(GET + b"a: b\r\n" * 90 + b"\r\n")
        assert said(sock, until_closed=False).startswith(b"HTTP/1.1 200 ")


def test_a_row_of_requests_takes_no_memory(live: Live) -> None:
    """A few one after the other are answered in order; whoever sends thousands is cut off."""
    with live.raw() as sock:
        sock.sendall((GET + b"\r\n") * 4)
        answers = b""
        while answers.count(b"HTTP/1.1 200 ") < 4:
            answers += said(sock, until_closed=False)
    before = resident_mib()
    with crowd(live, (GET + b"\r\n") * 5_000) as socks:
        assert live.get("/v1/service")["ready"]
        assert resident_mib() - before < MOST_MIB
        for sock in socks:
            sock.settimeout(10)
            assert said(sock).count(b"HTTP/1.1 ") < 5_000


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_answer_that_is_not_taken_is_its_users_alone(
    few: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes one of this user's places until it is taken, or was not taken for a while."""
    monkeypatch.setattr(connections, "TAKE_S", 0.3)
    long = {"name": "x" * 100, "command": "fake forever", "env": {"A": "y" * 200_000}}
    made = few.ask("POST", "/v1/jobs", long).json["id"]
    with ExitStack() as stack:
        socks = [stack.enter_context(few.raw()) for _ in range(4)]
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(b"GET /v1/jobs/%d HTTP/1.1\r\nHost: x\r\n\r\n" % made * 4)
        until(lambda: at_work(few) == 4, "all that may be at work")
        assert as_user(NOBODY, few, "GET", "/v1/jobs").status == 200
        assert few.ask("GET", "/v1/jobs").status == 200, "one was hung up on"
        until(lambda: at_work(few) == 1, "all of them to be hung up on")  # this one is left
        assert all(b"HTTP/1.1 200 " in said(sock) for sock in socks)


def test_a_body_that_does_not_come_is_not_waited_for(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "PATIENCE_S", 0.2)
    for part in (b"", b"{"):
        with live.raw() as sock:
            sock.sendall(
                b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n" + part
            )
            answer = said(sock, until_closed=False)
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert b"did not come within" in answer


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_configuration_is_read_of_nobody_but_an_administrator(reachable: Path) -> None:
    with Live(reachable / "state") as live:
        answer = as_user(NOBODY, live, "POST", "/v1/config:plan", b"{")
        assert (answer.status, answer.json["code"]) == (403, "forbidden")


# ── connections ─────────────────────────────────────────────────────────────────────────


def test_who_is_turned_away_is_told_why(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 5)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(live.raw())
        refused = said(stack.enter_context(live.raw()))  # before it has asked anything
    head, _, text = refused.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1" in head
    told = json.loads(text)
    assert told["code"] == "too_many"
    assert f"User {os.geteuid()} has 5 connections" in told["detail"]

    def is_free() -> bool:
        with suppress(ConnectionError):  # turned away before it had asked
            return live.ask("GET", "/v1/jobs").status == 200
        return False

    until(is_free, "a place to be free")


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nobody_stands_behind_another_users_crowd(reachable: Path) -> None:
    """All that wait are taken in one round: a round may be long, a thousand of them are not."""
    with Live(reachable / "state") as live, ExitStack() as stack:
        rounds = 0

        def busy() -> None:
            nonlocal rounds
            rounds += 1
            time.sleep(0.02)
            live.loop.call_soon(busy)

        def begin() -> None:
            live.loop.call_soon(busy)
            for _ in range(100):
                stack.enter_context(live.raw())  # they wait: this round has not ended

        live.call(begin)
        began = rounds
        assert as_user(NOBODY, live, "GET", "/healthz").status == 200
        assert rounds - began < 50


def test_connections_wait_while_there_is_no_descriptor(live: Live) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with live.raw() as sock, ExitStack() as stack:
        live.get("/v1/service")
        late = stack.enter_context(socket.socket(socket.AF_UNIX))
        late.settimeout(20)
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        fillers: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            with suppress(OSError):
                while True:
                    fillers.append(os.dup(sock.fileno()))
            late.connect(live.socket)
            late.sendall(GET + b"\r\n")
            late.settimeout(0.1)
            with pytest.raises(TimeoutError):
                late.recv(1)
        finally:
            for each in fillers:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.settimeout(20)
        assert late.recv(100).startswith(b"HTTP/1.1 200 ")


def test_the_client_reads_why_it_is_turned_away(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr("allotment.client.transport.PAUSES_S", ())
    with live.raw():
        transport = Transport(lambda: [Address(socket=live.socket)])
        for _ in range(20):  # before it has sent its request, or after
            with pytest.raises(Refused, match="has 1 connections, which is all"):
                transport.fetch("POST", "/v1/jobs", b"x" * 100_000)
