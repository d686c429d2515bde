"""A package index of a test's own, on loopback, with packages made by hand."""

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

JSON = "application/vnd.pypi.simple.v1+json"


class Index:
    """The index. `asked` has the paths that were asked for; files wait for `go`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.port = 0
        self.tells_sizes = False
        """Whether it writes its pages as JSON, with sizes."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"

    def wheel(  # noqa: PLR0917 - a wheel is made of these
        self,
        name: str,
        version: str,
        source: str,
        more: str = "",
        text: str = "evil",
        tag: str = "py3-none-any",
        needs: str = "",
    ) -> None:
        """Add a wheel with one module; `more` is the name of a further file with `text`."""
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": source,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            + (f"Requires-Dist: {needs}\n" if needs else ""),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
            f"Root-Is-Purelib: true\nTag: {tag}\n",
        }
        if more:
            files[more] = text
        lines: list[str] = []
        for path, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data.encode()).digest())
            lines.append(f"{path},sha256={digest.decode().rstrip('=')},{len(data)}")
        files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in files.items():
                archive.writestr(path, data)
        wheel = f"{name}-{version}-{tag}.whl"
        self.files[wheel] = made.getvalue()
        self.files[f"{wheel}.metadata"] = files[f"{info}/METADATA"].encode()

    def digest(self, name: str, version: str, tag: str = "py3-none-any") -> str:
        """Return the digest of a wheel, as locks have it."""
        return _digest(self.files[f"{name}-{version}-{tag}.whl"])

    def source(self, name: str, version: str, setup: str) -> None:
        """Add a source distribution, whose setup.py would be run."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            entry = tarfile.TarInfo(f"{name}-{version}/setup.py")
            entry.size = len(setup)
            archive.addfile(entry, io.BytesIO(setup.encode()))
        self.files[f"{name}-{version}.tar.gz"] = data.getvalue()

    def page(self, project: str) -> bytes:
        names = [name for name in self.files if name.partition("-")[0] == project]
        links = [
            f'<a href="/files/{name}#sha256={_digest(self.files[name])}"'
            f"{self._has_metadata(name)}>{name}</a>"
            for name in names
            if not name.endswith(".metadata")
        ]
        return "<html><body>{}</body></html>".format("".join(links)).encode() if names else b""

    def page_as_json(self, project: str) -> bytes:
        files = [
            {"filename": name, "url": f"/files/{name}", "size": len(data),
             "hashes": {"sha256": _digest(data)},
             "core-metadata": f"{name}.metadata" in self.files}
            for name, data in self.files.items()
            if name.partition("-")[0] == project and not name.endswith(".metadata")
        ]  # fmt: skip
        meta = {"api-version": "1.1"}
        found = {"meta": meta, "name": project, "files": files, "versions": []}
        return json.dumps(found).encode() if files else b""

    def _has_metadata(self, name: str) -> str:
        """Announce that what a wheel needs can be asked for without the wheel."""
        data = self.files.get(f"{name}.metadata")
        return f' data-core-metadata="sha256={_digest(data)}"' if data else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def a_package_index(home: Path) -> Iterator[Index]:
    """Run an index, and name it in the pip configuration of a home."""
    index = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            *_, name = self.path.rstrip("/").split("/")
            is_file = self.path.startswith("/files/")
            if is_file and not name.endswith(".metadata"):
                index.go.wait(60)
            page = index.page_as_json if index.tells_sizes else index.page
            data = index.files.get(name, b"") if is_file else page(name)
            self.send_response(200 if data else 404)
            text = JSON if index.tells_sizes else "text/html"
            kind = "application/octet-stream" if is_file else text
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    folder = home / ".config/pip"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    try:
        yield index
    finally:
        index.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
