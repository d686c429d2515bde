"""A terminal in a task, against a WebSocket server that plays the service."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, unix_serve

from allotment.client import Client, Refused
from tests.integration.cli.canned import a_job
from tests.support.patience import PATIENCE_S

ALLOT = (sys.executable, "-m", "allotment.cli")
Play = Callable[[ServerConnection], None]


@contextmanager
def playing(state: Path, play: Play, refuse: bytes = b"") -> Iterator[None]:
    """Answer `GET /v1/jobs/12` with a job, and play with whoever opens a terminal."""

    def answer(_: ServerConnection, request: Request) -> Response | None:
        if "/exec" not in request.path:
            body, status, kind = msgspec.json.encode(a_job()), 200, "application/json"
        elif refuse:
            body, status, kind = refuse, 409, "application/problem+json"
        else:
            return None
        headers = Headers({"Content-Type": kind, "Content-Length": str(len(body))})
        return Response(status, "", headers, body)

    with unix_serve(play, str(state / "allot.sock"), process_request=answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield
        server.shutdown()
    thread.join()


def greeting_of(connection: ServerConnection) -> dict[str, object]:
    return msgspec.json.decode(connection.recv())


def test_a_command_gives_its_output_and_exit_code(state: Path) -> None:
    heard: list[object] = []

    def play(connection: ServerConnection) -> None:
        heard.append(greeting_of(connection))
        heard.append(connection.recv())
        heard.append(connection.recv())
        connection.send(b"out\n")
        connection.send('{"exit": 3}')

    with playing(state, play), Client(state=str(state)) as client:
        with client.exec(12, ["cat"], task="worker.1") as session:
            session.send(b"in")
            session.end_input()
            assert b"".join(session) == b"out\n"
        assert session.exit_code == 3
    assert heard[0] == {"argv": ["cat"], "tty": False, "rows": 24, "cols": 80, "env": {}}
    assert heard[1:] == [b"in", '{"eof":true}']


def test_a_refusal_keeps_the_services_words(state: Path) -> None:
    body = msgspec.json.encode({"detail": "It does not run.", "code": "wrong_state"})
    with playing(state, lambda _: None, refuse=body), Client(state=str(state)) as client:
        with pytest.raises(Refused, match="does not run") as caught:
            client.exec(12, ["sh"])
        assert caught.value.code == "wrong_state"


def test_input_and_output_may_be_pipes(state: Path) -> None:
    def play(connection: ServerConnection) -> None:
        greeting_of(connection)
        for message in connection:
            if isinstance(message, str):
                break
            connection.send(message.upper())
        connection.send('{"exit": 0}')

    with playing(state, play):
        ran = subprocess.run(
            [*ALLOT, "exec", "12", "--state", state, "--", "cat"],
            input=b"abc", capture_output=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"ABC", b"")


@pytest.mark.parametrize("ending", [b"exit\r", b"\x03"])
def test_a_terminal_passes_every_key_and_its_size(state: Path, ending: bytes) -> None:
    """In raw mode Ctrl-C is the task's; the size is sent first and when it changes."""
    heard: list[object] = []

    def play(connection: ServerConnection) -> None:
        heard.append(greeting_of(connection))
        connection.send(b"ready\r\n")
        for message in connection:
            heard.append(message)
            if message == ending:
                break
            if isinstance(message, str):
                connection.send(b"resized\r\n")
        connection.send(b"bye\r\n")
        connection.send('{"exit": 5}')

    with playing(state, play):
        pid, master = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [*ALLOT, "exec", "12", "--state", str(state)])
        try:
            seen = until(master, b"ready")
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
            seen += until(master, b"resized")
            os.write(master, ending)
            seen += until(master, b"bye")
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        finally:
            os.close(master)
    first = heard[0]
    assert isinstance(first, dict)
    assert first["tty"] is True
    assert "exec bash" in str(first["argv"])
    assert '{"resize":[50,132]}' in heard
    assert heard[-1] == ending


def until(master: int, wanted: bytes, seconds: float = PATIENCE_S) -> bytes:
    """Read from a terminal until it shows these bytes."""
    seen = b""
    deadline = time.monotonic() + seconds
    while wanted not in seen:
        ready, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(master, 4096)
    return seen
