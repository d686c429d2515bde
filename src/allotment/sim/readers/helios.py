"""`helios`: SenseTime's Helios, `cluster_log.csv`; a Slurm history.

Columns: job_id, user, vc (tenant), gpu_num, cpu_num, node_num, state, submit_time,
start_time, end_time (local time, read as UTC), duration (seconds); optional jobname.
cpu_num counts the whole job. A job without GPUs is a CPU task on each of its nodes.
"""

from collections.abc import Callable, Iterable
from sys import intern

from allotment.model.quantity import CPU, GIB, Resources
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
from allotment.sim.trace import TraceJob

NEEDS = (
    *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
    *("submit_time", "start_time", "end_time", "duration"),
)


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("job_id", "vc", "gpu_num", "state", "submit_time"))


def reader(needs: tuple[str, ...], name: str) -> Callable[[Text, Options], Iterable[Row]]:
    """Return what reads traces with such columns, of which one has the names of jobs."""

    def read(text: Text, options: Options) -> Iterable[Row]:
        table = Table(text, needs)
        at = dict(zip(needs, table.places(*needs), strict=True))
        job_id, user, state = at["job_id"], at["user"], at["state"]
        tenant, title, memory = table.places("vc", name, "mem_per_pod_gb")
        demands, clock = Demands(whole_nodes=options.whole_nodes), Clock()

        def make(number: int, row: list[str]) -> TraceJob:
            del number
            nodes = whole(row[at["node_num"]], "node_num")
            each = amount(row[memory], "mem_per_pod_GB", GIB) if memory >= 0 else 0
            asked = Resources(
                devices_milli(row[at["gpu_num"]], "gpu_num"),
                amount(row[at["cpu_num"]], "cpu_num", CPU),
                each * nodes,
            )
            tasks, need = demands.split(asked, nodes)
            return TraceJob(
                row[job_id],
                clock.ms(row[at["submit_time"]], "submit_time"),
                _run_of(row[at["start_time"]], row[at["end_time"]], row[at["duration"]], clock),
                tasks,
                need,
                intern(row[tenant]) if tenant >= 0 else "all",
                intern(row[user]),
                intern(row[title]) if title >= 0 else "",
                ending=ending_of(row[state]),
            )

        return table.jobs(make)

    return read


def _run_of(start: str, end: str, duration: str, clock: Clock) -> int:
    """Time from start to end; the duration given where either is missing."""
    if is_blank(start):
        raise Unreadable(NEVER_RAN)
    if is_blank(end):
        return span_ms(duration, "duration")
    return checked_span(clock.ms(end, "end_time") - clock.ms(start, "start_time"), "run time")


FORMAT = Format("helios", NEEDS, _tells, reader(NEEDS, name="jobname"))
