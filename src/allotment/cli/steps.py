"""How far uploads, pulls and builds are, for the person at the terminal."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from allotment.cli.output import talk
from allotment.client.step import Tell


@contextmanager
def steps(*, quiet: bool = False, as_json: bool = False) -> Generator[Tell]:
    """Show how far steps are: on a terminal as a bar in its place, else a line each time."""
    if quiet:
        yield lambda _step: None
    elif as_json or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda step: talk(str(step))
    else:
        from allotment.cli.bar import a_bar  # noqa: PLC0415 - only on terminals

        with a_bar() as tell:
            yield tell
