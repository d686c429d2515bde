"""Why something ended as it did, in words a person can act on."""

from enum import StrEnum

import msgspec

from allotment.model.quantity import Millis


class Owner(StrEnum):
    """The side that can solve it."""

    USER = "user"
    PLATFORM = "platform"
    HARDWARE = "hardware"


class RetryClass(StrEnum):
    """Whether trying again can help."""

    NEVER = "never"
    """It would end the same way: the program is missing, its own limit is too low."""
    PLATFORM = "platform"
    """Not the job's fault: tried again, up to the platform's cap, without using its retries."""
    UNKNOWN = "unknown"
    """May help: up to the job's own `retry`."""


class Diagnosis(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding. `code` is stable, for programs; the rest is for people."""

    code: str
    cause: str
    owner: Owner
    retry: RetryClass
    advice: str = ""
    evidence: str = ""
    """The line of log or the number that shows it."""


class GpuUse(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The highest use of a task's devices that was seen, all of them together."""

    busy_milli: int = 0
    """Thousandths of one device."""
    memory: int = 0
    """Bytes."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one task used, as its operating system counted."""

    wall_ms: Millis = Millis(0)
    cpu_user_ms: Millis = Millis(0)
    cpu_system_ms: Millis = Millis(0)
    max_rss: int = 0
    """Bytes."""
    gpu: GpuUse | None = None
    """None where it was not looked for."""


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one task's process ended. `code` and `signal` are None where they do not apply."""

    code: int | None = None
    signal: int | None = None
    oom: bool = False
    pids_limit_hit: bool = False
    disk_limit_hit: bool = False
    platform_error: str = ""
    """Not empty when the task was never run properly: what could not be done, and why."""
    lost: bool = False
    """Its supervisor or machine was lost; its end is not known."""
    log_dropped: int = 0
    """Bytes of output beyond the log's cap, not kept."""
    usage: Usage = Usage()

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.platform_error and not self.lost
