"""What holds for the service's process as a whole."""

import contextlib
import ctypes
import gc
import os
import resource
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_ARENA_MAX = -8
"""mallopt's name for how many heaps threads may have among them: each keeps what it had."""

OPEN_FILES = 8192
SWITCH_S = 0.0005
"""How long a thread may keep the interpreter to itself while the event loop wants it."""
COLLECT_AFTER = (50_000, 20, 50)
"""How often garbage is looked for."""
STARTING = (1_000_000, 20, 50)
"""How often during the start: it makes very much that stays, and hardly any garbage."""


def settle() -> None:
    """Prepare the process: private files, no core dumps of secrets, enough file descriptors."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*STARTING)
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        _LIBC.mallopt(_ARENA_MAX, 2)


def trim() -> None:
    """Return free memory from the C library to the system. Takes some milliseconds.

    After many requests at once the memory is free in small pieces, which the library keeps
    otherwise.
    """
    with contextlib.suppress(AttributeError):
        _LIBC.malloc_trim(0)


def give_back() -> None:
    """Collect garbage, then return free memory. Stops all else for up to half a second."""
    gc.collect()
    trim()


def calm() -> None:
    """Exempt all present objects from garbage collection. To be called once, when started.

    What is garbage among them stays, too: after a start that is next to nothing, and to look
    for it took a fifth of the start.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()
