"""A command at the other end of a wire: in a terminal of its own, or with plain pipes.

The command leads a session of its own, so that everything it started can be ended with it.
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Sequence

CHUNK = 64 * 1024
HANG_UP_S = 2.0
"""Between the terminal going away and the end by force."""

END_OF_INPUT = b"\x04"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENV = {"PATH": PATH, "LANG": "C.UTF-8"}
"""All that the command on the host gets to see: nothing of the service's own."""

IN_TERMINAL = ("/bin/sh", "-c", 'exec <>"$0" >&0 2>&0 && exec "$@"')
"""A session leader that opens a terminal gets it for its own: no code between fork and exec."""


class Terminal:
    """A running command. `read`, `write` and `wait` may be used at the same time."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        """Our end of its terminal; -1 with pipes."""

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, tty: bool, rows: int = 24, cols: int = 80
    ) -> "Terminal":
        """Start a command. Raises OSError when the host cannot."""
        if not tty:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=ENV,
                cwd="/",
                start_new_session=True,
            )
            return cls(process, -1)
        master, slave = pty.openpty()
        try:
            set_size(master, rows, cols)
            os.set_blocking(master, False)
            process = await asyncio.create_subprocess_exec(
                *IN_TERMINAL,
                os.ttyname(slave),
                *argv,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=ENV,
                cwd="/",
                start_new_session=True,
            )
            return cls(process, master)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)

    async def read(self) -> bytes:
        """Give the next output; nothing once there can be no more."""
        if self._master < 0:
            assert self._process.stdout is not None
            return await self._process.stdout.read(CHUNK)
        while True:
            try:
                return os.read(self._master, CHUNK)
            except BlockingIOError:
                await _readable(self._master)
            except OSError:  # EIO: the last one who had the terminal open is gone
                return b""

    async def write(self, data: bytes) -> None:
        """Send input, as fast as the command takes it. Nothing happens once it is gone."""
        if self._master < 0:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(data)
                await self._process.stdin.drain()
            return
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                await _writable(self._master)
            except OSError:
                return

    async def end_input(self) -> None:
        """Say that no more input comes."""
        if self._master >= 0:
            await self.write(END_OF_INPUT)
        elif self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, rows: int, cols: int) -> None:
        """Tell the size of the window that shows it."""
        if self._master >= 0:
            set_size(self._master, rows, cols)

    async def wait(self) -> int:
        """Give the exit code; 128 and the signal's number for one that was killed."""
        code = await self._process.wait()
        return 128 - code if code < 0 else code

    async def close(self) -> None:
        """Hang up: end the command and its group, by force after a grace, and reap it.

        Nobody may be reading or writing any more.
        """
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
        if self._process.returncode is None:
            self._signal(signal.SIGHUP)
            try:
                async with asyncio.timeout(HANG_UP_S):
                    await self._process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def set_size(terminal: int, rows: int, cols: int) -> None:
    """Set a terminal's size; whoever runs in it is told by SIGWINCH."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
