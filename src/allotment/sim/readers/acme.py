"""`acme`: Shanghai AI Lab's Acme, `trace_seren.csv` and `trace_kalos.csv`.

Columns: job_id, user, node_num, gpu_num, cpu_num, type (the name of the job), state,
submit_time, start_time, end_time (with zone), duration (seconds); Kalos has mem_per_pod_GB
too. The run time is end − start: Kalos's duration includes the wait.
"""

from collections.abc import Iterable
from sys import intern

from allotment.model.quantity import CPU, GIB, Resources
from allotment.sim.readers.fields import Clock, amount, whole
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.helios import run_of
from allotment.sim.readers.shape import Demands, devices_milli
from allotment.sim.readers.slurm_states import ending_of
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import TraceJob

NEEDS = (
    *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"),
    *("submit_time", "start_time", "end_time", "duration"),
)


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("gpu_num", "type", "state", "submit_time"))


def _read(text: Text, options: Options) -> Iterable[Row]:
    table = Table(text, NEEDS)
    at = dict(zip(NEEDS, table.places(*NEEDS), strict=True))
    pod_memory = table.place("mem_per_pod_gb")
    demands, clock = Demands(whole_nodes=options.whole_nodes), Clock()

    def make(number: int, row: list[str]) -> TraceJob:
        del number
        nodes = whole(row[at["node_num"]], "node_num")
        memory = amount(row[pod_memory], "mem_per_pod_GB", GIB) if pod_memory >= 0 else 0
        asked = Resources(
            devices_milli(row[at["gpu_num"]], "gpu_num"),
            amount(row[at["cpu_num"]], "cpu_num", CPU),
            memory * nodes,
        )
        tasks, need = demands.split(asked, nodes)
        return TraceJob(
            row[at["job_id"]],
            clock.ms(row[at["submit_time"]], "submit_time"),
            run_of(row[at["start_time"]], row[at["end_time"]], row[at["duration"]], clock),
            tasks,
            need,
            user=intern(row[at["user"]]),
            name=intern(row[at["type"]]),
            ending=ending_of(row[at["state"]]),
        )

    return table.jobs(make)


FORMAT = Format("acme", NEEDS, _tells, _read)
