"""What a server that is broken, or means harm, may answer."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping

import pytest

from allotment.backends import http
from allotment.backends.http import Answer, Http
from allotment.backends.slurm.rest import Rest
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway

SECRET = {"X-SLURM-USER-TOKEN": "secret"}


class WithToken:
    """Shows a token."""

    async def headers(self) -> Mapping[str, str]:
        return SECRET

    async def tls(self) -> ssl.SSLContext | None:
        return None

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
