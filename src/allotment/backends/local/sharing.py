"""Whether parts of devices are kept to: what MIG and MPS are set up to do on this machine.

Nothing is set up here: both are an administrator's. What NVML and the daemon say is read, and
the rest is a pure function of it. Where a daemon runs, tasks are told their limits.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allotment.backends.local.device_watch import nvml
from allotment.model.cluster import OF_MIG, Device
from allotment.model.quantity import DEVICE, MIB, Resources

USUAL_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's daemon has it
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
PID_FILE = "nvidia-cuda-mps-control.pid"
DAEMON = "nvidia-cuda-mps"


class Mps(msgspec.Struct, frozen=True):
    """A daemon of MPS that runs: the folder by which programs find it."""

    pipe: str


def mps_here(environ: Mapping[str, str] = os.environ) -> Mps | None:
    """Return the MPS daemon of this machine; None if none runs."""
    pipe = environ.get(PIPE) or USUAL_PIPE
    file = Path(pipe) / PID_FILE
    try:
        # Any user can make this folder, and give a program this name. It would get the data of
        # every task that is told to use it.
        if not {os.lstat(each).st_uid for each in (pipe, file)} <= {0, os.geteuid()}:
            return None
        pid = int(file.read_text(encoding="ascii"))
        name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError):
        return None
    return Mps(pipe) if name.startswith(DAEMON) else None


def mps_limits(
    need: Resources, devices: int, environ: Mapping[str, str] = os.environ
) -> Mapping[str, str]:
    """Return what keeps the CUDA programs of a task to its part, where MPS runs.

    They may drop it. Whole devices have no limits; without `gpu_memory` memory has none.
    """
    if not devices or not need.gpu_milli % DEVICE or (mps := mps_here(environ)) is None:
        return {}
    percent = -(-need.gpu_milli // (DEVICE // 100))
    found = {PIPE: mps.pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    if mib := need.gpu_memory // MIB:
        # By the number that a program sees: it has one device.
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={mib}M"
    return found


def is_divided(uuid: str) -> bool:
    """Whether a device is divided by MIG, or is a part of one that is."""
    if uuid.startswith(OF_MIG):
        return True
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return False
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return int(nvml.nvmlDeviceGetMigMode(handle)[0]) == 1
    except nvml.NVMLError:
        return False  # It knows no MIG.
    finally:
        nvml.nvmlShutdown()


def why_not_whole(uuid: str) -> str:
    """Return why a device is not had as a whole by its task; '' if it is."""
    if mps_here() is not None:
        return "MPS runs, and the driver cannot take memory from its programs"
    if is_divided(uuid):
        return "the device is divided by MIG, and the driver cannot take memory from its parts"
    return ""


class Parts(msgspec.Struct, frozen=True):
    """What becomes of parts of devices here, in words."""

    enforced: bool
    words: str


def sharing_here(devices: Sequence[Device]) -> Parts:
    """Look at MIG and MPS here, and say what that means for parts of devices."""
    return parts_of(devices, mps_here())


def parts_of(devices: Sequence[Device], mps: Mps | None) -> Parts:
    """Return what is kept to of parts of these devices. Pure."""
    divided = [device for device in devices if device.uuid.startswith(OF_MIG)]
    if devices and len(divided) == len(devices):
        kinds = ", ".join(sorted({device.type for device in divided}))
        words = f"MIG divides the devices: each part ({kinds}) is never shared, as a device"
        return Parts(True, f"{words}; less than one of these is counted, not enforced")
    some = f"MIG divides some, into {len(divided)} that are never shared; " if divided else ""
    words = f"{some}a part of a GPU (gpu: 0.5) is counted, not enforced"
    if mps is not None:
        words += (
            f". MPS runs ({mps.pipe}): a task with a part is told its limits, which hold for "
            "programs that do not drop them"
        )
    return Parts(False, words)
