"""What a registry in anybody's hands may say: where it leads, to log in, slowly, or oddly."""

import contextlib
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

from allotment.backends.local.images.loopback import is_loopback
from allotment.backends.local.images.registry import Registry, _followed
from allotment.backends.local.images.trouble import ImageTrouble, Kind, Unreachable
from allotment.model.image_names import BadReference, parse
from allotment.service import paced
from tests.support.patience import PATIENCE_S

DIGEST = "sha256:" + "a" * 64
PASSWORD = "YTpi"  # noqa: S105 - of nobody
HEAD = "/v2/a/manifests/1"


class Server:
    """Answers by path with a status, headers and a body. `logins` is what it was told."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.pause_s = 0.0
        self.logins: list[str] = []
        self.asked: list[str] = []
        self.closing = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def demands(self, path: str, how: str) -> None:
        self.found[path] = (401, {"WWW-Authenticate": how}, b"")

    def ask(self, text: str = "") -> str:
        """Ask for the digest of `a:1`, with a password."""
        return Registry(parse(text or f"{self.host}/a:1"), PASSWORD).digest()


def _handler(told: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            told.asked.append(path)
            told.logins.append(self.headers.get("Authorization", ""))
            code, headers, body = told.found.get(path, (404, {}, b""))
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                for place in range(len(body)):
                    if told.pause_s and told.closing.wait(told.pause_s):
                        return
                    self.wfile.write(body[place : place + 1])

    return Handler


@contextlib.contextmanager
def a_server() -> Iterator[Server]:
    made = Server()
    try:
        yield made
    finally:
        made.closing.set()
        made.server.shutdown()
        made.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with a_server() as made:
        yield made


def test_a_password_is_not_for_where_a_registry_leads_to(server: Server) -> None:
    with a_server() as other:
        server.found[HEAD] = (302, {"Location": f"http://{other.host}/x"}, b"")
        other.demands("/x", f'Bearer realm="http://{other.host}/token"')
        other.found["/token"] = (200, {}, b'{"token": "t"}')
        with pytest.raises(ImageTrouble) as found:
            server.ask()
        assert found.value.kind is Kind.DENIED
        assert other.asked == ["/x"]
        assert not any(PASSWORD in login for login in (*other.logins, *server.logins))


def test_a_password_is_for_the_registry_that_asks(server: Server) -> None:
    server.demands(HEAD, f'Bearer realm="http://{server.host}/token"')
    server.found["/token"] = (200, {}, b'{"token": "t"}')
    with pytest.raises(ImageTrouble) as found:
        server.ask()
    assert found.value.kind is Kind.DENIED
    assert server.logins == ["", f"Basic {PASSWORD}", "Bearer t"]


def test_two_layers_that_are_asked_for_at_once_log_in_once_each_at_most() -> None:
    """Neither is refused because the other had logged in when its first answer came."""
    both = threading.Barrier(2, timeout=PATIENCE_S)
    asking = Registry(parse("127.0.0.1:1/a:1"), PASSWORD)
    said = list[str | None]()

    class Opener:
        def open(self, request: urllib.request.Request, timeout: float) -> str:
            login = request.unredirected_hdrs.get("Authorization")
            said.append(login)
            if login is None:
                both.wait()
                headers = Message()
                headers["WWW-Authenticate"] = "Basic"
                url = request.full_url
                raise urllib.error.HTTPError(url, 401, "", headers, io.BytesIO())
            return "the layer"

    asking._opener = cast("urllib.request.OpenerDirector", Opener())
    with ThreadPoolExecutor(2) as lanes:
        assert [*lanes.map(asking.blob, (DIGEST, DIGEST))] == ["the layer"] * 2
    assert sorted(map(str, said)) == [f"Basic {PASSWORD}"] * 2 + ["None"] * 2


@pytest.mark.parametrize("url", [
    "http://127.0.0.1:5000/x", "https://localhost/x", "https://127.1/x", "https://[::1]/x",
    "https://[::ffff:127.0.0.1]/x", "https://0.0.0.0/x", "https://a.localhost./x",
    "http://h.org/x", "ftp://h.org/x", "https://[::1/x", "",
])  # fmt: skip
def test_a_registry_elsewhere_leads_neither_here_nor_past_tls(url: str) -> None:
    with pytest.raises(ImageTrouble) as found:
        _followed(url, "h.org", is_near=False)
    assert found.value.kind is Kind.BROKEN


def test_a_registry_leads_to_where_it_may() -> None:
    assert _followed("https://c.org/x?y", "h.org", is_near=False) == "https://c.org/x?y"
    near = _followed("http://localhost:80/x", "127.0.0.1:5000", is_near=True)
    assert near == "http://127.0.0.1:80/x"


def test_localhost_is_one_address() -> None:
    assert parse("localhost:5000/a").base == "http://127.0.0.1:5000/v2/a"
    assert not is_loopback("127.0.0.1.evil.org")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize(
    "told",
    [b'{"token": "x\\r\\ny"}', b'{"token": 7}', b"[]", b"{}", b"[" * 100_000, b"\xff", b""],
)
def test_an_odd_token_is_the_registrys_matter_and_shown_to_nobody(
    server: Server, told: bytes
) -> None:
    server.demands(HEAD, f'Bearer realm="http://{server.host}/token"')
    server.found["/token"] = (200, {}, told)
    with pytest.raises(ImageTrouble) as found:
        server.ask()
    assert found.value.kind is Kind.BROKEN
    assert "x" not in found.value.cause.replace(server.host, "")


@pytest.mark.parametrize(
    "where", ["http://a..b/x", f"http://{'a' * 64}.org/x", "http://[::1", "http://127.0.0.1:x/"]
)
def test_an_odd_location_is_the_registrys_matter(server: Server, where: str) -> None:
    server.found[HEAD] = (302, {"Location": where}, b"")
    with pytest.raises(ImageTrouble) as found:
        server.ask()
    assert found.value.kind is Kind.BROKEN


@pytest.mark.parametrize("name", ["a..b/x", f"{'a' * 64}.org/x", "h.org:70000/x", "h-.org/x"])
def test_a_host_that_cannot_be_one_is_no_name(name: str) -> None:
    with pytest.raises(BadReference):
        parse(name)


def test_a_registry_that_drips_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced, "GRACE_S", 0.2)
    server.pause_s = 0.02
    server.found[f"/v2/a/manifests/{DIGEST}"] = (200, {}, b" " * 200)
    with pytest.raises(Unreachable):
        Registry(parse(f"{server.host}/a:1")).manifest(DIGEST)


def test_an_answer_is_read_as_a_whole(server: Server) -> None:
    server.found[HEAD] = (200, {"Docker-Content-Digest": DIGEST}, json.dumps({}).encode())
    assert server.ask() == DIGEST


def test_only_a_failing_registry_says_nothing_of_rights(server: Server) -> None:
    kinds: list[bool] = []
    for code in (500, 503, 429, 403, 404):
        server.found[HEAD] = (code, {}, b"")
        with pytest.raises(ImageTrouble) as found:
            server.ask()
        kinds.append(isinstance(found.value, Unreachable))
    assert kinds == [True, True, False, False, False]
    with pytest.raises(Unreachable):
        server.ask("127.0.0.1:1/a:1")
