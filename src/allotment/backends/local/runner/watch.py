"""Limits that no control group enforces: looked at now and then, and answered by a kill."""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from allotment.backends.local.runner import procfs, scratch

PERIOD_S: Final = 0.25
DISK_PERIOD_S: Final = 1.0
_SHARE_OF_TIME: Final = 20


class Finding(NamedTuple):
    """A limit that was passed: memory, disk or pids, and a sentence for the status."""

    limit: str
    cause: str


def memory(init_pid: int, limit_bytes: int) -> Finding | None:
    """Compare the memory of all processes of a task with its limit.

    Resident sets count shared pages once per process; only when their sum is too much is
    the exact and slow question asked.
    """
    below = procfs.descendants(init_pid)
    if sum(found.rss_bytes for found in below.values()) <= limit_bytes:
        return None
    used = sum(procfs.proportional_bytes(pid) for pid in below)
    if used <= limit_bytes:
        return None
    return Finding("memory", f"used {used} bytes of memory; the limit is {limit_bytes}")


def pids(init_pid: int, limit: int) -> Finding | None:
    """Compare the number of processes of a task with its limit."""
    count = len(procfs.descendants(init_pid))
    if count <= limit:
        return None
    return Finding("pids", f"ran {count} processes; the limit is {limit}")


def disk(root: int | None, names: Sequence[str], limit_bytes: int) -> Finding | None:
    """Compare what lies in the scratch folder, and was written to the image, with its limit."""
    used = sum(scratch.used_bytes(root, name) for name in names)
    if used >= sys.maxsize:
        return Finding("disk", "nested folders in its scratch space too deeply to be measured")
    if used <= limit_bytes:
        return None
    return Finding("disk", f"used {used} bytes of scratch space; the limit is {limit_bytes}")


def next_period_s(period_s: float, took_s: float) -> float:
    """Look less often when looking takes long: at most a twentieth of the time."""
    return max(period_s, took_s * _SHARE_OF_TIME)
