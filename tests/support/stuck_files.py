"""A file system that does not answer: who opens a file of it, or closes another one, does not
die when it is killed.

Run as a program it serves a folder until it is killed; then the kernel lets go of who waits.
"""

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from allotment.backends.local.runner import libc
from allotment.rights.unmounting import unmount

NAME = "stuck"
CLOSING = "closing"
"""What can be opened, and is never closed."""
HEADER = struct.Struct("=IIQQIIII")
"""Of a request: its length, what is asked, its number, the node, and who asks."""
LOOKUP, FORGET, GETATTR, OPEN, FLUSH, INIT, INTERRUPT = 1, 2, 3, 14, 25, 26, 36
ROOT_ATTRIBUTES = struct.pack(
    "=QII6Q10I", 60, 0, 0, 1, *[0] * 5, 0, 0, 0, 0o40755, 2, 0, 0, 0, 0, 0
)
ENTRY = struct.pack(
    "=4QII6Q10I", 2, 0, 60, 60, 0, 0, 2, *[0] * 5, 0, 0, 0, 0o100644, 1, 0, 0, 0, 0, 0
)
OPENED = bytes(16)
INITIAL = struct.pack("=IIIIHHII9I", 7, 23, 0, 0, 0, 0, 4096, 0, *[0] * 9)
ENOENT, ENOSYS = 2, 38
MOST_BYTES = 1 << 17


def serve(folder: str) -> None:
    """Mount the file system on a folder, say so, and answer all but what is to be stuck."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc.mount("allot-test", folder, "fuse", 0, options)
    print("ready", flush=True)
    while True:
        data = os.read(fd, MOST_BYTES)
        _, asked, number, *_ = HEADER.unpack_from(data)
        if asked in (FORGET, INTERRUPT):
            continue
        name = data[HEADER.size :].rstrip(b"\0").decode() if asked == LOOKUP else ""
        if asked == FLUSH or name == NAME:
            print("asked", flush=True)
            continue
        answers = {INIT: INITIAL, GETATTR: ROOT_ATTRIBUTES, OPEN: OPENED}
        body = ENTRY if name == CLOSING else answers.get(asked, b"")
        error = 0 if body else -ENOENT if asked == LOOKUP else -ENOSYS
        os.write(fd, struct.pack("=IiQ", 16 + len(body), error, number) + body)


class StuckFile:
    """A file that does not answer, until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.closing = folder / CLOSING
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE
        )
        assert self._told() == "ready"

    def is_asked(self) -> None:
        """Wait until somebody waits for it."""
        assert self._told() == "asked"

    def _told(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().decode().strip()

    def let_go(self) -> None:
        """Fail all who wait for it."""
        self._server.kill()
        self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()


@contextlib.contextmanager
def a_stuck_file(folder: Path) -> Iterator[StuckFile]:
    """Make a file that does not answer, in a new folder. Needs root."""
    folder.mkdir()
    made = StuckFile(folder)
    try:
        yield made
    finally:
        made.let_go()
        unmount(str(folder))


if __name__ == "__main__":
    serve(sys.argv[1])
