"""Control groups, version 1: a hierarchy, and a group in it, for each controller."""

import os
from typing import Final

from allotment.backends.local.runner.cgroup import RUNNER, Counts, Group, GroupLimits
from allotment.backends.local.runner.cgroup_files import (
    make_dir,
    members,
    number_after,
    open_to_write,
    read,
    write,
)
from allotment.backends.local.runner.devices import allow_only

SHARED_DEVICES: Final = "no-devices"
"""The group of all tasks without devices: it denies them, and counts nothing."""


class GroupV1(Group):
    """One group per controller, each in its own hierarchy."""

    version = "v1"

    def __init__(self, bases: dict[str, str], key: str, devices: list[str]) -> None:
        super().__init__()
        self.controllers = list(bases)
        self._bases = bases
        self._dirs = {name: f"{base}/{key}" for name, base in bases.items()}
        self._shares_devices = "devices" in bases and not devices
        if self._shares_devices:
            self._dirs["devices"] = f"{bases['devices']}/{SHARED_DEVICES}"
        self._devices = devices

    def create(self, limits: GroupLimits) -> None:
        for name, path in self._dirs.items():
            if name != "devices" or not self._shares_devices:
                make_dir(path)
        if "cpu" in self._dirs and limits.cpu_milli:
            write(f"{self._dirs['cpu']}/cpu.shares", max(2, limits.cpu_milli * 1024 // 1000))
            if limits.cpu_ceiling:
                # The period is the default, 100 ms.
                write(
                    f"{self._dirs['cpu']}/cpu.cfs_quota_us", max(1000, limits.cpu_milli * 100)
                )
        if "memory" in self._dirs and limits.memory_bytes:
            self._limit_memory(limits.memory_bytes)
        if "pids" in self._dirs and limits.pids:
            write(f"{self._dirs['pids']}/pids.max", limits.pids)
        if "devices" in self._dirs and self._devices:
            allow_only(self._dirs["devices"], self._devices)

    def _limit_memory(self, amount: int) -> None:
        path = self._dirs["memory"]
        write(f"{path}/memory.limit_in_bytes", amount)
        with_swap = f"{path}/memory.memsw.limit_in_bytes"
        if os.path.exists(with_swap):
            write(with_swap, amount)

    def open_doors(self) -> list[int]:
        # `tasks` with 0, the calling thread, needs no machine-wide lock; `cgroup.procs`
        # does, and waits for it some 20 ms on an idle machine. Who joins has one thread.
        return [open_to_write(f"{path}/tasks") for path in self._dirs.values()]

    def leave(self) -> None:
        for base in self._bases.values():
            write(f"{base}/{RUNNER}/tasks", 0)

    def dirs(self) -> list[str]:
        return list(self._dirs.values())

    def _own_dirs(self) -> list[str]:
        return [
            path
            for name, path in self._dirs.items()
            if name != "devices" or not self._shares_devices
        ]

    def pids(self) -> list[int]:
        dirs = self._own_dirs()
        return members(dirs[0]) if dirs else []

    def set_frozen(self, frozen: bool) -> bool:
        if "freezer" not in self._dirs:
            return False
        write(f"{self._dirs['freezer']}/freezer.state", "FROZEN" if frozen else "THAWED")
        return True

    def is_frozen(self) -> bool:
        state = (
            read(f"{self._dirs['freezer']}/freezer.state") if "freezer" in self._dirs else ""
        )
        return state.strip() == "FROZEN"

    def count(self) -> Counts:
        counts = Counts()
        if path := self._dirs.get("memory"):
            counts.oom_kills = number_after(read(f"{path}/memory.oom_control"), "oom_kill")
            counts.peak_memory_bytes = int(read(f"{path}/memory.max_usage_in_bytes") or 0)
        if path := self._dirs.get("pids"):
            counts.pids_limit_hit = number_after(read(f"{path}/pids.events"), "max") > 0
        return counts

    def count_throttled(self) -> int:
        path = self._dirs.get("cpu")
        text = read(f"{path}/cpu.stat") if path else ""
        return number_after(text, "throttled_time") // 1_000_000

    def remove(self) -> None:
        for path in self._own_dirs():
            self.remove_dir(path)
