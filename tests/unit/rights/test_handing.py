"""Descriptors of other processes: taken if they are of plain files on disks of the machine."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allotment.rights.handing import Holder, NotHanded
from allotment.service.ports import Identity
from tests.support.silent import opened_then_silent

PID = os.getpid()
ROOT, NOBODY, OTHER = Identity(0, 0), Identity(65534, 65534), Identity(65533, 65534)
WAITS = "import os, sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def opened() -> Iterator[list[int]]:
    """Descriptors that are closed in the end; none may be left besides."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    found: list[int] = []
    yield found
    for fd in found:
        os.close(fd)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@contextmanager
def a_process(user: Identity, fd: int, code: str = WAITS) -> Generator[int]:
    """Run a process of a user that holds a descriptor; yield its pid."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd], user=user.uid,
        group=user.gid, extra_groups=[], cwd="/",
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid


def test_a_file_that_a_process_holds_is_read_here(tmp_path: Path, opened: list[int]) -> None:
    (tmp_path / "a").write_bytes(b"data")
    (tmp_path / "b").write_bytes(b"more")
    held = [os.open(tmp_path / name, os.O_RDONLY) for name in "ab"]
    opened += held
    (tmp_path / "a").unlink()
    with Holder(PID, None) as holder:
        taken = [holder.take(fd) for fd in held]
    opened += taken
    assert [os.pread(fd, 10, 0) for fd in taken] == [b"data", b"more"]
    assert not os.get_inheritable(taken[0])


def test_what_is_no_plain_file_of_a_disk_is_not_taken(
    tmp_path: Path, opened: list[int]
) -> None:
    (tmp_path / "a").write_bytes(b"data")
    fine = os.open(tmp_path / "a", os.O_RDONLY)
    folder = os.open(tmp_path, os.O_RDONLY)
    of_kernel = os.open("/proc/self/status", os.O_RDONLY)
    in_memory = os.memfd_create("memory")
    opened += [fine, folder, of_kernel, in_memory, *os.pipe()]
    for fd, why in [
        (folder, "not a regular file"),
        (of_kernel, "on no disk"),
        (in_memory, "on no disk"),
        (opened[-2], "not a regular file"),
        (4000, "no such file"),
    ]:
        with Holder(PID, None) as holder:
            os.close(holder.take(fine))
            with pytest.raises(NotHanded, match=why):
                holder.take(fd)


def test_a_process_that_is_gone_is_said(opened: list[int]) -> None:
    ends = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Holder(ends.pid, None) as holder:
        ends.communicate(b"\n")
        with pytest.raises(NotHanded, match="cannot be taken"):
            holder.take(0)
    for pid in (0, -1, ends.pid):
        with pytest.raises(NotHanded, match="cannot be looked at"):
            Holder(pid, None)
    assert not opened


@pytest.mark.needs_root
def test_the_rights_are_those_of_the_user(opened: list[int]) -> None:
    folder = Path("/dev/shm")  # Nobody has to pass through a closed folder.
    mine, his = folder / f"allot-mine-{PID}", folder / f"allot-his-{PID}"
    try:
        for path, mode in ((mine, 0o600), (his, 0o644)):
            path.write_bytes(b"data")
            path.chmod(mode)
            opened.append(os.open(path, os.O_RDONLY))
        secret, fine = opened
        with a_process(NOBODY, fine) as pid, Holder(pid, NOBODY) as holder:
            os.close(holder.take(fine))
        closed = f"import ctypes; ctypes.CDLL(None).prctl(4, 0); {WAITS}"
        for fd, runs_as, user, code in (
            (secret, NOBODY, NOBODY, WAITS),  # opened by somebody else
            (fine, NOBODY, NOBODY, closed),  # a program that its user may not look into
            (fine, NOBODY, OTHER, WAITS),
            (fine, ROOT, NOBODY, WAITS),
        ):
            with (
                a_process(runs_as, fd, code) as pid,
                Holder(pid, user) as holder,
                pytest.raises(NotHanded, match="permission denied"),
            ):
                holder.take(fd)
        os.close(os.open(mine, os.O_RDONLY))  # We are who we were.
    finally:
        mine.unlink(missing_ok=True)
        his.unlink(missing_ok=True)


@pytest.mark.needs_root
def test_nobody_waits_for_a_file_server_that_is_silent(tmp_path: Path) -> None:
    told: list[str] = []

    def take(held: int) -> None:
        with Holder(PID, None) as holder, pytest.raises(NotHanded) as refused:
            holder.take(held)
        told.append(str(refused.value))

    with opened_then_silent(tmp_path) as held:
        taking = threading.Thread(target=take, args=[held])
        taking.start()
        taking.join(20)
        assert told == [f"descriptor {held} is on no disk of this machine"]
    taking.join()
