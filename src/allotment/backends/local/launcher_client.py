"""Talks to the launcher of a state folder: starts one when there is none, retires old ones."""

import asyncio
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from allotment.backends.local.runner.layout import SOCKET
from allotment.backends.local.runner.schema import PROTOCOL, Request
from allotment.model.errors import BackendError
from allotment.service.isolated import PLAIN, isolated

START_S = 30.0
ANSWER_S = 30.0
RETIRE_S = 2.0
ALREADY_SERVED = 3
LAUNCHER = "allotment.backends.local.runner.launcher"


class LauncherClient:
    """One connection, one question at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir.absolute()
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether no launcher is known to be there."""
        return self._streams is None or self._streams[0].at_eof()

    async def hello(self) -> dict[str, Any]:
        """Ask the launcher who it is. Raises BackendError."""
        return await self._ask({"op": "hello"})

    async def launch(self, request: Request) -> dict[str, Any]:
        """Have a task started once; says whether this call did it. Raises BackendError."""
        return await self._ask({"op": "launch", "request": request})

    async def retire(self) -> None:
        """Let the launcher end with its last task: if none runs, it has when this returns."""
        async with self._turn:
            with suppress(OSError, ValueError):
                reader, writer = self._streams or await self._dial()
                writer.write(b'{"op": "retire"}\n')
                async with asyncio.timeout(RETIRE_S):
                    await reader.read()

    async def close(self) -> None:
        """Hang up. The launcher lives on."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            try:
                answer = await self._exchange(message)
            except (OSError, EOFError, ValueError):
                # It died, or retired: once more with a new one. A launch is claimed by its
                # key, so asking again can start nothing twice.
                await self.close()
                answer = await self._exchange_or_explain(message)
        if not answer.get("ok"):
            raise BackendError(
                f"the launcher refuses: {answer.get('error', 'no reason given')}"
            )
        return answer

    async def _exchange_or_explain(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._exchange(message)
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            raise BackendError(f"the launcher of {self._state_dir} is gone: {error}") from error

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        writer.write(json.dumps(message).encode() + b"\n")
        await writer.drain()
        async with asyncio.timeout(ANSWER_S):
            line = await reader.readline()
        if not line:
            raise EOFError("it hung up")
        return json.loads(line)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            streams = await self._dial()
        except OSError:
            await self._start()
            return await self._dial()
        reader, writer = streams
        writer.write(b'{"op": "hello"}\n')
        found = json.loads(await reader.readline() or b"{}")
        if found.get("protocol") == PROTOCOL:
            return streams
        # One of another version: it ends with its last task; ours takes the new ones.
        writer.write(b'{"op": "retire"}\n')
        await reader.readline()
        writer.close()
        await self._start()
        return await self._dial()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # Through /proc: a socket's path may have 107 bytes, a state folder more.
        folder = (self._state_dir / SOCKET).parent
        if len(str(folder)) < 90:
            return await asyncio.open_unix_connection(str(self._state_dir / SOCKET))
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            name = Path(SOCKET).name
            return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)

    async def _start(self) -> None:
        """Start a launcher; the command returns when it listens. Raises BackendError.

        In a thread, with the standard library: event loops differ in which descriptors
        they leave open in a child, and this child's child lives for ever.
        """
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                isolated(LAUNCHER, str(self._state_dir), bare=True),
                env=PLAIN,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=START_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BackendError(
                "the launcher did not come up in time; see run/launcher.log in the state folder"
            ) from None
        if done.returncode not in (0, ALREADY_SERVED):
            said = done.stderr.decode(errors="replace").strip()
            raise BackendError(f"the launcher did not start: {said}")
