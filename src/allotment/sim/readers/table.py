"""A table of jobs: a header that names columns, then one row a line."""

import csv
from collections.abc import Callable, Generator
from itertools import chain

from allotment.sim.readers.fields import Unreadable
from allotment.sim.readers.source import Text
from allotment.sim.trace import BadTrace, TraceJob

Row = TraceJob | str
"""A job, or the reason why the row gave none."""

MakeJob = Callable[[int, list[str]], TraceJob]
"""From a row's number (from 1, the header not counted) and its fields to a job."""

TOO_SHORT = "has fewer fields than the header"


def header_of(head: str, delimiter: str = ",") -> list[str]:
    """Take the names of the columns from the first line of a text, in small letters."""
    line = head.lstrip("\r\n").partition("\n")[0]
    return [name.strip().strip('"').lower() for name in line.split(delimiter)]


class Table:
    """The rows of a text, and where each column stands."""

    def __init__(
        self,
        text: Text,
        needs: tuple[str, ...],
        delimiter: str = ",",
        columns: tuple[str, ...] = (),
    ) -> None:
        """Read the header, unless `columns` stands for one that the text does not have.

        BadTrace names the columns that are needed and missing, and those there.
        """
        self._name = text.name
        lines = chain.from_iterable(text.blocks())
        if delimiter == ",":
            self._rows = csv.reader(lines)
        else:
            self._rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        names = columns or next(self.rows(), ())
        self.columns = tuple(name.strip().lower() for name in names)
        missing = [name for name in needs if name not in self.columns]
        if missing:
            raise BadTrace(
                f"{text.name}: the header lacks {_listed(missing)}; "
                f"it has {_listed(self.columns)}"
            )

    def place(self, *names: str) -> int:
        """Return where the first of these columns that is there stands; -1 when none is."""
        return next((self.columns.index(name) for name in names if name in self.columns), -1)

    def places(self, *names: str) -> tuple[int, ...]:
        """Return where each of these columns stands; -1 for those that are not there."""
        return tuple(self.place(name) for name in names)

    def jobs(self, make: MakeJob) -> Generator[Row]:
        """Make a job of every row that is not blank, or say why there is none."""
        for number, row in enumerate(self.rows(), 1):
            try:
                yield make(number, row)
            except Unreadable as reason:
                yield str(reason)
            except IndexError:
                yield TOO_SHORT

    def rows(self) -> Generator[list[str]]:
        """Return the fields of each row that is not blank, as they stand."""
        try:
            for row in self._rows:
                if row:
                    yield row
        except csv.Error as problem:
            raise BadTrace(f"{self._name}, line {self._rows.line_num}: {problem}") from None


def _listed(names: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:30])
    return shown + (f" and {len(names) - 30} more" if len(names) > 30 else "") or "none"
