"""What a server that is broken, or means harm, may answer."""

import asyncio
import contextlib
import gc
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allotment.backends import http
from allotment.backends.http import Answer, Http
from allotment.backends.slurm.rest import Rest
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway
from tests.support.patience import PATIENCE_S

SECRET = {"X-SLURM-USER-TOKEN": "secret"}


class WithToken:
    """Shows a token."""

    context: ssl.SSLContext | None = None

    async def headers(self) -> Mapping[str, str]:
        return SECRET

    async def tls(self) -> ssl.SSLContext | None:
        return self.context

    def forget(self) -> None:
        return None


async def answered(
    said: bytes, ask: Callable[[str], Awaitable[object]], heard: list[bytes] | None = None
) -> object:
    """Ask a server that says this to every request, and then closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if heard is not None:
            heard.append(head)
        with contextlib.suppress(ConnectionError):
            writer.write(said)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            return await ask(f"http://127.0.0.1:{port}")
        finally:
            await asyncio.sleep(0)  # What was closed is gone a step later.


async def got(url: str) -> Answer:
    with contextlib.closing(Http(url, WithToken())) as asked:
        return await asked.ask("GET", "/")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\r\n\r\n",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nx",
    ],
)
def test_what_is_no_answer_is_said_to_be_none(said: bytes) -> None:
    with pytest.raises(EngineAway, match=r"127\.0\.0\.1"):
        asyncio.run(answered(said, got))


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 3000000\r\n\r\n",
        b"\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n",
    ],
)
def test_an_answer_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 1_000_000)
    said = b"HTTP/1.1 200 OK\r\n" + body + b"x" * 3_000_000
    with pytest.raises(EngineAway, match="more than 1000000 bytes"):
        asyncio.run(answered(said, got))


def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else() -> None:
    async def story() -> Answer:
        heard: list[bytes] = []

        async def redirected(there: str) -> Answer:
            said = f"HTTP/1.1 307 No\r\nLocation: {there}/\r\nContent-Length: 0\r\n\r\n"
            answer = await answered(said.encode(), got)
            assert isinstance(answer, Answer)
            return answer

        answer = await answered(b"HTTP/1.1 200 OK\r\n\r\n", redirected, heard)
        assert heard == []
        assert isinstance(answer, Answer)
        return answer

    assert asyncio.run(story()).status == 307


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"job_id": "no"}', b'{"job_id": 0}'])
def test_an_odd_answer_to_a_submission_may_have_been_a_yes(
    tmp_path_factory: pytest.TempPathFactory, body: bytes
) -> None:
    """A refusal would have the task started again elsewhere, beside the job that may run."""
    token = tmp_path_factory.mktemp("slurm") / "token"
    token.write_text("SLURM_JWT=a.b.c")
    script = token.with_name("x.sh")
    script.write_text("#!/bin/sh\n")
    options = ["--export=ALL", "--ntasks=1", "--cpus-per-task=1", "--nodes=1", "--no-requeue",
               "--nodelist=n1", "--mem=1M", "--open-mode=append"]  # fmt: skip
    heard: list[bytes] = []

    async def submitted(url: str) -> str:
        rest = Rest(RestSetup(url, token_file=str(token)))
        rest._version = 42  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        with contextlib.closing(rest):
            return await rest.submit(options, str(script))

    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with pytest.raises(BackendError) as caught:
        asyncio.run(answered(said, submitted, heard))
    assert isinstance(caught.value, EngineAway)
    assert len(heard) == 1
    assert heard[0].startswith(b"POST /slurm/v0.0.42/job/submit ")


@pytest.mark.needs_tool("openssl")
def test_what_was_closed_is_gone_when_its_loop_ends_though_its_server_says_no_farewell(
    tmp_path: Path,
) -> None:
    """A TLS connection waits for its peer's, and would be left open as its loop is closed."""
    key, cert = tmp_path / "key", tmp_path / "cert"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    login = WithToken()
    login.context = ssl.create_default_context(cafile=cert)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    done = threading.Event()

    def serve(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with serving.wrap_socket(peer, server_side=True) as wrapped:
            wrapped.recv(65536)
            wrapped.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            done.wait(PATIENCE_S)

    async def story(port: int) -> Answer:
        with contextlib.closing(Http(f"https://127.0.0.1:{port}", login)) as asked:
            return await asked.ask("GET", "/")

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as pool:
        served = pool.submit(serve, listening)
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                answer = asyncio.run(story(listening.getsockname()[1]))
                gc.collect()
        finally:
            done.set()
        served.result()
    assert answer.status == 200
    assert [str(each.message) for each in warned] == []


def test_an_answer_that_comes_after_all_was_closed_leaves_nothing_open() -> None:
    async def story() -> None:
        closed = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.close()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
            closed.set()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            asked = Http(f"http://127.0.0.1:{port}", WithToken())
            await asked.ask("GET", "/")
            async with asyncio.timeout(PATIENCE_S):
                await closed.wait()

    asyncio.run(story())
