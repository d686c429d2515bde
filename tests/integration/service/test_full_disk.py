"""Data, outputs and checkpoints where the disk is full: nothing half of them is kept."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_data import a_folder, as_user, job_of, refused
from tests.integration.service.test_saving import (
    is_settled,
    settled,
    submitted,
    training,
    wait_for_file,
)
from tests.support.cluster import until
from tests.support.disks import mounted
from tests.support.registry import WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
ROOM_MIB = 8
LARGE = f"head -c {2 * ROOM_MIB}M /dev/urandom"


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    """Start a service whose data have a file system of their own, of a few MiB."""
    data = reachable / "state/data"
    data.mkdir(parents=True)
    small = mounted(data, "-t", "tmpfs", "-o", f"size={ROOM_MIB}m", "small")
    with small, a_service(reachable) as made:
        as_user(made, "ann", "ls")  # The users' homes are made.
        yield made


def a_large_put(service: WithUsers) -> None:
    folder = a_folder(service, "ann", {"small": "1"})
    (folder / "large").write_bytes(os.urandom(2 * ROOM_MIB << 20))
    assert "The disk that keeps the data is nearly full" in refused(
        service, "ann", "put", "set", str(folder)
    )
    (folder / "large").unlink()
    assert "set@1" in as_user(service, "ann", "put", "set", str(folder))


def a_large_output(service: WithUsers) -> None:
    """Save what does not fit once it does; until then it keeps nothing else from it."""
    large = submitted(service, "set", f"{LARGE} >$ALLOT_OUTPUT_DIR/large")
    service.wait_for(large, "succeeded")
    small = settled(service, submitted(service, "set", "echo 1 >$ALLOT_OUTPUT_DIR/small"))
    assert small.view["saved"] == "ann/set@1"
    assert not is_settled(service, large)
    look_at(service)
    more = f"remount,size={4 * ROOM_MIB}m"
    subprocess.run(["mount", "-o", more, str(service.state / "data")], check=True)
    assert settled(service, large).view["saved"] == "ann/set@2"
    as_user(service, "ann", "rm", "set@2")


def a_large_checkpoint(service: WithUsers) -> None:
    """Keep the next one in place of one that does not fit."""
    go = service.home("ann") / "go"
    script = (
        f"mkdir c1 c2; {LARGE} >c1/large; report c1 1; {wait_for_file(f'{go}1')}; "
        f"echo 1 >c2/small; report c2 2; {wait_for_file(f'{go}2')}"
    )
    as_user(service, "ann", "rm", "set")
    job = training(service, "set", script)
    until(lambda: "step 1" in service.allot("show", str(job)).stdout, "the first one")
    Path(f"{go}1").touch()
    until(lambda: service.get(f"/v1/jobs/{job}")["kept"] == "ann/set@1", "the second")
    Path(f"{go}2").touch()
    service.wait_for(job, "succeeded")


def look_at(service: WithUsers) -> None:
    """Fail where anything half is there, or where the version is not what fitted."""
    assert not list((service.state / "data/new").iterdir())
    job = job_of(
        service, "ann", {"set@1": "/data/set"}, "find /data/set -type f -exec cat {} +"
    )
    assert job.output.strip() == "1"


@pytest.mark.parametrize("fill", [a_large_put, a_large_output, a_large_checkpoint])
def test_what_does_not_fit_is_told_and_what_fits_is_taken(
    service: WithUsers, fill: Callable[[WithUsers], None]
) -> None:
    as_user(service, "ann", "create", "set")
    fill(service)
    look_at(service)
