"""`acme`: Shanghai AI Lab's Acme, `trace_seren.csv` and `trace_kalos.csv`.

Columns: job_id, user, node_num, gpu_num, cpu_num, type (the name of the job), state,
submit_time, start_time, end_time (with zone), duration (seconds); Kalos has mem_per_pod_GB
too. The run time is end − start: Kalos's duration includes the wait.
"""

from allotment.sim.readers.formats import Format
from allotment.sim.readers.helios import reader
from allotment.sim.readers.table import header_of

NEEDS = (
    *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"),
    *("submit_time", "start_time", "end_time", "duration"),
)


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("gpu_num", "type", "state", "submit_time"))


FORMAT = Format("acme", NEEDS, _tells, reader(NEEDS, name="type"))
