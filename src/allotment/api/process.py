"""What holds for the service's process as a whole."""

import gc
import os
import resource
import sys

OPEN_FILES = 8192
SWITCH_S = 0.0005
"""How long a thread may keep the interpreter to itself while the event loop wants it."""


def settle() -> None:
    """Begin: private files, no core dumps of our secrets, enough descriptors."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    sys.setswitchinterval(SWITCH_S)


def calm() -> None:
    """Once started: keep the collector away from what will live as long as we do."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
