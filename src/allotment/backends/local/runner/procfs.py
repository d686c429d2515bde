"""What /proc says of processes: which live, since when, and below which parent."""

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_DEAD: Final = "ZXx"


class Stat(NamedTuple):
    """A part of /proc/PID/stat. Times are in clock ticks: `start_time` since boot, and
    `cpu_time` that of the process and of its children that are gone."""

    name: str
    state: str
    ppid: int
    session: int
    start_time: int
    rss_bytes: int
    cpu_time: int


def read(path: str, dir_fd: int | None = None) -> str:
    """Read a small file of the kernel's at once."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    finally:
        os.close(fd)


def stat(pid: int | str) -> Stat | None:
    """Look up a process; None when there is none of that number."""
    try:
        text = read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in parentheses and may itself hold some.
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 2 :].split()
    if len(fields) < 22:
        return None
    return Stat(
        name=text[start + 1 : end],
        state=fields[0],
        ppid=int(fields[1]),
        session=int(fields[3]),
        start_time=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        cpu_time=sum(map(int, fields[11:15])),
    )


def own_pid(proc: int) -> int:
    """Return our number in the PID namespace of the /proc that is open as `proc`."""
    return int(os.readlink("self", dir_fd=proc))


def only_child(pid: int, proc: int) -> int:
    """Return the number of the first child of `pid`, both as that /proc counts; 0 for none."""
    try:
        return int(read(f"{pid}/task/{pid}/children", proc).split()[0])
    except (OSError, IndexError):
        return 0


def start_time_in(pid: int, proc: int) -> int:
    """Like `start_time`, in another PID namespace's /proc."""
    try:
        return int(read(f"{pid}/stat", proc).rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def start_time(pid: int | str) -> int:
    """Return the start of a living process, 0 for none; a zombie does not live."""
    found = stat(pid)
    return 0 if found is None or found.state in _DEAD else found.start_time


def boot_id() -> str:
    """Return what tells this boot of the machine from every other."""
    return read("/proc/sys/kernel/random/boot_id").strip()


def pids() -> list[int]:
    """List all processes that can be seen, the dead ones included."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> list[int]:
    """Return the living children of a process, of all its threads."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        found = [read(f"/proc/{pid}/task/{task}/children") for task in tasks]
    except FileNotFoundError:
        # Gone, or a kernel without CONFIG_PROC_CHILDREN.
        return [other for other in pids() if _is_child(other, pid)]
    except OSError:
        return []
    return [child for text in found for child in map(int, text.split()) if start_time(child)]


def _is_child(pid: int, parent: int) -> bool:
    found = stat(pid)
    return found is not None and found.ppid == parent and found.state not in _DEAD


def descendants(root: int) -> dict[int, Stat]:
    """Return every living process below `root`, without it. One pass over /proc."""
    by_parent: defaultdict[int, list[tuple[int, Stat]]] = defaultdict(list)
    for pid in pids():
        found = stat(pid)
        if found is not None:
            by_parent[found.ppid].append((pid, found))
    below: dict[int, Stat] = {}
    open_ends = [root]
    while open_ends:
        for pid, found in by_parent.get(open_ends.pop(), ()):
            open_ends.append(pid)
            if found.state not in _DEAD:
                below[pid] = found
    return below


def everything() -> tuple[dict[int, Stat], Mapping[int, list[int]]]:
    """Return every process, and the children of each, the dead ones included."""
    stats: dict[int, Stat] = {}
    below: defaultdict[int, list[int]] = defaultdict(list)
    for pid in pids():
        if (found := stat(pid)) is not None:
            stats[pid] = found
            below[found.ppid].append(pid)
    return stats, below


def family(root: int, below: Mapping[int, list[int]]) -> list[int]:
    """Return a process and all below it, of what `everything` found."""
    members = [root]
    for pid in members:  # It grows as we go: children of children follow.
        members += below.get(pid, ())
    return members


def handles(pid: int, signum: int) -> bool:
    """Whether a process catches or ignores a signal: then it means to get it."""
    try:
        text = read(f"/proc/{pid}/status")
    except OSError:
        return False
    bit = 1 << (signum - 1)
    masks = [
        line.split()[1] for line in text.splitlines() if line.startswith(("SigCgt", "SigIgn"))
    ]
    return any(int(mask, 16) & bit for mask in masks)


def program(pid: int) -> str:
    """Return the file name of the program a process runs, empty when it cannot be told."""
    try:
        return os.readlink(f"/proc/{pid}/exe").rpartition("/")[2].removesuffix(" (deleted)")
    except OSError:
        return ""


def proportional_bytes(pid: int) -> int:
    """Return a process's memory with shared pages divided among their users (PSS).

    Falls back to its resident set where that may not be read.
    """
    try:
        text = read(f"/proc/{pid}/smaps_rollup")
    except OSError:
        found = stat(pid)
        return 0 if found is None else found.rss_bytes
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
