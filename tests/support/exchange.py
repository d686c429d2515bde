"""A hostile user who exchanges two names of his own, again and again, while others look."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRIES = 200
"""How often a test tries a race before it believes that it cannot be won."""

FEW = int(os.environ.get("ALLOT_TRIES", "20"))
"""The same where the fault shows in the first tries, or each try runs a task: `make nightly`
makes 200 of these too."""

LONGEST_S = 120
"""After which the exchanging ends by itself, whatever became of the test."""

_LOOP = """
import ctypes, os, sys, time
one, other = map(os.fsencode, sys.argv[1:3])
renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
if renameat2(-100, one, -100, other, 2):
    sys.exit(os.strerror(ctypes.get_errno()))
print("exchanging", flush=True)
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    for _ in range(1000):
        renameat2(-100, one, -100, other, 2)
"""


@contextmanager
def exchanging(one: Path, other: Path, uid: int) -> Iterator[None]:
    """Exchange two names as a user of this machine, as quickly as can be, until the end."""
    loop = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LOOP, one, other, str(LONGEST_S)],
        stdout=subprocess.PIPE,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
    )
    assert loop.stdout is not None
    try:
        assert loop.stdout.readline() == b"exchanging\n"
        yield
    finally:
        loop.kill()
        loop.wait()
        loop.stdout.close()


def owned(path: Path, uid: int, mode: int = 0o755) -> Path:
    """Make a folder of a user's own."""
    path.mkdir()
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def written(path: Path, text: str, uid: int, mode: int = 0o644) -> Path:
    """Write a file of a user's own."""
    path.write_text(text)
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path
