"""Terminals at a distance: real processes and pseudo-terminals behind real WebSockets."""

import fcntl
import json
import os
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from allotment.client import Client
from allotment.client.session import Session
from tests.integration.api.live import Live
from tests.support.cluster import gone, until
from tests.support.patience import PATIENCE_S


@pytest.fixture
def job(live: Live) -> int:
    job = live.submit("fake forever")
    live.wait_for(job, "running")
    return job


@contextmanager
def connected(live: Live, job: int | str, query: str = "") -> Iterator[ClientConnection]:
    uri = f"ws://localhost/v1/jobs/{job}/exec{query}"
    with unix_connect(live.socket, uri, compression=None) as connection:
        yield connection


@contextmanager
def entered(live: Live, job: int, *argv: str, **greeting: object) -> Iterator[ClientConnection]:
    with connected(live, job) as connection:
        connection.send(json.dumps({"argv": argv, **greeting}))
        yield connection


def heard(connection: ClientConnection) -> tuple[bytes, int | None]:
    """Listen to the end: all output, and the exit code."""
    out, code = b"", None
    try:
        for message in connection:
            if isinstance(message, bytes):
                out += message
            else:
                code = json.loads(message)["exit"]
    except ConnectionClosed:
        pass
    return out, code


def hear(connection: ClientConnection, text: bytes) -> bytes:
    """Listen until something was said."""
    out = b""
    while text not in out:
        message = connection.recv(timeout=PATIENCE_S)
        assert isinstance(message, bytes), message
        out += message
    return out


def children_with(word: str) -> list[int]:
    """Find processes by a word of their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                found.append(int(entry.name))
    return found


# ── with pipes ──────────────────────────────────────────────────────────────────────────


def test_a_commands_output_and_exit_code(live: Live, job: int) -> None:
    with entered(live, job, "sh", "-c", "echo out; echo err >&2; exit 7") as connection:
        out, code = heard(connection)
    assert sorted(out.splitlines()) == [b"err", b"out"]
    assert code == 7


def test_input_goes_in_and_has_an_end(live: Live, job: int) -> None:
    with entered(live, job, "sha256sum") as connection:
        text = os.urandom(1 << 20)
        for start in range(0, len(text), 1 << 16):
            connection.send(text[start : start + (1 << 16)])
        connection.send('{"eof": true}')
        out, code = heard(connection)
    assert code == 0
    assert out.decode().split()[0] == sha256(text).hexdigest()


def test_input_and_output_at_once(live: Live, job: int) -> None:
    """More than all buffers between hold: neither side may wait for the other to read."""
    text = os.urandom(1 << 16)
    times = 512

    def feed(session: Session) -> None:
        for _ in range(times):
            session.send(text)
        session.end_input()

    out = sha256()
    with (
        Client(state=str(live.folder)) as client,
        client.exec(job, ["cat"]) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        fed = pool.submit(feed, session)
        for data in session:
            out.update(data)
        fed.result()
    assert session.exit_code == 0
    assert out.digest() == sha256(text * times).digest()


def test_variables_are_set_and_ours_are_not_there(
    live: Live, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "hunter22")
    with entered(live, job, "env", env={"COLOUR": "red", "EMPTY": ""}) as connection:
        out, _ = heard(connection)
    assert b"COLOUR=red\n" in out
    assert b"EMPTY=\n" in out
    assert b"hunter22" not in out


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
    ],
)
@pytest.mark.parametrize("tty", [False, True])
def test_the_exit_code_is_the_commands(
    live: Live, job: int, argv: list[str], code: int, tty: bool
) -> None:
    with entered(live, job, *argv, tty=tty) as connection:
        assert heard(connection)[1] == code


def test_what_a_command_leaves_behind_holds_nobody_up(live: Live, job: int) -> None:
    began = time.monotonic()
    with entered(live, job, "sh", "-c", "sleep 61.21987 & echo done") as connection:
        assert heard(connection) == (b"done\n", 0)
    assert time.monotonic() - began < 60


# ── with a terminal ─────────────────────────────────────────────────────────────────────


def test_a_terminal_is_the_commands_own(live: Live, job: int) -> None:
    script = "tty; stty size; ps -o tty= -p $$; echo $TERM"
    with entered(
        live, job, "sh", "-c", script, tty=True, rows=33, cols=101, env={"TERM": "dumb"}
    ) as connection:
        out, code = heard(connection)
    name, size, controlling, term = out.decode().split("\r\n")[:4]
    assert name.startswith("/dev/pts/")
    assert size == "33 101"
    assert f"/dev/{controlling.strip()}" == name
    assert term == "dumb"
    assert code == 0


def test_a_terminal_may_be_resized(live: Live, job: int) -> None:
    script = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done"
    with entered(live, job, "sh", "-c", script, tty=True) as connection:
        hear(connection, b"ready")
        connection.send('{"resize": [50, 132]}')
        out, code = heard(connection)
    assert b"50 132" in out
    assert code == 3


def test_control_c_interrupts_the_command_and_not_us(live: Live, job: int) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with entered(live, job, "sh", "-c", script, tty=True) as connection:
        hear(connection, b"ready")
        connection.send(b"\x03")
        out, code = heard(connection)
    assert b"caught" in out
    assert code == 5


def test_end_of_input_in_a_terminal(live: Live, job: int) -> None:
    with entered(live, job, "cat", tty=True) as connection:
        connection.send(b"hello\n")
        hear(connection, b"hello\r\nhello\r\n")
        connection.send('{"eof": true}')
        assert heard(connection)[1] == 0


def test_much_output_is_not_lost_at_the_end(live: Live, job: int) -> None:
    with entered(live, job, "seq", "100000", tty=True) as connection:
        out, code = heard(connection)
    assert code == 0
    assert out.endswith(b"99999\r\n100000\r\n")
    assert out.count(b"\n") == 100_000


# ── hanging up ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("trap", ["", "trap '' HUP TERM INT; "])
def test_hanging_up_ends_the_command(live: Live, job: int, tty: bool, trap: str) -> None:
    mark = f"mark-{os.getpid()}-{tty}-{bool(trap)}"
    script = f"{trap}echo ready; while :; do sleep 0.05; done"
    with entered(live, job, "sh", "-c", script, mark, tty=tty) as connection:
        hear(connection, b"ready")
        pids = children_with(mark)
        assert pids
        connection.socket.close()
    until(lambda: all(gone(pid) for pid in pids), "the command to be gone")


def test_hanging_up_ends_a_command_that_takes_no_input(live: Live, job: int) -> None:
    """What it was sent lies unread in front of the end of the connection."""
    with (
        Client(state=str(live.folder)) as client,
        client.exec(job, ["sh", "-c", "echo ready; sleep 60; :", "mark-deaf"]) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        assert next(iter(session)) == b"ready\n"
        # The shell, and for an instant its child, until that becomes `sleep`.
        pids = children_with("mark-deaf")
        fed = pool.submit(session.send, bytes(4 << 20))
        until(lambda: is_full(pids[0]), "the command's input to be full")
        session.close()
        fed.result(PATIENCE_S)
    until(lambda: all(gone(pid) for pid in pids), "the command to be gone")


def is_full(pid: int) -> bool:
    """Whether the pipe to a process's standard input takes no more."""
    with Path(f"/proc/{pid}/fd/0").open("rb", buffering=0) as pipe:
        unread = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        return unread == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def test_a_stop_of_the_service_ends_the_command(live: Live, job: int) -> None:
    with entered(live, job, "sh", "-c", "echo ready; sleep 600", "mark-stop") as connection:
        hear(connection, b"ready")
        pids = children_with("mark-stop")
        began = time.monotonic()
        live.__exit__()
        assert time.monotonic() - began < 30
        assert heard(connection)[1] is None
    until(lambda: all(gone(pid) for pid in pids), "the command to be gone")


