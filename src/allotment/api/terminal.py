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

from allotment.service.isolated import PLAIN

CHUNK = 64 * 1024
HANG_UP_S = 2.0
"""Between the terminal going away and the end by force."""

END_OF_INPUT = b"\x04"

IN_TERMINAL = ("/bin/sh", "-c", 'exec <>"$0" >&0 2>&0 && exec "$@"')
"""A session leader that opens a terminal gets it for its own: no code between fork and exec."""


class Terminal:
    """A running command. `read`, `write` and `wait` may be called at the same time."""

    def __init__(self, process: asyncio.subprocess.Process, input_: int, output: int) -> None:
        self._process = process
        self._input = input_
        self._output = output
        """The same descriptor for a terminal: our end of it."""

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, tty: bool, rows: int = 24, cols: int = 80
    ) -> "Terminal":
        """Start a command. Raises OSError when the host cannot."""
        if not tty:
            theirs_in, ours_in = os.pipe()
            ours_out, theirs_out = os.pipe()
            return await cls._start(argv, (ours_in, ours_out), (theirs_in, theirs_out))
        master, slave = pty.openpty()
        set_size(master, rows, cols)
        words = (*IN_TERMINAL, os.ttyname(slave), *argv)
        return await cls._start(words, (master, master), (slave, slave))

    @classmethod
    async def _start(
        cls, argv: Sequence[str], ours: tuple[int, int], theirs: tuple[int, int]
    ) -> "Terminal":
        """Start it with their ends of the wire, which are closed here; ours stay open."""
        try:
            for fd in ours:
                os.set_blocking(fd, False)
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[1],
                env=PLAIN,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            _close(ours)
            raise
        finally:
            _close(theirs)
        return cls(process, *ours)

    async def read(self) -> bytes:
        """Return the next output; empty once there can be no more."""
        while True:
            try:
                return os.read(self._output, CHUNK)
            except BlockingIOError:
                await _readable(self._output)
            except OSError:  # EIO: the last one who had the terminal open is gone
                return b""

    async def write(self, data: bytes) -> None:
        """Send input, as fast as the command takes it. Does nothing once it is gone."""
        while data and self._input >= 0:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                await _writable(self._input)
            except OSError:
                return

    async def end_input(self) -> None:
        """Close the command's input."""
        if self._is_terminal:
            await self.write(END_OF_INPUT)
        elif self._input >= 0:
            os.close(self._input)
            self._input = -1

    @property
    def _is_terminal(self) -> bool:
        return self._input == self._output

    def resize(self, rows: int, cols: int) -> None:
        """Pass on the size of the window that shows it."""
        if self._is_terminal:
            set_size(self._output, rows, cols)

    async def wait(self) -> int:
        """Return the exit code; 128 and the signal's number for one that was killed."""
        code = await self._process.wait()
        return 128 - code if code < 0 else code

    async def close(self) -> None:
        """End the command and its process group, by force after a grace, and reap it.

        Nobody may be reading or writing any more.
        """
        _close((self._input, self._output))
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


def _close(fds: tuple[int, int]) -> None:
    for fd in set(fds) - {-1}:
        os.close(fd)


def set_size(terminal: int, rows: int, cols: int) -> None:
    """Set a terminal's size; the processes in it get SIGWINCH."""
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
