"""Control groups: limits around one task, and what they counted.

Groups lie under `allotment/<hash of the state folder>/` and are removed with their task.
A controller that may not be used is left out and named, never an error: what is in force
is data, and what is not is done by other means (see watch.py).
"""

import contextlib
import os
import signal
import time
from typing import Final, Protocol

WANTED: Final = ("cpu", "memory", "pids", "devices", "freezer")
RUNNER: Final = "runner"
"""The group of the launcher and the supervisors."""
JOIN: Final = b"0"
_KILL_ROUNDS: Final = 200
_KILL_PAUSE_S: Final = 0.01


class GroupLimits(Protocol):
    """The amounts a group can enforce; 0 is no limit."""

    @property
    def cpu_milli(self) -> int: ...

    @property
    def cpu_ceiling(self) -> bool: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def pids(self) -> int: ...


class Counts:
    """What a group can tell after its task ended; zero where no controller counts."""

    __slots__ = ("oom_kills", "peak_memory_bytes", "pids_limit_hit")

    def __init__(self) -> None:
        self.oom_kills = 0
        self.pids_limit_hit = False
        self.peak_memory_bytes = 0


class Group:
    """The groups of one task: here none at all, the case the others refine."""

    version = "none"

    def __init__(self) -> None:
        self.controllers: list[str] = []

    def create(self, limits: GroupLimits) -> None:
        """Make the groups. Raises OSError when one cannot be made or limited."""

    def open_doors(self) -> list[int]:
        """Open a file for each group: a process that writes JOIN to all of them moves in."""
        return []

    def leave(self) -> None:
        """Move the calling process back to where the runner's own processes are."""

    def has(self, controller: str) -> bool:
        return controller in self.controllers

    def dirs(self) -> list[str]:
        """List the folders of the groups, shared ones included."""
        return []

    def pids(self) -> list[int]:
        return []

    def set_frozen(self, frozen: bool) -> bool:
        """Ask the freezer; False when there is none. Freezing takes effect soon after."""
        return False

    def is_frozen(self) -> bool:
        return False

    def kill(self) -> None:
        """Kill every member, also those forked meanwhile. Returns when none is left.

        Gives up after two seconds, when something sleeps where no signal reaches it.
        """
        for _ in range(_KILL_ROUNDS):
            if not self.pids():
                return
            self._kill_members()
            time.sleep(_KILL_PAUSE_S)

    def _kill_members(self) -> None:
        """Freezing first stops a fork bomb from outrunning us; SIGKILL works on the thaw."""
        self._try_freeze(frozen=True)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._try_freeze(frozen=False)

    def _try_freeze(self, *, frozen: bool) -> None:
        with contextlib.suppress(OSError):
            self.set_frozen(frozen)

    def count(self) -> Counts:
        return Counts()

    def count_throttled(self) -> int:
        """Return the milliseconds for which the CPU ceiling held the task back."""
        return 0

    def remove(self) -> None:
        """Remove the groups, killing what is left in them. Never raises."""

    def remove_dir(self, path: str) -> None:
        """Remove one folder: busy while a member is left, or a dead one not accounted for."""
        for _ in range(_KILL_ROUNDS):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                return
            except OSError:
                self.kill()
                time.sleep(_KILL_PAUSE_S)
            else:
                return
