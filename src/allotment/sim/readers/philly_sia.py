"""`philly-sia`: Microsoft's Philly trace as reduced by the authors of Sia.

Columns: timestamp (a date, UTC), duration (seconds), num_gpus, cluster (the virtual
cluster, hence the tenant). No ids: a job is called by its row's number. No endings.
"""

from collections.abc import Iterable
from sys import intern

from allotment.sim.readers.fields import Clock, span_ms
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import Shapes
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import TraceJob

NEEDS = ("timestamp", "duration", "num_gpus", "cluster")


def _tells(head: str) -> bool:
    return set(NEEDS) <= set(header_of(head))


def _read(text: Text, options: Options) -> Iterable[Row]:
    table = Table(text, NEEDS)
    when, length, count, cluster = table.places(*NEEDS)
    shapes = Shapes("num_gpus", whole_nodes=options.whole_nodes)
    submit_ms = Clock().ms

    def make(number: int, row: list[str]) -> TraceJob:
        tasks, need = shapes[row[count]]
        return TraceJob(
            str(number),
            submit_ms(row[when], "timestamp"),
            span_ms(row[length], "duration"),
            tasks,
            need,
            intern(row[cluster]),
        )

    return table.jobs(make)


FORMAT = Format("philly-sia", NEEDS, _tells, _read)
