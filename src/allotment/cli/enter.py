"""`allot exec`: a command, or a shell, inside a running task."""

import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from allotment.cli.options import Job, State, Task
from allotment.client import Client

if TYPE_CHECKING:
    from allotment.client.session import Session

CHUNK = 1 << 16
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
STOP, RESIZE = b"s", b"r"


def exec(
    job: Job,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What to run; a shell when left out."),
    ] = None,
    task: Task = "",
    no_tty: Annotated[
        bool, typer.Option("--no-tty", "-T", help="No terminal, even if there is one.")
    ] = False,
    state: State = "",
) -> None:
    """Run a command inside a running task's isolation, or open a shell there.

    The command sees what the task sees: its folders, devices and limits. The exit code is
    that of the command. With several tasks it runs in the first, unless --task names another.

    Examples:
      allot exec last
      allot exec 12 --task worker.1 -- nvidia-smi
    """
    size = shutil.get_terminal_size()
    tty = sys.stdin.isatty() and sys.stdout.isatty() and not no_tty
    env = {"TERM": os.environ.get("TERM", "xterm")} if tty else {}
    with (
        Client(state=state) as client,
        client.exec(
            job,
            command or SHELL,
            task=task,
            tty=tty,
            size=(size.lines, size.columns),
            env=env,
        ) as session,
        _terminal(session, tty),
    ):
        for data in session:
            _write(data)
    raise typer.Exit(session.exit_code if session.exit_code is not None else 1)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


@contextmanager
def _terminal(session: "Session", tty: bool) -> Generator[None]:
    """Pass input and size changes on from another thread; raw mode while it lasts."""
    reader, writer = os.pipe()
    thread = threading.Thread(target=_feed, args=(session, reader), daemon=True)

    def resized(_number: int, _frame: object) -> None:
        os.write(writer, RESIZE)

    before = signal.signal(signal.SIGWINCH, resized) if tty else None
    try:
        with _raw() if tty else _as_it_is():
            thread.start()
            yield
    finally:
        if tty:
            signal.signal(signal.SIGWINCH, before)
        os.write(writer, STOP)
        session.close()  # what is being sent may never be taken
        thread.join()
        os.close(writer)
        os.close(reader)


@contextmanager
def _raw() -> Generator[None]:
    """Let every key reach the task: Ctrl-C is the task's, not ours."""
    import termios  # noqa: PLC0415 - only with a terminal
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Generator[None]:
    yield


def _feed(session: "Session", wake: int) -> None:
    """Send what is typed, until told to stop or there is no more."""
    watched = [0, wake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            if STOP in os.read(wake, 64):
                return
            size = os.get_terminal_size(0)
            session.resize(size.lines, size.columns)
        if 0 in ready:
            data = os.read(0, CHUNK)
            if data:
                session.send(data)
            else:
                session.end_input()
                watched = [wake]
