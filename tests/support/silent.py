"""Folders and files on a file system that does not answer, as a broken NFS server leaves it."""

import ctypes
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import pack, unpack_from

import pytest

FUSE = "/dev/fuse"
DETACH = 2


LOOKUP, OPEN, INIT = 1, 14, 26
"""What is asked of a file server before a file is open (linux/fuse.h)."""


@contextmanager
def silenced(folder: Path) -> Iterator[None]:
    """Let whoever looks into a folder wait until the end: a FUSE mount nobody serves."""
    with _mounted(folder):
        yield


@contextmanager
def opened_then_silent(folder: Path) -> Iterator[int]:
    """Yield a file that is open for reading, of a file server that answers nothing more.

    Whoever asks for its size, reads or closes it waits until the end.
    """
    with _mounted(folder) as device:
        serving = threading.Thread(target=_serve, args=[device])
        serving.start()
        held = os.open(folder / "a", os.O_RDONLY)
        serving.join()
        yield held
    with suppress(OSError):  # its file server is gone
        os.close(held)


def _serve(device: int) -> None:
    """Answer until a file is open."""
    attributes = pack("=6Q10I", 2, 4, *[0] * 7, stat.S_IFREG | 0o644, 1, 0, 0, 0, 4096, 0)
    answers = {
        INIT: pack("=4I2H2I2H8I", 7, 31, *[0] * 4, 4096, 1, *[0] * 10),
        LOOKUP: pack("=4Q2I", 2, 0, 1, 0, 0, 0) + attributes[:88],
        OPEN: pack("=Q2I", 1, 0, 0),
    }
    code = 0
    while code != OPEN:
        code, which = unpack_from("=IQ", os.read(device, 1 << 17), 4)
        body = answers[code]
        os.write(device, pack("=IiQ", 16 + len(body), 0, which) + body)


@contextmanager
def _mounted(folder: Path) -> Iterator[int]:
    if os.geteuid() != 0 or not Path(FUSE).exists():
        pytest.skip("needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open(FUSE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"silent", bytes(folder), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"FUSE cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield device
    finally:
        os.close(device)  # whoever waits gets an error
        libc.umount2(bytes(folder), DETACH)
