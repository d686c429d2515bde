"""A file system that shares blocks between files: a put copies nothing there."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_data import as_user, job_of
from tests.support.disks import mounted
from tests.support.exchange import owned
from tests.support.registry import USERS, WithUsers, a_service

WHY = "needs mkfs.xfs, and a loop device"
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.may_skip(WHY),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    """Start a service whose state and users are on one XFS."""
    if not shutil.which("mkfs.xfs") or not Path("/dev/loop-control").exists():
        pytest.skip(WHY)
    image, top = reachable / "image", reachable / "top"
    image.touch()
    os.truncate(image, 1 << 30)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    top.mkdir()
    with mounted(top, "-o", "loop", image), a_service(top) as made:
        as_user(made, "ann", "ls")  # The users' homes are made.
        yield made


def taken(service: WithUsers) -> int:
    """Return what the whole file system has in use."""
    os.sync()
    disk = os.statvfs(service.state)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def test_a_put_shares_the_blocks_and_no_later_change(service: WithUsers) -> None:
    folder = owned(service.home("ann") / "words", USERS["ann"])
    whole = os.urandom(SIZE + 100)
    (folder / "large").write_bytes(whole)
    as_user(service, "ann", "create", "words")
    before = taken(service)
    as_user(service, "ann", "put", "words", str(folder))
    assert taken(service) - before < 8 * MIB
    with (folder / "large").open("r+b") as file:
        file.write(bytes(MIB))
    look = "sha256sum /data/w/large"
    read = job_of(service, "ann", {"words": "/data/w"}, look).output.split()[0]
    assert read == hashlib.sha256(whole).hexdigest()
