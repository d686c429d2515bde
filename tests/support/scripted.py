"""A registry that says what a test wants: one that lies, stops in the middle, or refuses."""

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from allotment.backends.local.images.manifest import architecture
from tests.support.registry import CONFIG_TYPE, LAYER, MANIFEST, digest


class Scripted:
    """Answers by path. `asked` is what it was asked, `logins` with which passwords."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.blobs_there = True
        """Whether it says that it has every blob it is asked for."""
        self.cut = 0
        """How many bytes of a blob it sends before it hangs up; 0 for all."""
        self.fails = 0
        """How many requests for blobs fail before one is answered."""
        self.pause = threading.Event()
        """Blobs stop after their first half until this is set."""
        self.pause.set()
        self.asked: list[str] = []
        self.logins: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.pause.set()
        self._server.shutdown()
        self._server.server_close()

    def image(
        self, name: str, *layers: bytes, diff_ids: tuple[str, ...] = (), **settings: Any
    ) -> str:
        """Have an image; give its digest."""
        packed = [gzip.compress(layer, 1, mtime=0) for layer in layers]
        about = {
            "architecture": architecture(),
            "os": "linux",
            "config": settings,
            "rootfs": {"diff_ids": list(diff_ids) or [digest(layer) for layer in layers]},
        }
        config = json.dumps(about).encode()
        parts = [self._part(name, data, LAYER) for data in packed]
        manifest = {
            "mediaType": MANIFEST,
            "config": self._part(name, config, CONFIG_TYPE),
            "layers": parts,
        }
        body = json.dumps(manifest).encode()
        for tag in ("1", digest(body)):
            self.found[f"/v2/{name}/manifests/{tag}"] = body
        return digest(body)

    def _part(self, name: str, data: bytes, kind: str) -> dict[str, Any]:
        self.found[f"/v2/{name}/blobs/{digest(data)}"] = data
        return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def _handler(registry: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def _answer(self, *, is_head: bool) -> None:
            registry.asked.append(f"{self.command} {self.path}")
            registry.logins.append(self.headers.get("Authorization", ""))
            data = registry.found.get(self.path)
            is_blob = "/blobs/" in self.path
            if data is None and not (is_head and is_blob and registry.blobs_there):
                self.send_error(404)
                return
            if is_blob and not is_head and registry.fails:
                registry.fails -= 1
                self.send_error(503)
                return
            data = data or b""
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            if not is_blob:
                self.send_header("Docker-Content-Digest", digest(data))
            self.end_headers()
            if is_head:
                return
            half = len(data) // 2 if is_blob and len(data) > 10_000 else len(data)
            with contextlib.suppress(OSError):
                if registry.cut and is_blob and len(data) > 10_000:
                    self.wfile.write(data[: registry.cut])
                    return
                self.wfile.write(data[:half])
                registry.pause.wait()
                self.wfile.write(data[half:])

    return Handler


@contextlib.contextmanager
def a_scripted_registry() -> Iterator[Scripted]:
    """Run one, and end it after the test."""
    made = Scripted()
    try:
        yield made
    finally:
        made.close()
