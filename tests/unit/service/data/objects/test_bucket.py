"""Stores that fail, change, or are anything but a store."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from allotment.model.datasets import ObjectPlace
from allotment.service import paced
from allotment.service.data.objects import bucket as asking
from allotment.service.data.objects.bucket import MOST_PAGE, Bucket, Stopped
from allotment.service.data.objects.listing import Object
from allotment.service.data.objects.signing import Key
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from tests.unit.service.data.objects.test_listing import a_page

DATA = bytes(range(256)) * 4096
ONE = Object("bert/a", len(DATA), "e1")
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers as it is told; `asked` has the requests."""

    def __init__(self) -> None:
        self.asked: list[BaseHTTPRequestHandler] = []
        self.answers: list[Answer] = []
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append(self)
                answer = server.answers[min(len(server.asked), len(server.answers)) - 1]
                answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.place = ObjectPlace(f"http://127.0.0.1:{self._http.server_port}", "models", "bert")
        self._thread = threading.Thread(target=self._http.serve_forever, args=[0.01])
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def bucket(self, *answers: Answer, **more: Any) -> Bucket:
        self.answers = list(answers)
        return Bucket(self.place, Key("id", "secret"), None, **more)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(asking, "FIRST_PAUSE_S", 0.001)
    made = Server()
    yield made
    made.close()


def says(
    body: bytes = b"", status: int = 200, length: int | None = None, **headers: str
) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)
        if length not in {None, len(body)}:
            request.close_connection = True

    return answer


def error(status: int, code: str = "", **headers: str) -> Answer:
    return says(f"<Error><Code>{code}</Code></Error>".encode(), status, None, **headers)


def listed(bucket: Bucket, most: int = 10, most_bytes: int = 1 << 30) -> list[Object]:
    try:
        return bucket.objects(most, most_bytes)
    finally:
        bucket.close()


def fetched(bucket: Bucket) -> bytes:
    try:
        return b"".join(bucket.read(ONE.path, ONE.size, ONE.etag))
    finally:
        bucket.close()


def trouble(work: Callable[[], object]) -> StoreTrouble:
    with pytest.raises(StoreTrouble) as caught:
        work()
    return caught.value


MORE = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
PAGE = a_page(("bert/a", "1", "e"))


# ── lists ───────────────────────────────────────────────────────────────────────────────


def test_all_pages_are_read(server: Server) -> None:
    last = a_page(("bert/b", "1", "e"))
    found = listed(server.bucket(says(a_page(("bert/a", "1", "e"), more=MORE)), says(last)))
    assert [each.path for each in found] == ["bert/a", "bert/b"]
    assert "continuation-token=t&" in server.asked[1].path
    assert "prefix=bert%2F" in server.asked[1].path


def test_a_list_without_end_is_too_large(server: Server) -> None:
    bucket = server.bucket(
        says(a_page(*[(f"bert/{n}", "1", "e") for n in range(9)], more=MORE))
    )
    assert trouble(lambda: listed(bucket, most=100)).kind is Kind.TOO_LARGE
    assert len(server.asked) == 12


def test_a_list_of_nothing_without_end_ends(server: Server) -> None:
    end = time.monotonic() + 0.3
    bucket = server.bucket(says(a_page(more=MORE)), is_wanted=lambda: time.monotonic() < end)
    with pytest.raises(Stopped):
        listed(bucket)


def test_an_answer_that_only_announces_itself_is_not_waited_for(server: Server) -> None:
    def announced(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
        says(PAGE)(request)

    assert "it only says that an answer follows" in str(
        trouble(lambda: listed(server.bucket(announced)))
    )


def test_what_follows_an_answer_has_a_bound(server: Server) -> None:
    def trailed(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"%x\r\n%s\r\n0\r\n" % (len(PAGE), PAGE))
        request.wfile.write(b"a: b\r\n" * 1000 + b"\r\n")

    assert "what follows its answer has no end" in str(
        trouble(lambda: listed(server.bucket(trailed)))
    )


def test_objects_that_are_too_large_are_not_fetched(server: Server) -> None:
    bucket = server.bucket(says(a_page(("bert/a", str(1 << 40), "e"))))
    assert trouble(lambda: listed(bucket)).kind is Kind.TOO_LARGE


def test_a_page_has_a_bound(server: Server) -> None:
    bucket = server.bucket(says(b" " * (MOST_PAGE + 1)))
    assert "more than 8 MiB" in str(trouble(lambda: listed(bucket)))


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (says(b"<html/>"), Kind.BROKEN, "does not answer as an object store does"),
        (says(b"<!DOCTYPE a><ListBucketResult/>"), Kind.BROKEN, "document type"),
        (says(a_page(("other/a", "1", "e"))), Kind.BROKEN, "not asked for"),
        (says(status=302, Location="http://127.0.0.1:1/"), Kind.BROKEN, "says 302"),
        (error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"), Kind.BROKEN,
         "that it is in eu-west-1"),
        (error(400, "AuthorizationHeaderMalformed"), Kind.BROKEN, "region us-east-1"),
        (error(403, "AccessDenied"), Kind.DENIED, "key of profile default"),
        (error(404, "NoSuchBucket"), Kind.GONE, "There is no s3://models/bert"),
        (error(418, "\x1b[2J"), Kind.BROKEN, "says 418."),
    ],
)  # fmt: skip
def test_what_a_store_refuses_is_told_once(
    server: Server, answer: Answer, kind: Kind, said: str
) -> None:
    found = trouble(lambda: listed(server.bucket(answer)))
    assert (found.kind, said in found.cause) == (kind, True), found.cause
    assert len(server.asked) == 1
    assert found.cause.isprintable()


