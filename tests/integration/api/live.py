"""A real server on real sockets in a thread, around a real service on a scripted backend."""

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import uvloop

from allotment.api.listening import Listening
from allotment.api.state_folder import prepare
from allotment.model.engines import Ability
from allotment.model.ids import Actor, TaskKey
from allotment.model.tenancy import Config
from allotment.service.clock import SteadyClock
from allotment.service.ports import LogChunk
from allotment.service.service import Service
from allotment.store.sqlite import SqliteStore
from allotment.wire.job import job_to_wire
from allotment.wiring.engines import Engines
from allotment.wiring.forecast import ChildForecast
from allotment.wiring.kept_config import Kept
from allotment.wiring.service import config_files
from tests.support.builders import POLICIES, a_config, a_tenant
from tests.support.cluster import UnixConnection
from tests.support.fake_backend import FakeBackend
from tests.support.patience import PATIENCE_S

T = TypeVar("T")

CONFIG = a_config(a_tenant("vision", 4), a_tenant("nlp", 4))
ME = Actor("me", os.geteuid())


class HostBackend(FakeBackend):
    """Tasks by script, output as the test writes it; entering one is being on this host."""

    abilities = FakeBackend.abilities | {Ability.ENTERS}

    def __init__(self) -> None:
        super().__init__()
        self.output: dict[tuple[TaskKey, str], bytes] = {}
        self.reads = 0

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        self.reads += 1
        text = self.output.get((key, stream), b"")
        begin = max(0, len(text) + offset) if offset < 0 else offset
        data = text[begin : begin + size]
        return LogChunk(data, begin + len(data))

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        return list(argv)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Live:
    """One server. `ask` is a request over the Unix socket."""

    def __init__(self, folder: Path, config: Config = CONFIG, port: int | None = 0) -> None:
        self.folder = folder
        self.backend = HostBackend()
        self.forecast = ChildForecast()
        self._config = config
        self._port = port
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self.service: Service
        self.loop: asyncio.AbstractEventLoop

    # ── life ────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(PATIENCE_S)
        self.posted = json.loads((self.folder / "address.json").read_text())
        self.socket: str = self.posted["socket"]
        self.port = int(self.posted["url"].rpartition(":")[2] or 0)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it may be on its way out already
            self.ask("POST", "/v1/service:stop")
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        prepare(self.folder)
        self.service = Service(
            store=SqliteStore.open(self.folder),
            backend=self.backend,
            clock=SteadyClock(),
            policies=POLICIES,
            state_dir=str(self.folder),
            write_spec=lambda spec: dict(job_to_wire(spec)),
            version="test",
            config_files=config_files(Kept(self.folder), Engines(self.folder)),
            forecast=self.forecast,
        )
        await self.service.start(self._config)
        with Listening(self.folder, self._port) as listening:
            asyncio.get_running_loop().call_soon(self._announce)
            await listening.serve(self.service, "test", lambda: None)
        await self.service.stop()

    def _announce(self) -> None:
        if (self.folder / "address.json").exists():
            self._ready.set_result(None)
        else:
            self.loop.call_later(0.005, self._announce)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def call(self, work: Callable[[], T]) -> T:
        """Call something on the server's own event loop."""

        async def called() -> T:
            return work()

        return self.run(called())

    # ── talk ────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        return ask(UnixConnection(self.socket), method, path, body, headers)

    def ask_tcp(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask over TCP, with nothing but what is given: no token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        return ask(connection, method, path, body, headers)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def submit(self, command: str | list[str] = "fake forever", **changes: object) -> int:
        what = {} if "roles" in changes else {"command": command}
        spec = {"name": "job", "tenant": "vision", **what, **changes}
        answer = self.ask("POST", "/v1/jobs", spec)
        assert answer.status == 201, answer
        return answer.json["id"]

    def wait_for(self, job: int, *states: str) -> None:
        async def there() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while self.service.state.jobs[job].state not in states:  # type: ignore[index]
                    await asyncio.sleep(0.005)

        self.run(there())

    @contextmanager
    def raw(self) -> Iterator[socket.socket]:
        """Connect, and say what no HTTP library would."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(self.socket)
            yield sock


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request; bodies that are no bytes go as JSON."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    kind = {} if body is None or isinstance(body, bytes) else {"Content-Type": JSON}
    try:
        connection.request(method, path, data, {**kind, **(headers or {})})  # type: ignore[arg-type]
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


JSON = "application/json"
