"""One service a folder; the lock goes with its holder, however that ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.model.errors import StoreError
from allotment.store.lock import FolderLock
from tests.integration.store.conftest import SmallDisk

HOLD = """
import pathlib, subprocess, sys
from allotment.store.lock import FolderLock
lock = FolderLock(pathlib.Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_second_service_is_told_who_has_the_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(StoreError) as told:
        FolderLock(tmp_path)
    assert str(told.value) == (
        f"another allot service (pid {os.getpid()}) already uses {tmp_path}; use it, stop it "
        "with `allot down`, or choose another folder with --state"
    )
    lock.release()
    lock.release()
    FolderLock(tmp_path).release()


def test_the_lock_of_a_killed_service_is_free_though_its_children_live(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(StoreError, match=rf"\(pid {holder.pid}\)"):
                FolderLock(tmp_path)
            holder.kill()
            holder.wait()
            os.kill(child, 0)
            FolderLock(tmp_path).release()
        finally:
            os.kill(child, 9)


def test_a_shorter_pid_replaces_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("99999999999999999\n")
    lock = FolderLock(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_folder_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot use the state folder .*--state"):
        FolderLock(tmp_path / "nowhere")


@pytest.mark.needs_root
def test_a_read_only_folder_is_explained(small_disk: SmallDisk) -> None:
    small_disk.make_read_only()
    with pytest.raises(StoreError, match="Read-only file system; choose another"):
        FolderLock(small_disk.folder)


@pytest.mark.needs_root
def test_a_full_disk_does_not_keep_a_folder_from_being_locked(small_disk: SmallDisk) -> None:
    small_disk.fill()
    lock = FolderLock(small_disk.folder)
    with pytest.raises(StoreError, match=r"\(pid unknown\)"):
        FolderLock(small_disk.folder)
    lock.release()
