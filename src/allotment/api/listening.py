"""Where a service listens: opened first, and told to clients once it is ready."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Self

import msgspec
import structlog

from allotment.api.accounts import actor_of
from allotment.api.state_folder import (
    Posted,
    listen_tcp,
    listen_unix,
    post,
    socket_path,
    take_down,
    token_in,
)
from allotment.service.service import Service

log = structlog.get_logger("allot.api")


def fetch() -> None:
    """Import what answers requests: a quarter of a start, for a thread while that waits."""
    import_module("allotment.api.app")


class Listening:
    """The sockets of one state folder, whose lock is held. A context: all is closed at its end.

    A port that is in use raises StoreError before the service has touched anything.
    """

    def __init__(self, folder: Path, port: int | None, ready_fd: int = -1) -> None:
        self._folder = folder
        self._ready_fd = ready_fd
        self._token = b""
        self._port = 0
        self._sockets = [] if port is None else [listen_tcp(port)]
        if self._sockets:
            self._port = self._sockets[0].getsockname()[1]
            self._token, is_new = token_in(folder)
            if is_new:
                log.info("made a new token for the TCP port")
        try:
            self._path = socket_path(folder)
            self._sockets.append(listen_unix(self._path))
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        take_down(self._folder, self._path)
        self._close()

    def _close(self) -> None:
        for each in self._sockets:
            each.close()
        if self._ready_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._ready_fd)
            self._ready_fd = -1

    async def serve(self, service: Service, version: str, ready: Callable[[], None]) -> None:
        """Answer requests until stopped. `ready` is called once, before the first."""
        from allotment.api.app import behind_guard, create_app  # noqa: PLC0415 - see `fetch`
        from allotment.api.guard import Rules  # noqa: PLC0415
        from allotment.api.http_stats import HttpStats  # noqa: PLC0415
        from allotment.api.server import ApiServer  # noqa: PLC0415
        from allotment.api.tidying import tidy  # noqa: PLC0415

        stats = HttpStats()
        app = create_app(service, lambda: server.stop(), stats)
        rules = Rules(actor_of(os.geteuid()), self._token, self._port)
        server = ApiServer(behind_guard(app, rules), app.state.stopping)

        def announce() -> None:
            ready()
            self._announce(version)

        server.on_started = announce
        tidying = asyncio.ensure_future(tidy(lambda: stats.asked))
        try:
            await server.serve(self._sockets)
        finally:
            tidying.cancel()

    def _announce(self, version: str) -> None:
        url = f"http://127.0.0.1:{self._port}" if self._port else ""
        posted = Posted(str(self._path), url, os.getpid(), version)
        post(self._folder, posted)
        if self._ready_fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._ready_fd, msgspec.json.encode(posted) + b"\n")
        log.info("listening", socket=posted.socket, url=url, version=version)
