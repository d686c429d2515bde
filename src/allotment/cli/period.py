"""A stretch of the past: the options that say which, and what is not known of it any more."""

import time
from typing import Annotated, Protocol

import typer

from allotment.cli.instants import date, instant
from allotment.cli.output import warn
from allotment.cli.sim_options import Misused
from allotment.cli.words import count
from allotment.model.quantity import SECOND

Since = Annotated[
    str, typer.Option("--since", metavar="7d|DATE", help="How far back, or a date.")
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="1d|DATE", help="Up to when; now when left out.", show_default=False
    ),
]


class Told(Protocol):
    """What a service says of a period."""

    @property
    def since(self) -> int: ...
    @property
    def known_since(self) -> int: ...
    @property
    def forgotten(self) -> int: ...


def period(since: str, until: str) -> tuple[int, int]:
    """Read both ends, in milliseconds since the epoch. Raises Misused."""
    now = round(time.time() * SECOND)
    first, last = instant("--since", since, now), instant("--until", until or "0", now)
    if first >= last:
        raise Misused("--since is not before --until: choose an earlier --since.")
    return first, last


def warn_of_forgotten(found: Told) -> None:
    """Warn that jobs of the period are not known any more, where that is so."""
    if found.forgotten and found.since == found.known_since:
        warn(
            f"History begins at {date(found.known_since)}: "
            f"{count(found.forgotten, 'earlier job')} forgotten (limits.keep_history)."
        )
