"""What /proc says of processes: which live, since when, and below which parent."""

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_DEAD: Final = "ZXx"
_EXITING: Final = 4
"""PF_EXITING of the kernel, among the flags of a process."""
_LAST_WAITS: Final = frozenset({"do_wait", "zap_pid_ns_processes"})
"""Where in the kernel the first of a PID namespace, which has given all back, waits for the
processes in it."""


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
    threads: int
    is_exiting: bool


def read(path: str, dir_fd: int | None = None) -> str:
    """Read a small file of the kernel's at once."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    finally:
        os.close(fd)


def stat(pid: int | str, proc: int | None = None) -> Stat | None:
    """Look up a process, in an open /proc where one is named; None for no such number."""
    try:
        text = read(f"/proc/{pid}/stat" if proc is None else f"{pid}/stat", proc)
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
        threads=int(fields[17]),
        is_exiting=bool(int(fields[6]) & _EXITING),
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
    """Return the start of a process in another PID namespace's /proc, 0 for none."""
    found = stat(pid, proc)
    return 0 if found is None else found.start_time


def start_time(pid: int | str) -> int:
    """Return the start of a living process, 0 for none; a zombie does not live."""
    found = living(pid)
    return 0 if found is None else found.start_time


def living(pid: int | str, proc: int | None = None) -> Stat | None:
    """Look up a process that lives, in the state of one of its threads that does.

    The first thread may be dead, and another wait in the kernel for a device.
    """
    found = stat(pid, proc)
    if found is None or found.state not in _DEAD:
        return found
    others = _threads(f"{pid}/task", proc) if found.threads > 1 else []
    seen = (stat(f"{pid}/task/{thread}", proc) for thread in others)
    states = (thread.state for thread in seen if thread and thread.state not in _DEAD)
    state = next(states, "")
    return found._replace(state=state) if state else None


def holds(pid: int) -> bool:
    """Whether a process, or one below it, may still hold something: devices, memory.

    The dead do not. Nor does the first of a PID namespace that only waits for the dead there to
    be gone, as for those that somebody traces. One that has only begun to end does: while one
    of its files is closed, it has the others.
    """
    threads = [f"{pid}/task/{thread}" for thread in _threads(f"{pid}/task", None)]
    seen = [(each, found) for each in threads if (found := stat(each))]
    lives = [(each, found) for each, found in seen if found.state not in _DEAD]
    if not all(found.is_exiting and _where(each) in _LAST_WAITS for each, found in lives):
        return True
    return bool(lives) and any(map(holds, children(pid)))


def _where(thread: str) -> str:
    """Return in which function of the kernel a thread waits; '' or 0 where that is not told."""
    try:
        return read(f"/proc/{thread}/wchan")
    except OSError:
        return ""


def _threads(path: str, proc: int | None) -> list[str]:
    try:
        fd = os.open(f"/proc/{path}" if proc is None else path, os.O_RDONLY, dir_fd=proc)
    except OSError:
        return []
    try:
        return os.listdir(fd)
    except OSError:
        return []
    finally:
        os.close(fd)


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