@pytest.mark.parametrize(
    "answer",
    [error(500), error(503, "SlowDown"), error(429), error(403, "RequestTimeTooSkewed"),
     says(b"<ListBuck", length=100),
     lambda request: request.connection.shutdown(socket.SHUT_RDWR)],
)  # fmt: skip
def test_what_may_pass_is_tried_again(server: Server, answer: Answer) -> None:
    assert listed(server.bucket(answer, says(PAGE)))
    assert len(server.asked) == 2
    server.asked.clear()
    assert trouble(lambda: listed(server.bucket(answer))).kind is Kind.AWAY
    assert len(server.asked) == asking.TRIES


def test_one_that_drips_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "GRACE_S", 0.2)

    def drips(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        with contextlib.suppress(OSError):
            while not server.closing.wait(0.02):
                request.wfile.write(b"<")

    found = trouble(lambda: listed(server.bucket(drips)))
    assert found.kind is Kind.AWAY
    assert len(server.asked) == asking.TRIES


# ── objects ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [206, 200])
def test_what_was_cut_off_goes_on_where_it_was(server: Server, status: int) -> None:
    """Rclone calls a part 200, too."""
    cut = says(DATA[:300_000], length=len(DATA), ETag='"e1"')
    part = f"bytes 300000-{len(DATA) - 1}/{len(DATA)}"
    rest = says(DATA[300_000:], status, ETag='"e1"', Content_Range=part)
    assert fetched(server.bucket(cut, rest)) == DATA
    first, second = (request.headers for request in server.asked)
    assert (first["Range"], second["Range"]) == (None, "bytes=300000-")
    assert second["If-Match"] == '"e1"'
    assert "range" in second["Authorization"]


@pytest.mark.parametrize("key", [Key("id", "secret"), Key("id", "another"), None])
def test_a_connection_is_taken_over_only_with_the_same_key(
    server: Server, key: Key | None
) -> None:
    before = server.bucket(says(DATA, ETag='"e1"'))
    after = Bucket(server.place, key, None)
    assert b"".join(before.read(ONE.path, ONE.size, ONE.etag)) == DATA
    after.adopt(before)
    assert b"".join(after.read(ONE.path, ONE.size, ONE.etag)) == DATA
    after.close()
    first, second = (request.client_address for request in server.asked)
    assert (first == second) == (key == Key("id", "secret"))


def test_a_store_that_begins_anew_is_read_on(server: Server) -> None:
    cut = says(DATA[:300_000], length=len(DATA), ETag='"e1"')
    assert fetched(server.bucket(cut, says(DATA, ETag='"e1"'))) == DATA


@pytest.mark.parametrize(
    "answer",
    [
        error(412, "PreconditionFailed"),
        says(DATA, ETag='"e2"'),
        says(DATA),
        says(DATA + b"more", ETag='"e1"'),
        says(DATA[:-1], ETag='"e1"'),
    ],
)
def test_what_is_not_what_was_listed_is_not_taken(server: Server, answer: Answer) -> None:
    found = trouble(lambda: fetched(server.bucket(answer)))
    assert found.kind is Kind.CHANGED
    assert "bert/a is not what it was" in found.cause


def test_more_than_was_said_is_not_taken(server: Server) -> None:
    def chunked(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.send_header("ETag", '"e1"')
        request.end_headers()
        for _ in range(8):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(DATA), DATA))
        request.wfile.write(b"0\r\n\r\n")

    taken: list[int] = []
    bucket = server.bucket(chunked)
    pieces = bucket.read(ONE.path, ONE.size, ONE.etag)
    found = trouble(lambda: taken.extend(map(len, pieces)))
    bucket.close()
    assert found.kind is Kind.CHANGED
    assert sum(taken) <= ONE.size


def test_what_nobody_waits_for_is_broken_off(server: Server) -> None:
    wanted = iter([True, True, False])
    bucket = server.bucket(says(DATA, ETag='"e1"'), is_wanted=lambda: next(wanted, False))
    with pytest.raises(Stopped):
        fetched(bucket)
