"""Real object stores of a test's own: rclone refuses wrong keys, moto pages."""

import contextlib
import shutil
import socket
import sys
import threading
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from allotment.model.datasets import ObjectPlace
from allotment.service.data.objects.signing import Key
from tests.support.patience import PATIENCE_S
from tests.support.registry import WithUsers
from tests.support.served import Served

KEY: Final = Key("AKTEST", "a-secret-of-a-store")
BUCKET: Final = "models"
S = TypeVar("S", bound="Store")
_BIN: Final = Path(sys.executable).parent


class Store(Served):
    """A store that runs, and keeps what is in it below a folder, if it does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "objects" / BUCKET).mkdir(parents=True)
        self.start()

    @property
    def kind(self) -> str:
        """Return what it is called in a test: `moto`."""
        return type(self).__name__.lower()

    def place(self, prefix: str = "bert", **more: str) -> ObjectPlace:
        return ObjectPlace(self.endpoint, BUCKET, prefix, **more)

    @abstractmethod
    def put(self, files: Mapping[str, bytes | str]) -> None:
        """Put objects into the bucket."""

    @abstractmethod
    def drop(self, key: str) -> None:
        """Remove an object."""


class Rclone(Store):
    """`rclone serve s3`: it looks at signatures; objects are files of a folder."""

    def words(self) -> list[str]:
        return [
            str(_BIN / "rclone"), "serve", "s3", "--addr", f"127.0.0.1:{self.port}",
            "--auth-key", f"{KEY.id},{KEY.secret}", "--config", "", "--vfs-cache-mode", "off",
            # With 0s it never rests again after the first object.
            "--dir-cache-time", "1ms", str(self.folder / "objects"),
        ]  # fmt: skip

    def put(self, files: Mapping[str, bytes | str]) -> None:
        for key, data in files.items():
            path = self.folder / "objects" / BUCKET / key
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.folder / "fresh"
            fresh.write_bytes(data.encode() if isinstance(data, str) else data)
            fresh.replace(path)

    def drop(self, key: str) -> None:
        (self.folder / "objects" / BUCKET / key).unlink()


class Moto(Store):
    """`moto_server`: it pages, and knows conditions; signatures it does not look at."""

    def words(self) -> list[str]:
        return [str(_BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]

    def start(self) -> None:
        super().start()
        self.ask("PUT", f"/{BUCKET}")

    def put(self, files: Mapping[str, bytes | str]) -> None:
        for key, data in files.items():
            body = data.encode() if isinstance(data, str) else data
            self.ask("PUT", f"/{BUCKET}/{quote(key)}", body)

    def drop(self, key: str) -> None:
        self.ask("DELETE", f"/{BUCKET}/{quote(key)}")

    def ask(self, method: str, path: str, body: bytes | None = None) -> None:
        request = urllib.request.Request(f"{self.endpoint}{path}", data=body, method=method)
        request.add_header("Content-Type", "application/octet-stream")
        request.add_header("x-amz-acl", "public-read")
        # Whoever signs with anything is let in.
        scope = "x/20260101/us-east-1/s3/aws4_request"
        signed = f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host,Signature=x"
        request.add_header("Authorization", signed)
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass


class Gate:
    """A way to a store that lets so many bytes of its answers through, until it is opened."""

    def __init__(self, store: Store, most: int) -> None:
        self.passed = 0
        self._most = most
        self._store = store
        self._open = threading.Event()
        self.is_reached = threading.Event()
        """Whether an answer waits until it is opened."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._begin(self._take)

    def open(self) -> None:
        self._open.set()

    def shut(self) -> None:
        """Let no more answers through."""
        self._open.clear()
        self._most = self.passed

    def close(self) -> None:
        self._open.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _begin(self, work: Callable[..., None], *args: socket.socket) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._store.port))
                except OSError:
                    near.close()
                    continue
                self._begin(self._forward, near, far)
                self._begin(self._back, far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                target.sendall(data)

    def _back(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if self.passed + len(data) > self._most:
                    self.is_reached.set()
                    self._open.wait()
                target.sendall(data)
                self.passed += len(data)


class Meddler(Gate):
    """A way to a store that holds requests which have `held` in them, until it is opened, and
    tells other bytes than it has for the `other` ones.
    """

    def __init__(
        self, store: Store, held: bytes = b"", other: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        super().__init__(store, 1 << 40)
        self.holds = threading.Event()
        self._held, self._other = held, other

    def forget(self) -> None:
        """Let later requests through; those that are held are never answered."""
        self._held = b""

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if self._held and self._held in data and not self._open.is_set():
                    self.holds.set()
                    self._open.wait()
                target.sendall(data)

    def _back(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                one, other = self._other
                target.sendall(data.replace(one, other) if one else data)


@contextlib.contextmanager
def a_store(kind: type[S], folder: Path) -> Iterator[S]:
    """Run a store, and end it after the test."""
    made = kind(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def log_in(service: WithUsers, name: str, secret: str = KEY.secret) -> None:
    """Do what `allot data login` does."""
    ran = service.allot(
        "data", "login", "--key-id", KEY.id, "--secret-stdin", user=name, input=f"{secret}\n"
    )
    assert ran.returncode == 0, ran.stderr
