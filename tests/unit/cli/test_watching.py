"""A watched page ends at Ctrl-C, wherever Python is at that moment."""

import io
import os
import signal
import sys

import pytest

from allotment.cli.watching import watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class InterruptedAtItsEnd:
    """Is interrupted in its destructor, whose exceptions Python drops."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_that_python_drops_ends_the_page_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, drawn = Terminal(), 0
    dropped: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    before = signal.getsignal(signal.SIGINT)

    def draw() -> None:
        nonlocal drawn
        drawn += 1
        assert drawn < 3, "it is drawn again after Ctrl-C"
        InterruptedAtItsEnd()

    watch(draw, 0.01)
    assert [told.exc_type for told in dropped] == [KeyboardInterrupt]
    assert drawn == 1
    assert screen.getvalue().endswith("\x1b[?25h\x1b[?1049l")
    assert signal.getsignal(signal.SIGINT) is before
