"""Control groups, version 2: one group for all controllers."""

import os

from allotment.backends.local.runner.cgroup import RUNNER, Counts, Group, GroupLimits
from allotment.backends.local.runner.cgroup_files import (
    make_dir,
    members,
    number_after,
    open_to_write,
    read,
    write,
)


class GroupV2(Group):
    """One group for all controllers."""

    version = "v2"

    def __init__(self, base: str, controllers: list[str], key: str) -> None:
        super().__init__()
        self.controllers = [*controllers, "freezer"]
        self._base = base
        self._dir = f"{base}/{key}"

    def create(self, limits: GroupLimits) -> None:
        make_dir(self._dir)
        if self.has("cpu") and limits.cpu_milli:
            # cpu.weight runs from 1 to 10000 with 100 in the middle: one CPU weighs 100.
            write(f"{self._dir}/cpu.weight", min(10_000, max(1, limits.cpu_milli // 10)))
            if limits.cpu_ceiling:
                write(f"{self._dir}/cpu.max", f"{max(1000, limits.cpu_milli * 100)} 100000")
        if self.has("memory") and limits.memory_bytes:
            write(f"{self._dir}/memory.max", limits.memory_bytes)
            if os.path.exists(f"{self._dir}/memory.swap.max"):
                write(f"{self._dir}/memory.swap.max", 0)
        if self.has("pids") and limits.pids:
            write(f"{self._dir}/pids.max", limits.pids)

    def open_doors(self) -> list[int]:
        return [open_to_write(f"{self._dir}/cgroup.procs")]

    def leave(self) -> None:
        write(f"{self._base}/{RUNNER}/cgroup.procs", 0)

    def dirs(self) -> list[str]:
        return [self._dir]

    def pids(self) -> list[int]:
        return members(self._dir)

    def set_frozen(self, frozen: bool) -> bool:
        write(f"{self._dir}/cgroup.freeze", int(frozen))
        return True

    def is_frozen(self) -> bool:
        return number_after(read(f"{self._dir}/cgroup.events"), "frozen") == 1

    def _kill_members(self) -> None:
        try:
            write(f"{self._dir}/cgroup.kill", 1)
        except OSError:  # before Linux 5.14
            super()._kill_members()

    def count(self) -> Counts:
        counts = Counts()
        counts.oom_kills = number_after(read(f"{self._dir}/memory.events"), "oom_kill")
        counts.peak_memory_bytes = int(read(f"{self._dir}/memory.peak") or 0)
        counts.pids_limit_hit = number_after(read(f"{self._dir}/pids.events"), "max") > 0
        return counts

    def count_throttled(self) -> int:
        return number_after(read(f"{self._dir}/cpu.stat"), "throttled_usec") // 1000

    def remove(self) -> None:
        self.remove_dir(self._dir)
