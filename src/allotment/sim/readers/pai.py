"""`pai`: Alibaba's PAI trace of 2020: a folder with its tables, or one joined table.

Folder: `pai_job_table.csv` (job_name, inst_id, user, status, start_time) and
`pai_task_table.csv` (job_name, task_name, inst_num, status, start_time, end_time, plan_cpu,
plan_mem, plan_gpu, gpu_type), with a header or, as published, without; compressed or not.
Joined: job_name, plan_gpu, start_time, end_time, with inst_num, plan_cpu, plan_mem,
gpu_type, status, user and submit_time (else start_time) where there; one row a task.

plan_cpu and plan_gpu are percent (100 is one), plan_mem is GB, each for one instance; times
are seconds. Roles are merged into one: instances with GPUs are the tasks, and share alike
what all roles of the job ask for.
"""

from collections.abc import Generator, Iterable
from pathlib import Path
from sys import intern

import msgspec

from allotment.model.quantity import GIB, Resources
from allotment.sim.readers.fields import (
    Unreadable,
    amount,
    checked_span,
    is_blank,
    point_ms,
    whole,
)
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.history import Running, closed
from allotment.sim.readers.shape import NEVER_RAN, NO_DEVICES, whole_above_one
from allotment.sim.readers.source import Text, name_of
from allotment.sim.readers.table import TOO_SHORT, Row, Table, header_of
from allotment.sim.trace import BadTrace, Ending, TraceJob

JOINED = ("job_name", "plan_gpu", "start_time", "end_time")
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)

_ENDINGS = {
    "Terminated": Ending.SUCCEEDED,
    "Failed": Ending.FAILED,
    "Running": Ending.CENSORED,
    "Waiting": Ending.CENSORED,
}
NO_TASKS = "has no row in the task table"


class _Gang(msgspec.Struct, gc=False):
    """What the rows of one job add up to."""

    reason: str = ""
    """Why it cannot be used; that of its first bad row."""
    submit_ms: int = 0
    user: str = ""
    status: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    is_open: bool = False
    """Some task of it has no end."""
    gpu_tasks: int = 0
    cpu_tasks: int = 0
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory: int = 0
    gpu_types: tuple[str, ...] = ()


def tables_in(folder: Path) -> list[Path]:
    """Find the job and task tables of a folder. BadTrace names the one that is missing."""
    tables: list[Path] = []
    for name in ("pai_job_table.csv", "pai_task_table.csv"):
        stored = [folder / (name + packed) for packed in ("", ".gz", ".zst")]
        found = [path for path in stored if path.exists()]
        if not found:
            raise BadTrace(
                f"{name_of(folder)}: a folder is read as pai, but it has no {name}; name "
                "the file of a trace, or the folder with PAI's tables"
            )
        tables.append(found[0])
    return tables


def read_tables(jobs: Text, tasks: Text) -> Iterable[Row]:
    """Return a job, or the reason for none, for each row of the job table."""
    gangs = _gangs(_table(tasks, TASK_COLUMNS), jobs_known=True)
    last_ms = max((gang.end_ms or gang.start_ms or 0 for gang in gangs.values()), default=0)
    table = _table(jobs, JOB_COLUMNS)
    return closed(_joined(table, gangs), last_ms)


def _joined(table: Table, gangs: dict[str, _Gang]) -> Generator[Row | Running]:
    name, user, status, start = table.places("job_name", "user", "status", "start_time")
    for row in table.rows():
        try:
            gang = gangs.get(row[name]) or _Gang(NO_TASKS)
            gang.submit_ms = point_ms(row[start], "start_time")
            gang.user, gang.status = intern(row[user]), row[status]
            yield _job(row[name], gang)
        except Unreadable as reason:
            yield str(reason)
        except IndexError:
            yield TOO_SHORT


def _read(text: Text, options: Options) -> Iterable[Row]:
    del options
    gangs = _gangs(Table(text, JOINED), jobs_known=False)
    last_ms = max((gang.end_ms or gang.start_ms or 0 for gang in gangs.values()), default=0)
    return closed((_job_or_reason(name, gang) for name, gang in gangs.items()), last_ms)


def _table(text: Text, columns: tuple[str, ...]) -> Table:
    """As published the tables have no header."""
    is_headed = header_of(text.head)[0] == columns[0]
    return Table(text, columns) if is_headed else Table(text, columns, columns=columns)


