"""A page that is drawn again and again on a terminal, until somebody ends it."""

import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

Every = Annotated[
    float,
    typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="How often to look."),
]
HOME_AND_CLEAR, HIDE, SHOW = "\x1b[H\x1b[J", "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def watch(draw: Callable[[], None], every_s: float) -> None:
    """Draw a page every so often. Ctrl-C ends it; the screen is then as it was before.

    Draws once where the output is no terminal: a file has no use for the same page again.
    """
    if not sys.stdout.isatty():
        draw()
        return
    _put(HIDE)
    try:
        with _interrupts() as interrupted:
            while not interrupted():
                _put(HOME_AND_CLEAR)
                draw()
                sys.stdout.flush()
                time.sleep(every_s)
    except KeyboardInterrupt:
        return
    finally:
        _put(SHOW)


@contextmanager
def _interrupts() -> Generator[Callable[[], bool]]:
    """Return whether Ctrl-C was pressed, besides raising KeyboardInterrupt then.

    Python drops an exception that is raised inside a destructor, with the interrupt in it.
    """
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _put(codes: str) -> None:
    sys.stdout.write(codes)
    sys.stdout.flush()
