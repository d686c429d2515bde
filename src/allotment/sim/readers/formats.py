"""What a trace format is: its name, how it is recognised, and how it is read."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row


class Options(msgspec.Struct, frozen=True):
    """What the reader of a trace was asked for, beyond the file itself."""

    whole_nodes: bool = False
    """Tasks of up to 8 devices where the source has no task structure; else of one."""
    rates: Mapping[tuple[str, int], float] | None = None
    """Steps a second of (model, devices), for sources that give steps instead of time."""


class Format(msgspec.Struct, frozen=True):
    """One format of traces."""

    name: str
    columns: tuple[str, ...]
    """Those a header must have; empty where there is no header."""
    tells: Callable[[str], bool]
    """Whether the first piece of a text looks like this format."""
    read: Callable[[Text, Options], Iterable[Row]]
    """Return a job, or the reason for none, for each row. BadTrace when nothing can be read."""
    guessed: str = ""
    """A warning for when the format was told by its looks, and could be another."""
