"""Control groups, version 1 or 2: limits around one task, and what they counted.

Groups lie under `allotment/<hash of the state folder>/` and are removed with their task.
A controller that may not be used is left out and named, never an error: what is in force
is data, and what is not is done by other means (see watch.py).
"""

import os
import signal
import time
from typing import Final, Protocol

from allotment.backends.local.runner import procfs

WANTED: Final = ("cpu", "memory", "pids", "devices", "freezer")
SHARED_DEVICES: Final = "no-devices"
"""The v1 group of all tasks without devices: it limits, and counts nothing."""
RUNNER: Final = "runner"
"""The group of the launcher and the supervisors."""
_KILL_ROUNDS: Final = 200
_KILL_PAUSE_S: Final = 0.01


class Limits(Protocol):
    """The amounts a group can enforce; 0 is no limit."""

    @property
    def cpu_milli(self) -> int: ...

    @property
    def cpu_ceiling(self) -> bool: ...

    @property
    def memory_bytes(self) -> int: ...


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

    def create(self, limits: Limits) -> None:
        """Make the groups. Raises OSError when one cannot be made or limited."""

    def join(self) -> None:
        """Move the calling process in, so that what it starts is born there."""

    def leave(self) -> None:
        """Move the calling process back to where the runner's own processes are."""

    def limit_pids(self, most: int) -> None:
        """Limit the number of processes; 0 leaves it as it is."""

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
        """Kill every member, also those forked meanwhile. Returns when none is left."""

    def count(self) -> Counts:
        return Counts()

    def count_throttled(self) -> int:
        """Give the milliseconds for which the CPU ceiling held the task back."""
        return 0

    def remove(self) -> None:
        """Remove the groups, killing what is left in them. Never raises."""


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

    def create(self, limits: Limits) -> None:
        for name, path in self._dirs.items():
            if name != "devices" or not self._shares_devices:
                _make_dir(path)
        if "cpu" in self._dirs and limits.cpu_milli:
            write(f"{self._dirs['cpu']}/cpu.shares", max(2, limits.cpu_milli * 1024 // 1000))
            if limits.cpu_ceiling:
                # The period is the default, 100 ms.
                write(
                    f"{self._dirs['cpu']}/cpu.cfs_quota_us", max(1000, limits.cpu_milli * 100)
                )
        if "memory" in self._dirs and limits.memory_bytes:
            self._limit_memory(limits.memory_bytes)
        if "devices" in self._dirs and self._devices:
            allow_only(self._dirs["devices"], self._devices)

    def _limit_memory(self, amount: int) -> None:
        path = self._dirs["memory"]
        write(f"{path}/memory.limit_in_bytes", amount)
        with_swap = f"{path}/memory.memsw.limit_in_bytes"
        if os.path.exists(with_swap):
            write(with_swap, amount)

    def join(self) -> None:
        # `tasks` with 0, the calling thread, needs no machine-wide lock; `cgroup.procs`
        # does, and waits for it some 20 ms on an idle machine. We have one thread.
        for path in self._dirs.values():
            write(f"{path}/tasks", 0)

    def leave(self) -> None:
        for base in self._bases.values():
            write(f"{base}/{RUNNER}/tasks", 0)

    def limit_pids(self, most: int) -> None:
        if "pids" in self._dirs and most:
            write(f"{self._dirs['pids']}/pids.max", most)

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

    def kill(self) -> None:
        # Freezing first stops a fork bomb from outrunning the loop; SIGKILL takes effect
        # on the thaw.
        for _ in range(_KILL_ROUNDS):
            if not self.pids():
                return
            _try_freeze(self, frozen=True)
            for pid in self.pids():
                _kill_one(pid)
            _try_freeze(self, frozen=False)
            time.sleep(_KILL_PAUSE_S)

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
            _remove_dir(path, self)


class GroupV2(Group):
    """One group for all controllers."""

    version = "v2"

    def __init__(self, base: str, controllers: list[str], key: str) -> None:
        super().__init__()
        self.controllers = [*controllers, "freezer"]
        self._base = base
        self._dir = f"{base}/{key}"

    def create(self, limits: Limits) -> None:
        _make_dir(self._dir)
        if self.has("cpu") and limits.cpu_milli:
            # cpu.weight runs from 1 to 10000 with 100 in the middle: one CPU weighs 100.
            write(f"{self._dir}/cpu.weight", min(10_000, max(1, limits.cpu_milli // 10)))
            if limits.cpu_ceiling:
                write(f"{self._dir}/cpu.max", f"{max(1000, limits.cpu_milli * 100)} 100000")
        if self.has("memory") and limits.memory_bytes:
            write(f"{self._dir}/memory.max", limits.memory_bytes)
            if os.path.exists(f"{self._dir}/memory.swap.max"):
                write(f"{self._dir}/memory.swap.max", 0)

    def join(self) -> None:
        write(f"{self._dir}/cgroup.procs", 0)

    def leave(self) -> None:
        write(f"{self._base}/{RUNNER}/cgroup.procs", 0)

    def limit_pids(self, most: int) -> None:
        if self.has("pids") and most:
            write(f"{self._dir}/pids.max", most)

    def dirs(self) -> list[str]:
        return [self._dir]

    def pids(self) -> list[int]:
        return members(self._dir)

    def set_frozen(self, frozen: bool) -> bool:
        write(f"{self._dir}/cgroup.freeze", int(frozen))
        return True

    def is_frozen(self) -> bool:
        return number_after(read(f"{self._dir}/cgroup.events"), "frozen") == 1

    def kill(self) -> None:
        for _ in range(_KILL_ROUNDS):
            if not self.pids():
                return
            try:
                write(f"{self._dir}/cgroup.kill", 1)
            except OSError:  # before Linux 5.14
                _try_freeze(self, frozen=True)
                for pid in self.pids():
                    _kill_one(pid)
                _try_freeze(self, frozen=False)
            time.sleep(_KILL_PAUSE_S)

    def count(self) -> Counts:
        counts = Counts()
        counts.oom_kills = number_after(read(f"{self._dir}/memory.events"), "oom_kill")
        counts.peak_memory_bytes = int(read(f"{self._dir}/memory.peak") or 0)
        counts.pids_limit_hit = number_after(read(f"{self._dir}/pids.events"), "max") > 0
        return counts

    def count_throttled(self) -> int:
        return number_after(read(f"{self._dir}/cpu.stat"), "throttled_usec") // 1000

    def remove(self) -> None:
        _remove_dir(self._dir, self)


def write(path: str, value: str | int) -> None:
    """Write to a control file. The error names the file and the value."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(
            error.errno, f"cgroup: cannot write {value!r} to {path}: {error.strerror}"
        ) from error


def read(path: str) -> str:
    """Read a control file; empty when there is none."""
    try:
        return procfs.read(path)
    except OSError:
        return ""


def members(path: str) -> list[int]:
    """List the processes of a group."""
    return [int(pid) for pid in read(f"{path}/cgroup.procs").split()]


def number_after(text: str, name: str) -> int:
    """Find the line `name NUMBER` in a flat control file; 0 when there is none."""
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == name and rest.strip().isdigit():
            return int(rest)
    return 0


def deny_accelerators(path: str) -> None:
    """Deny every accelerator in a v1 devices group."""
    for major in _accelerator_majors():
        write(f"{path}/devices.deny", f"c {major}:* rwm")


def allow_only(path: str, devices: list[str]) -> None:
    """Deny every accelerator but these device files in a v1 devices group.

    What is denied as a whole major cannot be allowed in part. So all is denied, and then
    all but accelerators is allowed, driver by driver, and these.
    """
    write(f"{path}/devices.deny", "a")
    accelerators = _accelerator_majors()
    rules = [f"c {major}:* rwm" for major in _character_majors() if major not in accelerators]
    for device in devices:
        number = os.stat(device).st_rdev
        rules.append(f"c {os.major(number)}:{os.minor(number)} rwm")
    for rule in ("b *:* rwm", "c *:* m", *rules):
        write(f"{path}/devices.allow", rule)


_FIXED_MAJORS: Final = (195, 226)
"""Those of NVIDIA and of DRM; other drivers' are in /proc/devices."""
_DRIVERS: Final = ("nvidia", "kfd", "accel", "habanalabs")


def _accelerator_majors() -> set[int]:
    found = _character_majors()
    return {*_FIXED_MAJORS, *(major for major in found if found[major].startswith(_DRIVERS))}


def _character_majors() -> dict[int, str]:
    """Read the drivers of character devices from /proc/devices, by major number."""
    found: dict[int, str] = {}
    for line in read("/proc/devices").partition("Block devices")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdigit():
            found[int(number)] = name
    return found


def _make_dir(path: str) -> None:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        # Left behind by a supervisor that was killed. The claim says that nobody else
        # uses this key.
        return
    except OSError as error:
        raise OSError(error.errno, f"cgroup: cannot make {path}: {error.strerror}") from error


def _remove_dir(path: str, group: Group) -> None:
    for _ in range(_KILL_ROUNDS):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            # Busy: a member is left, or a dead one is still being accounted for.
            group.kill()
            time.sleep(_KILL_PAUSE_S)
        else:
            return


def _try_freeze(group: Group, *, frozen: bool) -> None:
    try:
        group.set_frozen(frozen)
    except OSError:
        return


def _kill_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
