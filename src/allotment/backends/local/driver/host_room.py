"""How much host memory a process may still take: the driver copies device memory into it.

The driver's copy counts as the process's own (measured with driver 580: its resident set grows
by what it had on the device), so it is bounded by the memory of its task, too.
"""

from pathlib import Path

V2, V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


def room_of(pid: int) -> int:
    """Return the bytes that a process may still take: of the machine's, and of its group's."""
    rooms = [_available()]
    for line in _text(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        inside = path.strip("/")
        if not controllers:
            rooms.append(_left(V2 / inside, "memory.max", "memory.current", "file"))
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"
            rooms.append(_left(V1 / inside, *names))
    return max(0, min(rooms))


def _left(group: Path, limit: str, used: str, cache: str) -> int:
    """Return what a group's limit leaves it, its page cache not counted."""
    most = _text(group / limit).strip()
    if not most.isdecimal():
        return _available()
    stat = dict(line.split() for line in _text(group / "memory.stat").splitlines())
    return int(most) - int(_text(group / used) or 0) + int(stat.get(cache, 0))


def _available() -> int:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
