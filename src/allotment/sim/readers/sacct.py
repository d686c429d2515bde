"""`sacct`: a Slurm cluster's own history, as written by `sacct --parsable2`.

Columns: JobID, Submit, State, ReqTRES or AllocTRES, and ElapsedRaw, Elapsed, or Start and
End. Optional: JobName, User, Account (tenant; else Partition), NNodes, TimelimitRaw or
Timelimit, with which `limit_ms` is set. Dates are the cluster's local time, read as UTC.
"""

from collections.abc import Iterable
from sys import intern

from allotment.model.quantity import (
    CPU,
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    SECOND,
    TIB,
    Millis,
    Resources,
)
from allotment.sim.readers.fields import (
    Clock,
    Unreadable,
    amount,
    checked_span,
    is_blank,
    span_ms,
    whole,
)
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import NEVER_RAN, Demands, devices_milli
from allotment.sim.readers.slurm_states import ending_of
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import BadTrace, Ending, TraceJob

A_STEP = "a step of a job, not a job"
NEEDS = ("jobid", "submit", "state")
_STARTED = (Ending.SUCCEEDED, Ending.FAILED)
_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": TIB}


def _tells(head: str) -> bool:
    return "jobid" in header_of(head, "|")


def _read(text: Text, options: Options) -> Iterable[Row]:
    table = Table(text, NEEDS, "|")
    _check(table, text.name)
    return table.jobs(_SacctReader(table, options).job)


def _check(table: Table, name: str) -> None:
    for choice in (("reqtres", "alloctres"), ("elapsedraw", "elapsed", "end")):
        if table.place(*choice) < 0:
            raise BadTrace(
                f"{name}: the header lacks {' or '.join(choice)}; write it with `sacct -X "
                "--parsable2 -o JobID,JobName,User,Account,Submit,Start,End,ElapsedRaw,State,"
                "NNodes,ReqTRES,AllocTRES,TimelimitRaw`"
            )


class _SacctReader:
    """Makes jobs of rows; remembers requests, which repeat."""

    def __init__(self, table: Table, options: Options) -> None:
        self._width = len(table.columns)
        self._at = {name: place for place, name in reversed(list(enumerate(table.columns)))}
        self._clock = Clock()
        self._demands = Demands(whole_nodes=options.whole_nodes)
        self._asked: dict[str, tuple[Resources, tuple[str, ...]]] = {}

    def job(self, number: int, row: list[str]) -> TraceJob:
        """Make a job of a row. Unreadable for steps, and for what never ran."""
        del number
        if len(row) > self._width:
            raise Unreadable("has more fields than the header: a | in a name")
        job_id = row[self._at["jobid"]]
        if "." in job_id:
            raise Unreadable(A_STEP)
        asked, types = self._request(row)
        tasks, need = self._demands.split(asked, whole(self._of(row, "nnodes"), "NNodes"))
        ending, run_ms = ending_of(row[self._at["state"]]), self._run_ms(row)
        if run_ms == 1 and "start" not in self._at and ending not in _STARTED:
            raise Unreadable(NEVER_RAN)
        return TraceJob(
            job_id,
            self._clock.ms(row[self._at["submit"]], "Submit"),
            run_ms,
            tasks,
            need,
            intern(self._of(row, "account") or self._of(row, "partition") or "all"),
            intern(self._of(row, "user")),
            self._of(row, "jobname"),
            types,
            limit_ms=self._limit_ms(row),
            ending=ending,
        )

    def _of(self, row: list[str], column: str) -> str:
        return row[self._at[column]] if column in self._at else ""

    def _request(self, row: list[str]) -> tuple[Resources, tuple[str, ...]]:
        text = self._of(row, "reqtres")
        if "gres/gpu" not in text:
            text = self._of(row, "alloctres") or text
        if text not in self._asked:
            self._asked[text] = _tres(text)
        return self._asked[text]

    def _run_ms(self, row: list[str]) -> int:
        if is_blank(self._of(row, "start")) and "start" in self._at:
            raise Unreadable(NEVER_RAN)
        raw, elapsed = self._of(row, "elapsedraw"), self._of(row, "elapsed")
        if raw:
            return span_ms(raw, "ElapsedRaw")
        if elapsed:
            return checked_span(_clocked_ms(elapsed, "Elapsed"), "Elapsed")
        start, end = self._of(row, "start"), self._of(row, "end")
        if is_blank(end):
            raise Unreadable("has no end, and no elapsed time")
        ran_ms = self._clock.ms(end, "End") - self._clock.ms(start, "Start")
        return checked_span(ran_ms, "run time")

    def _limit_ms(self, row: list[str]) -> Millis:
        minutes, text = self._of(row, "timelimitraw"), self._of(row, "timelimit")
        if minutes.isdigit():
            return Millis(amount(minutes, "TimelimitRaw", MINUTE))
        return Millis(_clocked_ms(text, "Timelimit") if text[:1].isdigit() else 0)


def _clocked_ms(text: str, column: str) -> int:
    """Read Slurm's `[days-][hours:]minutes:seconds[.fraction]`."""
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = ("0:0:" + clock).split(":")[-3:]
    try:
        whole_ms = int(days or 0) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
        return whole_ms + round(float(seconds) * SECOND)
    except (ValueError, OverflowError):
        raise Unreadable(f"{column} is not a length of time") from None


def _tres(text: str) -> tuple[Resources, tuple[str, ...]]:
    """Read `cpu=8,mem=64G,node=1,gres/gpu=2,gres/gpu:a100=2`."""
    parts = [part.partition("=") for part in text.split(",")]
    amounts = {name: count for name, _, count in parts}
    typed = {name: count for name, count in amounts.items() if name.startswith("gres/gpu:")}
    gpu_milli = sum(devices_milli(count, "TRES gres/gpu") for count in typed.values())
    if "gres/gpu" in amounts:
        gpu_milli = devices_milli(amounts["gres/gpu"], "TRES gres/gpu")
    cpu_milli = amount(amounts.get("cpu", ""), "TRES cpu", CPU)
    types = tuple(intern(name.removeprefix("gres/gpu:")) for name in typed)
    return Resources(gpu_milli, cpu_milli, _bytes(amounts.get("mem", ""))), types


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:].upper())
    return amount(text[:-1] if unit else text, "TRES mem", unit or MIB)


FORMAT = Format("sacct", NEEDS, _tells, _read)
