"""Jobs as a table in the `simple` format, which the readers of traces read back.

The format has no place for CPU-only jobs, tasks of other than one device, or priorities.
"""

import csv
from collections.abc import Iterable
from typing import TextIO

import msgspec

from allotment.model.quantity import show_milli
from allotment.sim.trace import Ending, TraceJob

COLUMNS = (
    "job_id",
    "submit_time",
    "num_gpus",
    "duration",
    "vc",
    "user",
    "model",
    "end_time",
    "ending",
)


class Written(msgspec.Struct, frozen=True, gc=False):
    """What became of the jobs that were to be written."""

    jobs: int
    left_out: int
    """Jobs that ask for no device: `simple` cannot say what else they need."""


def write_csv(jobs: Iterable[TraceJob], file: TextIO) -> Written:
    """Write jobs as they come, times in seconds; open the file with `newline=""`.

    `end_time` is empty for a job that had not ended, as the reader expects, else the end it
    would have had without waiting.
    """
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    written = left_out = 0
    for job in jobs:
        if job.gpu_milli:
            out.writerow(_row(job))
            written += 1
        else:
            left_out += 1
    return Written(written, left_out)


def _row(job: TraceJob) -> tuple[str, ...]:
    censored = job.ending is Ending.CENSORED
    return (
        job.id,
        _seconds(job.submit_ms),
        show_milli(job.gpu_milli),
        _seconds(job.run_ms),
        job.tenant,
        job.user,
        job.model,
        "" if censored else _seconds(job.submit_ms + job.run_ms),
        job.ending.value,
    )


def _seconds(time_ms: int) -> str:
    """Write milliseconds as seconds, exactly."""
    sign, (whole, rest) = "-" * (time_ms < 0), divmod(abs(time_ms), 1000)
    return f"{sign}{whole}.{rest:03}".rstrip("0") if rest else f"{sign}{whole}"
