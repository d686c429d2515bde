"""`simple`: one job a row, times in seconds. Also what `allot sim run --jobs-out` writes.

Columns: submit_time, num_gpus, and duration (or attained_gpu_s, the device-seconds it ran
for). Optional: job_id, tenant or vc, user, model, ending (succeeded, failed, cancelled or
censored) or outcome (as a run writes it), end_time (without an ending: empty where it had not
ended).
"""

from collections.abc import Iterable, Mapping
from sys import intern

from allotment.metrics.jobs import Fate
from allotment.sim.readers.fields import Clock, Unreadable, checked_span, is_blank, span_ms
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import NEVER_RAN, Shapes
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import Ending, TraceJob

NEEDS = ("submit_time", "num_gpus")
OUTCOMES: Mapping[str, Ending] = {
    Fate.COMPLETED.value: Ending.SUCCEEDED,
    Fate.FAILED.value: Ending.FAILED,
    Fate.TIMED_OUT.value: Ending.FAILED,
    Fate.CANCELLED.value: Ending.CANCELLED,
    Fate.CENSORED.value: Ending.CENSORED,
    Fate.NEVER_SCHEDULABLE.value: Ending.CENSORED,
    Fate.UNFINISHED.value: Ending.CENSORED,
}
"""What a run says became of a job. One that can never run is left out: it never ran."""
ENDINGS: Mapping[str, Ending] = {**{ending.value: ending for ending in Ending}, **OUTCOMES}


def _tells(head: str) -> bool:
    header = header_of(head)
    has_length = "duration" in header or "attained_gpu_s" in header
    return has_length and all(name in header for name in NEEDS)


def _read(text: Text, options: Options) -> Iterable[Row]:
    is_outcome = "attained_gpu_s" in header_of(text.head)
    table = Table(text, NEEDS if is_outcome else (*NEEDS, "duration"))
    shapes = Shapes("num_gpus", whole_nodes=options.whole_nodes)
    when, count, length = table.places("submit_time", "num_gpus", "duration")
    name, user, model = table.places("job_id", "user", "model")
    tenant, end = table.place("tenant", "vc"), table.place("end_time")
    attained = table.place("attained_gpu_s")
    ending = table.place("ending", *(("outcome",) if is_outcome else ()))
    submit_ms = Clock().ms

    def make(number: int, row: list[str]) -> TraceJob:
        tasks, need = shapes[row[count]]
        return TraceJob(
            row[name] if name >= 0 else str(number),
            submit_ms(row[when], "submit_time"),
            span_ms(row[length], "duration")
            if length >= 0
            else _attained_ms(row[attained], tasks * need.gpu_milli),
            tasks,
            need,
            intern(row[tenant]) if tenant >= 0 else "all",
            intern(row[user]) if user >= 0 else "",
            model=intern(row[model]) if model >= 0 else "",
            ending=_ending(row[ending])
            if ending >= 0 and not is_blank(row[ending])
            else Ending.CENSORED
            if end >= 0 and is_blank(row[end])
            else Ending.SUCCEEDED,
        )

    return table.jobs(make)


def _ending(text: str) -> Ending:
    word = text.strip().lower()
    if word not in ENDINGS:
        raise Unreadable(f"{text[:40]!r} is not an ending: {', '.join(Ending)}")
    return ENDINGS[word]


def _attained_ms(text: str, gpu_milli: int) -> int:
    device_ms = span_ms(text, "attained_gpu_s")
    if device_ms <= 1:
        raise Unreadable(NEVER_RAN)
    return checked_span(round(device_ms * 1000 / gpu_milli), "attained_gpu_s")


FORMAT = Format("simple", (*NEEDS, "duration"), _tells, _read)
