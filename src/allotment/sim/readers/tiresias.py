"""`tiresias`: job files of the Tiresias simulator, and the tables it writes. Seconds.

Columns: job_id, num_gpu, submit_time, duration; optional model_name. The other columns
(iterations, interval) follow from these.
"""

from collections.abc import Iterable
from sys import intern

from allotment.model.quantity import SECOND
from allotment.sim.readers.fields import point_ms, span_ms
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import Shapes
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import TraceJob

NEEDS = ("job_id", "num_gpu", "submit_time", "duration")


def has_columns(head: str) -> bool:
    """Whether a header has what Tiresias and Muri need."""
    return set(NEEDS) <= set(header_of(head))


def read_counting(text: Text, options: Options, unit_ms: int) -> Iterable[Row]:
    """Read the table with times that count units of so many milliseconds."""
    table = Table(text, NEEDS)
    name, count, when, length = table.places(*NEEDS)
    model = table.place("model_name")
    shapes = Shapes("num_gpu", whole_nodes=options.whole_nodes)

    def make(number: int, row: list[str]) -> TraceJob:
        del number
        tasks, need = shapes[row[count]]
        return TraceJob(
            row[name],
            point_ms(row[when], "submit_time", unit_ms),
            span_ms(row[length], "duration", unit_ms),
            tasks,
            need,
            model=intern(row[model]) if model >= 0 else "",
        )

    return table.jobs(make)


def _read(text: Text, options: Options) -> Iterable[Row]:
    return read_counting(text, options, SECOND)


FORMAT = Format("tiresias", NEEDS, has_columns, _read)
