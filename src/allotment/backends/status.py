"""What the first process of a task writes of it, in status.json, and what that means.

The supervisor of this machine and the runner inside a Slurm job write the same words.
"""

import msgspec

from allotment.model.diagnosis import Exit, Usage
from allotment.model.events import Phase
from allotment.model.ids import TaskKey
from allotment.model.quantity import Instant, Millis
from allotment.model.reports import Seen, TaskReport


class Span(msgspec.Struct, frozen=True):
    """A named part of starting, as the supervisor writes it."""

    name: str
    start_ms: int
    end_ms: int


class RunnerUsage(msgspec.Struct, frozen=True):
    """What a task used, as the supervisor writes it."""

    wall_ms: int = 0
    cpu_user_ms: int = 0
    cpu_system_ms: int = 0
    max_rss_bytes: int = 0
    peak_memory_bytes: int = 0


class RunnerStatus(msgspec.Struct, frozen=True):
    """What we read of status.json; what a newer runner adds is passed over."""

    phase: str
    pid: int = 0
    phases: tuple[Span, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    pids_limit_hit: bool = False
    disk_limit_hit: bool = False
    platform_error: str = ""
    lost: bool = False
    ended_by: str = ""
    usage: RunnerUsage = RunnerUsage()
    log_dropped: dict[str, int] = {}


_decoder = msgspec.json.Decoder(RunnerStatus)


def status_from(data: bytes) -> RunnerStatus | None:
    """Read a status; None when it is none."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


SEEN = {
    "ready": Seen.READY,
    "running": Seen.RUNNING,
    "holding": Seen.HOLDING,
    "ended": Seen.ENDED,
}


def report_of(key: TaskKey, status: RunnerStatus) -> TaskReport | None:
    """Turn a status into a report; None while the task is only being prepared."""
    seen = SEEN.get(status.phase)
    if seen is None:
        return None
    phases = tuple(
        Phase(span.name, Instant(span.start_ms), Millis(max(0, span.end_ms - span.start_ms)))
        for span in status.phases
        if span.end_ms
    )
    over = seen in (Seen.ENDED, Seen.HOLDING)
    return TaskReport(key, seen, status.pid, phases, _exit(status) if over else None)


def _exit(status: RunnerStatus) -> Exit:
    used = status.usage
    return Exit(
        code=status.exit_code,
        signal=status.signal,
        oom=status.oom,
        pids_limit_hit=status.pids_limit_hit,
        disk_limit_hit=status.disk_limit_hit,
        platform_error=status.platform_error,
        lost=status.lost,
        log_dropped=sum(status.log_dropped.values()),
        usage=Usage(
            wall_ms=Millis(used.wall_ms),
            cpu_user_ms=Millis(used.cpu_user_ms),
            cpu_system_ms=Millis(used.cpu_system_ms),
            max_rss=max(used.max_rss_bytes, used.peak_memory_bytes),
        ),
    )
