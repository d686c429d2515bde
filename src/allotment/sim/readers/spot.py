"""`spot`: Alibaba's trace of spot and high-priority jobs of 2026, `job_info_df.csv`.

Columns: job_name, organization (tenant), gpu_model, cpu_request and gpu_request (of each
worker), worker_num (tasks), submit_time, duration (seconds), job_type (HP or Spot). HP jobs
are not preemptible; Spot jobs are, with priority 50. No endings.
"""

from collections.abc import Iterable
from sys import intern

from allotment.model.quantity import CPU, Resources
from allotment.sim.readers.fields import Unreadable, amount, point_ms, span_ms, whole
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import NO_DEVICES, devices_milli
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import TraceJob

NEEDS = (
    *("job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num"),
    *("submit_time", "duration", "job_type"),
)

SPOT_PRIORITY = 50


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("gpu_request", "worker_num", "submit_time"))


def _read(text: Text, options: Options) -> Iterable[Row]:
    del options
    table = Table(text, NEEDS)
    name, owner, model, cpu, gpu, workers, when, length, kind = table.places(*NEEDS)
    needs: dict[tuple[str, str], Resources] = {}

    def make(number: int, row: list[str]) -> TraceJob:
        del number
        key = row[gpu], row[cpu]
        if key not in needs:
            needs[key] = _need(*key)
        is_spot = row[kind].strip().lower() == "spot"
        return TraceJob(
            row[name],
            point_ms(row[when], "submit_time"),
            span_ms(row[length], "duration"),
            whole(row[workers], "worker_num"),
            needs[key],
            intern(row[owner]),
            gpu_types=(intern(row[model]),) if row[model] else (),
            priority=SPOT_PRIORITY if is_spot else 100,
            preemptible=is_spot,
        )

    return table.jobs(make)


def _need(gpu: str, cpu: str) -> Resources:
    need = Resources(devices_milli(gpu, "gpu_request"), amount(cpu, "cpu_request", CPU))
    if not need.gpu_milli and not need.cpu_milli:
        raise Unreadable(NO_DEVICES)
    return need


FORMAT = Format("spot", NEEDS, _tells, _read)
