"""This machine as a node: CPUs, memory, disk, and its real devices through NVML.

Where there is no NVIDIA library, or it finds no device, virtual devices may stand in: they
are counted and handed out like real ones, and called virtual wherever they are shown.
"""

import os
import platform
import socket
from pathlib import Path
from typing import Any

import pynvml as _untyped  # pyright: ignore[reportMissingTypeStubs]

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import MIB
from allotment.model.spec import Arch

nvml: Any = _untyped
"""The maker's library has no types; what it gives is converted where it comes in."""

DeviceFiles = dict[int, tuple[str, ...]]
"""The files in /dev of each real device, by index."""

SHARED_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
KEEP_FREE = 256 * MIB
"""Memory left to the system and to the service itself."""
VIRTUAL = "virtual"
ARCHS = {
    "x86_64": Arch.X86_64,
    "amd64": Arch.X86_64,
    "aarch64": Arch.ARM64,
    "arm64": Arch.ARM64,
}


def this_machine(gpus: int | None = None) -> tuple[Node, DeviceFiles]:
    """Describe this machine; with `gpus` virtual devices if it has no real ones."""
    found = real_devices()
    devices = tuple(device for device, _ in found) or virtual_devices(gpus or 0)
    files: DeviceFiles = {int(d.index): (*paths, *SHARED_FILES) for d, paths in found}
    node = Node(
        id=NodeId(0),
        name=socket.gethostname().split(".")[0] or "localhost",
        cpu_milli=cpu_milli(),
        memory=memory_bytes(),
        disk=disk_bytes(),
        devices=devices,
        arch=ARCHS.get(platform.machine().lower(), Arch.ANY),
    )
    return node, files


def virtual_devices(count: int) -> tuple[Device, ...]:
    """Make devices that exist in our books only."""
    return tuple(Device(DeviceIndex(index), VIRTUAL) for index in range(count))


def real_devices() -> list[tuple[Device, tuple[str, ...]]]:
    """List the NVIDIA devices with their files; none without the library."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_device(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def _device(index: int) -> tuple[Device, tuple[str, ...]]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = str(nvml.nvmlDeviceGetName(handle))
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    try:
        minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
    except nvml.NVMLError:
        minor = index
    device = Device(DeviceIndex(index), type_of(name), memory, uuid, virtual=False)
    return device, (f"/dev/nvidia{minor}",)


def type_of(name: str) -> str:
    """Shorten a product name to the word people ask for: `NVIDIA A100-SXM4-80GB` → `A100`."""
    words = name.replace("NVIDIA", "").replace("Tesla", "").replace("GeForce", "").split()
    return words[0].split("-")[0] if words and words[0] != "RTX" else "".join(words) or name


def cpu_milli() -> int:
    """Count the CPUs we may use: by affinity, and by our cgroup's quota if it has one."""
    allowed = 1000 * len(os.sched_getaffinity(0))
    for quota_file, period_file in (
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
        ("/sys/fs/cgroup/cpu.max", ""),
    ):
        quota = _read(quota_file).split()
        period = _read(period_file) if period_file else (quota[1] if len(quota) > 1 else "")
        if quota and quota[0].isdecimal() and period.strip().isdecimal():
            allowed = min(allowed, 1000 * int(quota[0]) // int(period))
    return max(1000, allowed)


def memory_bytes() -> int:
    """Return memory tasks may have: the machine's or our cgroup's, less what we keep free."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max",
    ):
        limit = _read(file).strip()
        if limit.isdecimal():
            total = min(total, int(limit))
    return max(KEEP_FREE, total - KEEP_FREE) // MIB * MIB


def disk_bytes() -> int:
    """Return the size of the file system that scratch folders lie on."""
    found = os.statvfs("/")
    return found.f_frsize * found.f_blocks // MIB * MIB


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
