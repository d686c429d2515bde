"""What `allot doctor` says of queues whose jobs take turns, and of jobs that do not bear it.

Only what can be known here is looked at: the variables by which a job set a time-out. That of a
process group is in the job's own code. Keep-alives of TCP are answered by the kernel, also for
processes that are frozen.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from allotment.cli.doctor_finding import Finding, Level
from allotment.client import ApiError, Client, Unreachable
from allotment.model.quantity import Millis, show_millis

CONFIG = "config.yaml"
PATIENCE_S = 5.0
MOST_JOBS = 100
_DIGITS = 12
"""A number that is longer is no short time."""
LIVE = ("queued", "starting", "running", "suspended")
TIMEOUTS_MS = {
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": 1_000,
    "DEEPSPEED_TIMEOUT": 60_000,
}
"""Variables that set after how long a job gives up on what stands still, and their units."""
BEAR = (
    "A job stands still while others have their turns. Time-outs in its code (that of "
    "init_process_group, torchrun's keep-alive) must allow for that: docs/scheduling.md."
)
LONGER = "Unset it, or set it to much more than the turns of all jobs on its devices."


def turns(folder: Path) -> list[Finding]:
    """Return how long turns are, and whose time-outs are shorter; nothing without turns."""
    path = folder / CONFIG
    if not path.exists():
        return []
    from allotment.wire.config import slices_in  # noqa: PLC0415 - only here

    slices = slices_in(path.read_bytes(), source=str(path))
    if not slices:
        return []
    text = ", ".join(f"{queue} {show_millis(ms)}" for queue, ms in sorted(slices.items()))
    return [
        Finding("turns", Level.NOTE, f"jobs take turns: {text}", BEAR),
        *_jobs(folder, slices),
    ]


def _jobs(folder: Path, slices: Mapping[str, Millis]) -> Iterator[Finding]:
    """Name jobs with a time-out that is shorter than a turn, as far as they may be read."""
    try:
        with Client(state=str(folder), timeout=PATIENCE_S) as client:
            for row in client.jobs(states=LIVE, limit=MOST_JOBS):
                turn_ms = slices.get(f"{row.tenant}/{row.queue}", 0)
                env = client.job(row.id).spec.get("env") if turn_ms else None
                for name, ms in sorted(short_timeouts(env, turn_ms).items()):
                    text = f"job {row.id}: {name} is {show_millis(ms)}, a turn is "
                    text += f"{show_millis(turn_ms)}: it may end when it resumes"
                    yield Finding("turns", Level.WARN, text, LONGER)
    except (ApiError, Unreachable):
        return  # Another check says what is wrong with the service.


def short_timeouts(env: object, turn_ms: int) -> dict[str, Millis]:
    """Return which time-outs among a job's variables are no longer than one turn."""
    if not isinstance(env, dict):
        return {}
    told = cast("dict[str, object]", env)
    found: dict[str, Millis] = {}
    for name, unit_ms in TIMEOUTS_MS.items():
        said = str(told.get(name, "")).strip()
        if said.isdecimal() and len(said) < _DIGITS and 0 < int(said) * unit_ms <= turn_ms:
            found[name] = Millis(int(said) * unit_ms)
    return found
