"""A user who lies in wait for processes: does to each new one what the kernel lets him.

    python3 -I -S attacker.py [NAME]

Says `ready`, and after SIGTERM one line of JSON: for each kind of attack, whom it worked on,
as `[pid, name]`; the name is looked up afterwards. With NAME only those whose names begin so
are attacked. Run as the user who attacks.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

AHEAD, BEHIND = 3, 8
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)


def trace(pid: int) -> None:
    """Trace it for ever: the kernel keeps its end for us, and from its parent."""
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
        raise PermissionError


def limit(pid: int) -> None:
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, 64), hard))


ATTACKS: dict[str, Callable[[int], object]] = {
    "traced": trace,
    "memory": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
    "descriptors": lambda pid: list(Path(f"/proc/{pid}/fd").iterdir()),
    "environment": lambda pid: os.close(os.open(f"/proc/{pid}/environ", os.O_RDONLY)),
    "folder": lambda pid: Path(f"/proc/{pid}/cwd").readlink(),
    "slowed": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "pinned": lambda pid: os.sched_setaffinity(pid, {0}),
    "limited": limit,
    "stopped": lambda pid: os.kill(pid, signal.SIGSTOP),
}


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def main() -> None:
    """Attack until told to end."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    worked: dict[str, set[tuple[int, str]]] = {kind: set() for kind in ATTACKS}
    loadavg = os.open("/proc/loadavg", os.O_RDONLY)
    print("ready", flush=True)
    while not ended:
        last = int(os.pread(loadavg, 100, 0).split()[-1])
        for pid in range(last - BEHIND, last + AHEAD):
            if pid == os.getpid() or (only and not name_of(pid).startswith(only)):
                continue
            for kind, attack in ATTACKS.items():
                try:
                    attack(pid)
                except OSError:
                    continue
                worked[kind].add((pid, name_of(pid)))
    print(json.dumps({kind: sorted(whom) for kind, whom in worked.items()}))


main()