def test_a_client_that_does_not_listen_stops_its_command_only(live: Live, job: int) -> None:
    with entered(live, job, "sh", "-c", "yes | head -c 9000000") as connection:
        connection.recv(timeout=PATIENCE_S)
        assert live.get("/v1/service")["ready"]
        out, code = heard(connection)
    assert code == 0
    assert len(out) > 3_000_000


# ── refusals ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ref", "query", "status", "code"),
    [
        ("nobody", "", 404, "no_such_job"),
        ("last", "?task=nobody.1", 404, "no_such_task"),
        ("..%2f..", "", 404, "no_such_job"),
    ],
)
def test_a_refusal_comes_before_the_handshake(
    live: Live, job: int, ref: str, query: str, status: int, code: str
) -> None:
    with pytest.raises(InvalidStatus) as refused, connected(live, ref, query):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["code"] == code


def test_a_task_that_does_not_run_cannot_be_entered(live: Live) -> None:
    job = live.submit("fake 0.01")
    live.wait_for(job, "succeeded")
    with pytest.raises(InvalidStatus) as refused, connected(live, job):
        pass
    assert json.loads(refused.value.response.body or b"")["code"] == "wrong_state"


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "hello",
        "{}",
        '{"argv": []}',
        '{"argv": [""]}',
        '{"argv": ["a\\u0000b"]}',
        '{"argv": ["true"], "rows": 0, "tty": true}',
        '{"argv": ["true"], "cols": 99999, "tty": true}',
        '{"argv": ["true"], "env": {"A B": "c"}}',
        '{"argv": ["true"], "env": {"LD_PRELOAD=x;": "c"}}',
        '{"argv": ["true"], "root": true}',
        '{"argv": ' + "[" * 100_000,
        b"\x00\x01",
    ],
)
def test_a_bad_first_frame_is_refused_in_words(
    live: Live, job: int, frame: str | bytes
) -> None:
    with connected(live, job) as connection:
        connection.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007
    assert closed.value.rcvd.reason


def test_a_bad_later_frame_ends_it(live: Live, job: int) -> None:
    for frame in ("nonsense", '{"resize": [0, 0]}', '{"resize": "big"}'):
        with entered(live, job, "cat", tty=True) as connection:
            connection.send(frame)
            assert heard(connection)[1] is None


def test_a_command_that_is_not_there(live: Live, job: int) -> None:
    with entered(live, job, "/no/such/thing", tty=True) as connection:
        assert heard(connection)[1] == 127
    with (
        entered(live, job, "/no/such/thing") as connection,
        pytest.raises(ConnectionClosed) as closed,
    ):
        connection.recv(timeout=PATIENCE_S)
    assert closed.value.rcvd is not None
    assert "cannot start" in closed.value.rcvd.reason
