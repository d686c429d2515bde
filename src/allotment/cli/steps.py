"""How far uploads, pulls and builds are, for the person at the terminal."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from allotment.cli.output import talk
from allotment.client.step import Step, Tell

LINE_EVERY_S = 2.0
"""Of one step that is under way, where there is no bar."""


@contextmanager
def steps(*, quiet: bool = False, as_json: bool = False) -> Generator[Tell]:
    """Show how far steps are: on a terminal as a bar in its place, else by a line at times."""
    if quiet:
        yield lambda _step: None
    elif as_json or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _lines()
    else:
        from allotment.cli.bar import a_bar  # noqa: PLC0415 - only on terminals

        with a_bar() as tell:
            yield tell


def _lines() -> Tell:
    what, when = "", 0.0

    def tell(step: Step) -> None:
        nonlocal what, when
        now = time.monotonic()
        if step.what != what or now - when >= LINE_EVERY_S:
            what, when = step.what, now
            talk(str(step))

    return tell
