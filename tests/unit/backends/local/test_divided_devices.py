"""What jobs can have of devices that MIG divides, and what is said of parts of others."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.machine import Card, Part, devices_of, profile_of
from allotment.backends.local.sharing import Mps, mps_here, mps_limits, parts_of
from allotment.model.cluster import Device
from allotment.model.ids import DeviceIndex
from allotment.model.quantity import GIB, Resources
from tests.support.patience import PATIENCE_S

NAME = "NVIDIA H100 80GB HBM3"
WHOLE = Card(NAME, "GPU-a", 80 * GIB, 0)


def part(number: int, profile: str = "1g.10gb") -> Part:
    cap = f"/dev/nvidia-caps/nvidia-cap{number}"
    return Part(f"{NAME} MIG {profile}", f"MIG-{number}", 10 * GIB, (cap,))


def test_a_device_that_is_not_divided_is_had_as_a_whole() -> None:
    ((device, files),) = devices_of([WHOLE])
    assert (device.type, device.uuid, device.index, files) == (
        "H100",
        "GPU-a",
        0,
        ("/dev/nvidia0",),
    )


def test_the_parts_of_a_divided_device_are_devices_of_their_own() -> None:
    divided = Card(NAME, "GPU-b", 80 * GIB, 1, True, (part(3), part(4, "3g.40gb")))
    found = devices_of([WHOLE, divided])
    assert [(device.index, device.type, device.uuid) for device, _ in found] == [
        (0, "H100", "GPU-a"), (1, "H100-1g.10gb", "MIG-3"), (2, "H100-3g.40gb", "MIG-4"),
    ]  # fmt: skip
    assert found[1][1] == ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3")
    assert {device.memory for device, _ in found[1:]} == {10 * GIB}


def test_a_divided_device_without_parts_has_nothing_for_jobs() -> None:
    assert devices_of([Card(NAME, "GPU-b", 80 * GIB, 1, True)]) == []


@pytest.mark.parametrize(
    ("name", "profile"),
    [("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"), ("X MIG 1g.10gb+me", "1g.10gb+me")],
)
def test_a_part_is_called_by_its_profile(name: str, profile: str) -> None:
    assert profile_of(name) == profile


def device(uuid: str, kind: str) -> Device:
    return Device(DeviceIndex(0), kind, GIB, uuid, virtual=False)


def test_only_what_mig_divides_is_enforced() -> None:
    assert parts_of([device("MIG-1", "H100-1g.10gb")], None).enforced
    assert not parts_of([device("GPU-1", "H100")], None).enforced
    both = parts_of([device("GPU-1", "H100"), device("MIG-1", "H100-1g.10gb")], None)
    assert not both.enforced
    assert "MIG divides some" in both.words


def test_mps_that_runs_is_told_of() -> None:
    assert (
        "hold for programs that do not drop them"
        in parts_of([device("GPU-1", "H100")], Mps("/x")).words
    )


def test_a_daemon_is_found_by_the_folder_of_its_pipes(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert mps_here(environ) is None
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert mps_here(environ) is None, "we are no such daemon"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a machine where something runs that has the daemon's name."""
    program = tmp_path / "nvidia-cuda-mps-control"
    program.symlink_to("/bin/sleep")
    running = subprocess.Popen([program, "1000"])
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(running.pid))
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    deadline = time.monotonic() + PATIENCE_S
    while mps_here(environ) is None and time.monotonic() < deadline:
        time.sleep(0.01)  # It has our name until it is the program.
    yield environ
    running.kill()
    running.wait()


def test_a_task_with_a_part_is_told_its_limits_where_mps_runs(daemon: dict[str, str]) -> None:
    part = Resources(gpu_milli=333, gpu_memory=10 * GIB)
    assert mps_limits(part, 1, daemon) == {
        **daemon,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "34",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
    }
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in mps_limits(
        Resources(gpu_milli=500), 1, daemon
    )
    assert mps_limits(Resources(gpu_milli=1000), 1, daemon) == {}
    assert mps_limits(part, 0, daemon) == {}, "a virtual device has no daemon"
    assert mps_limits(part, 1, {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}) == {}


@pytest.mark.needs_root
@pytest.mark.parametrize("whose", ["", "nvidia-cuda-mps-control.pid"])
def test_a_daemon_that_any_user_pretends_is_not_taken(
    daemon: dict[str, str], tmp_path: Path, whose: str
) -> None:
    assert mps_here(daemon) is not None
    os.chown(tmp_path / whose, 1234, 1234)
    assert mps_here(daemon) is None
