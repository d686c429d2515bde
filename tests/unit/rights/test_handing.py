"""Descriptors of other processes: taken if they are of plain files on disks of the machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.rights.handing import Holder, NotHanded

PID, UID = os.getpid(), os.geteuid()


@pytest.fixture
def opened() -> Iterator[list[int]]:
    """Descriptors that are closed in the end; none may be left besides."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    found: list[int] = []
    yield found
    for fd in found:
        os.close(fd)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_a_process_holds_is_read_here(tmp_path: Path, opened: list[int]) -> None:
    (tmp_path / "a").write_bytes(b"data")
    (tmp_path / "b").write_bytes(b"more")
    held = [os.open(tmp_path / name, os.O_RDONLY) for name in "ab"]
    opened += held
    (tmp_path / "a").unlink()
    with Holder(PID, UID) as holder:
        taken = [holder.take(fd) for fd in held]
    opened += taken
    assert [os.pread(fd, 10, 0) for fd in taken] == [b"data", b"more"]
    assert not os.get_inheritable(taken[0])


def test_what_is_no_plain_file_open_for_reading_is_not_taken(
    tmp_path: Path, opened: list[int]
) -> None:
    (tmp_path / "a").write_bytes(b"data")
    fine = os.open(tmp_path / "a", os.O_RDONLY)
    write = os.open(tmp_path / "a", os.O_WRONLY)
    path = os.open(tmp_path / "a", os.O_PATH)
    folder = os.open(tmp_path, os.O_RDONLY)
    of_kernel = os.open("/proc/self/status", os.O_RDONLY)
    opened += [fine, write, path, folder, of_kernel, *os.pipe()]
    for fd, why in [
        (write, "not open for reading"),
        (folder, "no plain file"),
        (of_kernel, "on no disk"),
        (opened[-2], "no plain file"),
        (4000, "cannot be taken"),
        (path, "not open for reading|cannot be taken"),
    ]:
        with Holder(PID, UID) as holder:
            os.close(holder.take(fine))
            with pytest.raises(NotHanded, match=why):
                holder.take(fd)


def test_a_process_of_another_user_is_let_alone(opened: list[int]) -> None:
    with Holder(PID, UID + 1) as holder, pytest.raises(NotHanded, match="is not of user"):
        holder.take(0)
    ends = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Holder(ends.pid, UID) as holder:
        ends.communicate(b"\n")
        with pytest.raises(NotHanded, match="has ended"):
            holder.take(0)
    for pid in (0, -1, ends.pid):
        with pytest.raises(NotHanded, match="cannot be looked at"):
            Holder(pid, UID)
    assert not opened
