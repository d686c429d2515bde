"""This machine as a node: CPUs, memory, disk, and its real devices through NVML.

Where there is no NVIDIA library, or it finds no device, virtual devices may stand in: they
are counted and handed out like real ones, and called virtual wherever they are shown.
"""

import os
import platform
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
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
CAPABILITIES = "/proc/driver/nvidia/capabilities"
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
        return devices_of([_found(index) for index in range(nvml.nvmlDeviceGetCount())])
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


class Part(msgspec.Struct, frozen=True):
    """A part that MIG made of a device: what a program can use as a device of its own."""

    name: str
    uuid: str
    memory: int
    files: tuple[str, ...]
    """Without which it cannot be used, besides those of its device."""


class Card(msgspec.Struct, frozen=True):
    """A device as NVML describes it. If it `is_divided`, only its parts can be used, if any."""

    name: str
    uuid: str
    memory: int
    minor: int
    is_divided: bool = False
    parts: tuple[Part, ...] = ()


def devices_of(found: Sequence[Card]) -> list[tuple[Device, tuple[str, ...]]]:
    """Return what jobs can have of these devices, in order, each with its files. Pure."""
    devices: list[tuple[Device, tuple[str, ...]]] = []
    for whole in found:
        file = f"/dev/nvidia{whole.minor}"
        if not whole.is_divided:
            devices.append((_named(len(devices), type_of(whole.name), whole), (file,)))
        for part in whole.parts:
            kind = f"{type_of(whole.name)}-{profile_of(part.name)}"
            devices.append((_named(len(devices), kind, part), (file, *part.files)))
    return devices


def _named(index: int, kind: str, found: Card | Part) -> Device:
    return Device(DeviceIndex(index), kind, found.memory, found.uuid, virtual=False)


def profile_of(name: str) -> str:
    """Return the profile in the name of a part: `1g.10gb` of `NVIDIA H100 … MIG 1g.10gb`."""
    found = re.search(r"\bMIG (\S+)", name)
    return found[1] if found else "part"


def _found(index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = str(nvml.nvmlDeviceGetName(handle))
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    try:
        minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
    except nvml.NVMLError:
        minor = index
    try:
        is_divided = int(nvml.nvmlDeviceGetMigMode(handle)[0]) == 1
    except nvml.NVMLError:
        is_divided = False  # It knows no MIG.
    parts = tuple(_parts(handle, minor)) if is_divided else ()
    return Card(name, uuid, memory, minor, is_divided, parts)


def _parts(handle: Any, minor: int) -> Iterator[Part]:
    for number in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue  # None was made there.
        gpu = int(nvml.nvmlDeviceGetGpuInstanceId(part))
        compute = int(nvml.nvmlDeviceGetComputeInstanceId(part))
        of = f"{CAPABILITIES}/gpu{minor}/mig/gi{gpu}"
        yield Part(
            str(nvml.nvmlDeviceGetName(part)),
            str(nvml.nvmlDeviceGetUUID(part)),
            int(nvml.nvmlDeviceGetMemoryInfo(part).total),
            tuple(_capability(f"{each}/access") for each in (of, f"{of}/ci{compute}")),
        )


def _capability(path: str) -> str:
    """Return the device file that gives the right to use a part, as the driver numbers it."""
    found = re.search(r"DeviceFileMinor: (\d+)", _read(path))
    return f"/dev/nvidia-caps/nvidia-cap{found[1]}" if found else "/dev/nvidia-caps"


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
