"""What the first process of a task writes of it, in status.json, and what that means.

The supervisor of this machine and the runner inside a Slurm job write the same words. Inside a
Slurm job the file is the user's, who may write anything: what is out of bounds is no status.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.model.diagnosis import Exit, Usage
from allotment.model.events import Phase
from allotment.model.ids import TaskKey
from allotment.model.quantity import Instant, Millis
from allotment.model.reports import Seen, TaskReport

Pid = Annotated[int, Meta(ge=0, le=2**31)]
Code = Annotated[int, Meta(ge=0, le=255)]
Amount = Annotated[int, Meta(ge=0, le=2**53)]
"""A time or a size: the event log holds a thousand of them added up."""
MOST_WORDS = 2000


class Span(msgspec.Struct, frozen=True):
    """A named part of starting, as the supervisor writes it."""

    name: Annotated[str, Meta(max_length=100)]
    start_ms: Amount
    end_ms: Amount


class RunnerUsage(msgspec.Struct, frozen=True):
    """What a task used, as the supervisor writes it."""

    wall_ms: Amount = 0
    cpu_user_ms: Amount = 0
    cpu_system_ms: Amount = 0
    max_rss_bytes: Amount = 0
    peak_memory_bytes: Amount = 0


class PauseSaid(msgspec.Struct, frozen=True):
    """What a supervisor says of the ranks of its task, and how they stand after a step."""

    heard: int = 0
    """The number of the order that it answers."""
    state: str = ""
    count: Amount = 0
    world: Amount = 0
    frees: bool = False
    step: Amount = 0
    step_ns: Amount = 0
    devices: Annotated[str, Meta(max_length=4096)] = ""
    """The indexes of its devices, such as `0,2`."""


class RunnerStatus(msgspec.Struct, frozen=True):
    """What we read of status.json; what a newer runner adds is passed over."""

    phase: str
    pid: Pid = 0
    supervisor_pid: Pid = 0
    phases: Annotated[tuple[Span, ...], Meta(max_length=64)] = ()
    exit_code: Code | None = None
    signal: Code | None = None
    oom: bool = False
    pids_limit_hit: bool = False
    disk_limit_hit: bool = False
    platform_error: str = ""
    lost: bool = False
    ended_by: str = ""
    usage: RunnerUsage = RunnerUsage()
    log_dropped: Annotated[dict[str, Amount], Meta(max_length=2)] = {}
    """Bytes by stream."""
    frozen: bool = False
    pause: PauseSaid | None = None
    lingering: Annotated[str, Meta(max_length=1000)] = ""
    """Which processes were killed and do not die."""
    devices_got: str = ""
    """Indexes, such as `0,2` or `0-1`, where the engine chose them."""


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
    return TaskReport(
        key, seen, status.pid, phases, _exit(status) if over else None,
        devices=indexes_in(status.devices_got),
        held_up="" if over else _held_up(status.lingering),
    )  # fmt: skip


def _held_up(lingering: str) -> str:
    """Return that what was killed still has the task's devices; '' where nothing has."""
    return f"it keeps its place until what was killed is dead: {lingering}" if lingering else ""


MOST_DEVICES = 1024


def indexes_in(text: str) -> tuple[int, ...]:
    """Read `0,2-3`; nothing where it is something else."""
    found: list[int] = []
    for part in text[:MOST_DEVICES].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) >= MOST_DEVICES:
            return ()
        found += range(int(first), int(last) + 1)
    return tuple(found)


def _exit(status: RunnerStatus) -> Exit:
    used = status.usage
    return Exit(
        code=status.exit_code,
        signal=status.signal,
        oom=status.oom,
        pids_limit_hit=status.pids_limit_hit,
        disk_limit_hit=status.disk_limit_hit,
        platform_error=status.platform_error[:MOST_WORDS],
        lost=status.lost,
        log_dropped=sum(status.log_dropped.values()),
        usage=Usage(
            wall_ms=Millis(used.wall_ms),
            cpu_user_ms=Millis(used.cpu_user_ms),
            cpu_system_ms=Millis(used.cpu_system_ms),
            max_rss=max(used.max_rss_bytes, used.peak_memory_bytes),
        ),
    )
