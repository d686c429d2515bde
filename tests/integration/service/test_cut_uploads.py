"""An upload over a line that is cut: nothing half is kept, and a repeat goes on."""

import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from allotment.client import Client, content
from allotment.client.errors import Unreachable
from tests.integration.api.live import Live
from tests.support.cluster import until
from tests.support.line import Line, a_line

MIB = 1 << 20
SIZES = {33, 34, 35, 36}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path / "state") as made:
        yield made


@pytest.fixture
def line(live: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """Lay a line below all that goes to the port of the service."""
    with a_line(live.port) as made:

        def connect(self: HTTPConnection) -> None:
            self.sock = socket.create_connection(("127.0.0.1", made.port))

        monkeypatch.setattr(HTTPConnection, "connect", connect)
        yield made


def a_folder(folder: Path) -> Path:
    """Make files of which each is a request of its own."""
    folder.mkdir()
    for size in SIZES:
        (folder / f"{size}").write_bytes(os.urandom(size * MIB))
    return folder


@pytest.mark.parametrize("kind", ["data", "code"])
def test_what_is_cut_is_told_and_a_repeat_sends_the_rest(
    live: Live,
    line: Line,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(content, "_SETTLED_NS", 0)  # The files here are younger than that.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = a_folder(tmp_path / "folder")
    kept = live.folder / kind

    def whole() -> set[int]:
        sizes = {path.stat().st_size for path in kept.rglob("files/*/*")}
        return {size // MIB for size in sizes if size >= MIB}

    def send(client: Client) -> int:
        if kind == "code":
            return client.take_code(folder).sent
        return client.put_data("words", folder).sent

    def cut_in_the_second() -> None:
        until(lambda: bool(whole()) and any((kept / "new").iterdir()), "a second file")
        line.cut()

    with Client(url=f"http://127.0.0.1:{live.port}", token=live.token) as client:
        client.create_dataset("words", tenant="vision")
        cutting = threading.Thread(target=cut_in_the_second)
        cutting.start()
        with pytest.raises(Unreachable) as cut:
            send(client)
        cutting.join()
        assert cut.value.hint
        until(lambda: not any((kept / "new").iterdir()), "what was half to be gone")
        before = whole()
        assert 0 < len(before) < len(SIZES)
        line.mend()
        sent = send(client)
    assert "request failed" not in capfd.readouterr().out, "it is no fault of the service"
    assert whole() == SIZES
    assert sent // MIB == sum(SIZES - before), "what came whole is not sent again"
    assert len(live.get("/v1/data/vision/words")["versions"]) == (kind == "data")


def test_a_put_that_is_interrupted_reads_no_more(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one machine several lanes have files read; Ctrl-C reaches the first of them only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = a_folder(tmp_path / "folder")
    before = set(threading.enumerate())

    def interrupted(_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    with Client(state=str(live.folder)) as client:
        client.create_dataset("words", tenant="vision")
        with pytest.raises(KeyboardInterrupt):
            client.put_data("words", folder, interrupted)
    lanes = set(threading.enumerate()) - before
    until(lambda: not any(lane.is_alive() for lane in lanes), "the other lane to end")
    kept = list((live.folder / "data").rglob("files/*/*"))
    assert len(kept) < len(SIZES), "what was not begun is not read"


def test_the_rest_of_a_file_can_be_asked_for(live: Live, tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"abcdef")
    with Client(state=str(live.folder)) as client:
        client.create_dataset("words", tenant="vision")
        client.put_data("words", tmp_path / "words")
        [file] = client.data_files("words").files
    path = f"/v1/data/vision/words@1/files/{file.of}"

    def asked(wanted: str) -> tuple[int, bytes, str]:
        answer = live.ask("GET", path, headers={"Range": wanted})
        return answer.status, answer.body, answer.headers.get("content-range", "")

    assert asked("bytes=2-") == (206, b"cdef", "bytes 2-5/6")
    for other in ("bytes=0-", "bytes=6-", "bytes=1-2", "bytes=-1", "lines=1-"):
        assert asked(other) == (200, b"abcdef", "")