def _gangs(table: Table, *, jobs_known: bool) -> dict[str, _Gang]:
    """Add up the task rows of each job."""
    adder = _Adder(table, jobs_known=jobs_known)
    gangs: dict[str, _Gang] = {}
    name = table.place("job_name")
    for row in table.rows():
        if len(row) <= name:
            continue
        gang = gangs.setdefault(row[name], _Gang())
        try:
            adder.add(row, gang)
        except Unreadable as reason:
            gang.reason = gang.reason or str(reason)
        except IndexError:
            gang.reason = gang.reason or TOO_SHORT
    return gangs


class _Adder:
    """Adds one task row to what is known of its job."""

    def __init__(self, table: Table, *, jobs_known: bool) -> None:
        self._start, self._end, self._gpu = table.places("start_time", "end_time", "plan_gpu")
        self._cpu, self._memory = table.places("plan_cpu", "plan_mem")
        self._count, self._type = table.place("inst_num", "num_inst"), table.place("gpu_type")
        self._user, self._status = table.places("user", "status")
        self._submit = table.place("submit_time", "start_time")
        self._jobs_known = jobs_known

    def add(self, row: list[str], gang: _Gang) -> None:
        """Add it. Unreadable or IndexError when a field is missing or no number."""
        if not self._jobs_known:
            submit_ms = point_ms(row[self._submit], "submit_time")
            gang.submit_ms = min(gang.submit_ms, submit_ms) if gang.status else submit_ms
            gang.user = intern(row[self._user]) if self._user >= 0 else ""
            gang.status = _worst(gang.status, row[self._status] if self._status >= 0 else "?")
        self._add_times(row, gang)
        count = whole(row[self._count], "inst_num") if self._count >= 0 else 1
        gpu_milli = 10 * amount(row[self._gpu], "plan_gpu")
        cpu = amount(row[self._cpu], "plan_cpu", 10) if self._cpu >= 0 else 0
        memory = amount(row[self._memory], "plan_mem", GIB) if self._memory >= 0 else 0
        if gpu_milli:
            gang.gpu_tasks += count
            if self._type >= 0 and not is_blank(row[self._type]) and row[self._type] != "CPU":
                gang.gpu_types = (intern(row[self._type]),)
        else:
            gang.cpu_tasks += count
        gang.gpu_milli += gpu_milli * count
        gang.cpu_milli += cpu * count
        gang.memory += memory * count

    def _add_times(self, row: list[str], gang: _Gang) -> None:
        if is_blank(row[self._start]):
            return
        start_ms = point_ms(row[self._start], "start_time")
        gang.start_ms = start_ms if gang.start_ms is None else min(gang.start_ms, start_ms)
        if is_blank(row[self._end]):
            gang.is_open = True
            return
        end_ms = point_ms(row[self._end], "end_time")
        gang.end_ms = end_ms if gang.end_ms is None else max(gang.end_ms, end_ms)


def _worst(one: str, other: str) -> str:
    """Of the states of two tasks, the one that is the job's."""
    order = ("Failed", "Running", "Waiting")
    return next((state for state in order if state in (one, other)), other or one)


def _job_or_reason(name: str, gang: _Gang) -> Row | Running:
    try:
        return _job(name, gang)
    except Unreadable as reason:
        return str(reason)


def _job(name: str, gang: _Gang) -> TraceJob | Running:
    if gang.reason:
        raise Unreadable(gang.reason)
    if gang.start_ms is None:
        raise Unreadable(NEVER_RAN)
    if not gang.gpu_milli and not gang.cpu_milli:
        raise Unreadable(NO_DEVICES)
    tasks = gang.gpu_tasks or gang.cpu_tasks
    job = TraceJob(
        name,
        gang.submit_ms,
        1,
        tasks,
        Resources(
            whole_above_one(-(-gang.gpu_milli // tasks)),
            gang.cpu_milli // tasks,
            gang.memory // tasks,
        ),
        user=gang.user,
        gpu_types=gang.gpu_types,
        ending=_ENDINGS.get(gang.status, Ending.SUCCEEDED),
    )
    if gang.is_open or gang.end_ms is None:
        return Running(msgspec.structs.replace(job, run_ms=0), gang.start_ms)
    run_ms = checked_span(gang.end_ms - gang.start_ms, "run time")
    return msgspec.structs.replace(job, run_ms=run_ms)


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("job_name", "plan_gpu", "start_time"))


FORMAT = Format("pai", JOINED, _tells, _read)
