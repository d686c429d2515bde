"""`muri`: job files of the Muri simulator: Tiresias's columns, times in MILLISECONDS.

Nothing in the file says so. It is taken for Muri's when half of its first jobs would
otherwise run for more than two days.
"""

from collections.abc import Iterable

from allotment.model.quantity import DAY, SECOND
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, header_of
from allotment.sim.readers.tiresias import NEEDS, has_columns, read_counting

SAMPLE = 500
"""Rows looked at."""

TOO_LONG_S = 2 * DAY // SECOND


def _tells(head: str) -> bool:
    if not has_columns(head):
        return False
    place = header_of(head).index("duration")
    lengths: list[float] = []
    for line in head.splitlines()[1:SAMPLE]:
        fields = line.split(",")
        if len(fields) > place and fields[place].strip().isdigit():
            lengths.append(float(fields[place]))
    return bool(lengths) and sorted(lengths)[len(lengths) // 2] > TOO_LONG_S


def _read(text: Text, options: Options) -> Iterable[Row]:
    return read_counting(text, options, 1)


FORMAT = Format(
    "muri",
    NEEDS,
    _tells,
    _read,
    "times taken for milliseconds (format muri): as seconds, half of the jobs would run for "
    "over two days; if they are seconds, name the format tiresias",
)
