"""The one place that reads the machine's clocks.

Time is counted by the machine's uptime, sleep included: it never goes back and never jumps.
Where it began is the wall clock's business: that of the first start, and after a boot that of
the wall clock again. What began under this boot is kept beside the event log, so that a
service that was away knows how long, whatever was done to the wall clock meanwhile. Without
that file, or after a boot, the wall clock is believed, but never back before the log's end.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from allotment.model.quantity import Instant, WallTime
from allotment.rights.writing import write_whole

FILE = "clock.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NANO = 1_000_000


class Anchor(msgspec.Struct, frozen=True):
    """When the machine was booted, in the service's time."""

    boot: str
    booted_at: int


def read_wall_ms() -> int:
    """Return the wall clock, in milliseconds since the epoch."""
    return time.time_ns() // NANO


def read_uptime_ms() -> int:
    """Return the time since the machine was booted, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // NANO


def read_boot() -> str:
    """Return the id of this boot; '' where the kernel has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class SteadyClock:
    """Time that goes on evenly; and the wall clock, which people set."""

    def __init__(
        self,
        folder: Path | None = None,
        wall_ms: Callable[[], int] = read_wall_ms,
        uptime_ms: Callable[[], int] = read_uptime_ms,
        boot: Callable[[], str] = read_boot,
    ) -> None:
        self._file = folder / FILE if folder is not None else None
        self._wall_ms, self._uptime_ms, self._boot = wall_ms, uptime_ms, boot()
        self._booted_at = wall_ms() - uptime_ms()

    def begin(self, last: Instant, ahead_ms: int) -> None:
        """Go on after `last`, when the wall clock was `ahead_ms` ahead of this one."""
        kept = self._kept()
        if kept is not None and kept.boot and kept.boot == self._boot:
            self._booted_at = kept.booted_at
        else:
            self._booted_at = self._wall_ms() - ahead_ms - self._uptime_ms()
        self._booted_at = max(self._booted_at, last - self._uptime_ms())
        self._keep(Anchor(self._boot, self._booted_at))

    def now(self) -> Instant:
        """Return the time, in milliseconds."""
        return Instant(self._booted_at + self._uptime_ms())

    def wall(self) -> WallTime:
        """Return the wall clock, in milliseconds since the epoch."""
        return WallTime(self._wall_ms())

    def _kept(self) -> Anchor | None:
        if self._file is None:
            return None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Anchor)
        except (OSError, msgspec.MsgspecError):
            return None

    def _keep(self, anchor: Anchor) -> None:
        """Replace the file; without it the wall clock is believed at the next start."""
        if self._file is None or self._kept() == anchor:
            return
        with suppress(OSError):
            write_whole(self._file, msgspec.json.encode(anchor))
