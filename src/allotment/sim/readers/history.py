"""Jobs that had not ended when a history ends: they ran at least until then."""

from collections.abc import Generator, Iterable

import msgspec

from allotment.sim.readers.table import Row
from allotment.sim.trace import Ending, TraceJob


class Running(msgspec.Struct, frozen=True, gc=False):
    """A job whose end is not in the history."""

    job: TraceJob
    """Its `run_ms` is what it had run before, in attempts that did end."""
    since_ms: int


def closed(rows: Iterable[Row | Running], last_ms: int) -> Generator[Row]:
    """End what still runs at the last instant of the history, as censored."""
    for row in rows:
        if isinstance(row, Running):
            ran_ms = max(row.job.run_ms + last_ms - row.since_ms, 1)
            yield msgspec.structs.replace(row.job, run_ms=ran_ms, ending=Ending.CENSORED)
        else:
            yield row
