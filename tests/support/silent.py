"""A folder on a file system that does not answer, as a broken NFS server leaves it."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FUSE = "/dev/fuse"
DETACH = 2


@contextmanager
def silenced(folder: Path) -> Iterator[None]:
    """Let whoever looks into a folder wait until the end: a FUSE mount nobody serves."""
    if os.geteuid() != 0 or not Path(FUSE).exists():
        pytest.skip("needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open(FUSE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"silent", bytes(folder), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"FUSE cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.close(device)  # whoever waits gets an error
        libc.umount2(bytes(folder), DETACH)
