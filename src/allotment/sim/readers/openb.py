"""`openb`: Alibaba's GPU trace of 2023, `openb_pod_list_*.csv`; pods that share devices.

Columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each device), gpu_spec (accepted
models, `|` between), qos (the name of the job), pod_phase, creation_time, scheduled_time,
deletion_time (seconds). A pod is one task. It ran from being scheduled to its deletion.
"""

from collections.abc import Generator, Iterable
from sys import intern

import msgspec

from allotment.model.quantity import MIB, Resources
from allotment.sim.readers.fields import (
    Unreadable,
    amount,
    checked_span,
    is_blank,
    point_ms,
    whole,
)
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import NEVER_RAN, NO_DEVICES, whole_above_one
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import Row, Table, header_of
from allotment.sim.trace import Ending, TraceJob

NEEDS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "pod_phase"),
    *("creation_time", "scheduled_time", "deletion_time"),
)

_ENDINGS = {"Succeeded": Ending.SUCCEEDED, "Failed": Ending.FAILED}


def _tells(head: str) -> bool:
    header = header_of(head)
    return all(name in header for name in ("name", "gpu_milli", "creation_time"))


def _read(text: Text, options: Options) -> Iterable[Row]:
    del options
    table = Table(text, NEEDS)
    name, cpu, memory, count, share, phase, created, scheduled, deleted = table.places(*NEEDS)
    spec, qos = table.places("gpu_spec", "qos")
    needs: dict[Resources, Resources] = {}
    stopped_ms: dict[str, int] = {}

    def make(number: int, row: list[str]) -> TraceJob:
        del number
        need = _need(row[cpu], row[memory], row[count], row[share])
        if is_blank(row[scheduled]):
            raise Unreadable(NEVER_RAN)
        end_ms = point_ms(row[deleted], "deletion_time")
        ending = _ENDINGS.get(row[phase], Ending.CANCELLED)
        if ending is Ending.CANCELLED:
            stopped_ms[row[name]] = end_ms
        return TraceJob(
            row[name],
            point_ms(row[created], "creation_time"),
            checked_span(end_ms - point_ms(row[scheduled], "scheduled_time"), "run time"),
            1,
            needs.setdefault(need, need),
            name=intern(row[qos]) if qos >= 0 else "",
            gpu_types=_types(row[spec]) if spec >= 0 else (),
            ending=ending,
        )

    return _with_censored(list(table.jobs(make)), stopped_ms)


def _need(cpu: str, memory: str, count: str, share: str) -> Resources:
    gpu_milli = whole_above_one(whole(count, "num_gpu", 0) * amount(share, "gpu_milli"))
    need = Resources(gpu_milli, amount(cpu, "cpu_milli"), amount(memory, "memory_mib", MIB))
    if not need.gpu_milli and not need.cpu_milli:
        raise Unreadable(NO_DEVICES)
    return need


def _types(spec: str) -> tuple[str, ...]:
    return tuple(intern(part.strip()) for part in spec.split("|") if part.strip())


def _with_censored(rows: list[Row], stopped_ms: dict[str, int]) -> Generator[Row]:
    """Running pods are written down as deleted at the last instant: they ran on."""
    last_ms = max(stopped_ms.values(), default=0)
    for row in rows:
        if isinstance(row, TraceJob) and stopped_ms.get(row.id) == last_ms:
            yield msgspec.structs.replace(row, ending=Ending.CENSORED)
        else:
            yield row


FORMAT = Format("openb", NEEDS, _tells, _read)
