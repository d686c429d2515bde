"""Describe the machine a benchmark runs on."""

import os
import platform
import re
from pathlib import Path

from bench.figures import Machine

TICKS = os.sysconf("SC_CLK_TCK")


def this_machine() -> Machine:
    """Read what bears on speed: processor, usable cores, memory, system, Python."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    release = platform.freedesktop_os_release()
    return Machine(
        cpu=model[1] if model else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30),
        system=release.get("PRETTY_NAME", platform.system()),
        python=platform.python_version(),
    )


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all it waited for."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / TICKS
