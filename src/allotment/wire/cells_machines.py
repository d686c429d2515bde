"""Models of machines by name: what is in one, and how its devices lie together.

Figures are what their makers or hosts publish, as named beside each. Where a machine is
sold in several sizes, the list says which is meant; write `nodes` by hand for another.
"""

import re

import msgspec

from allotment.model.quantity import GIB, TIB
from allotment.model.spec import Arch

TB = 10**12
PAIRS = (("switch", 2), ("socket", 2), ("node", 2))
"""Two devices at each switch, two switches at each of two sockets."""


class MachineModel(msgspec.Struct, frozen=True):
    """A model of node. `levels` go from the leaf up: a name, and how many of the one below."""

    cpus: int
    memory: int
    disk: int
    levels: tuple[tuple[str, int], ...]
    device: str = ""
    """The type of its devices; "" for a machine without, whose leaves are its cores."""
    device_memory: int = 0
    arch: Arch = Arch.X86_64

    @property
    def leaves(self) -> int:
        count = 1
        for _, each in self.levels:
            count *= each
        return count


CATALOGUE: dict[str, MachineModel] = {
    # NVIDIA DGX-1 with Tesla P100, datasheet: 2 × Xeon E5-2698 v4 (20 cores), 4 × 1.92 TB.
    "dgx-p100": MachineModel(40, 512 * GIB, 4 * 1920 * 10**9, PAIRS, "P100", 16 * GIB),
    # NVIDIA DGX-1 with Tesla V100, datasheet: the same host, devices of 32 GB.
    "dgx-v100": MachineModel(40, 512 * GIB, 4 * 1920 * 10**9, PAIRS, "V100", 32 * GIB),
    # NVIDIA DGX-2, datasheet: 16 × V100 32 GB, 2 × Xeon 8168 (24 cores), 8 × 3.84 TB.
    "dgx2-v100": MachineModel(
        48,
        1536 * GIB,
        8 * 3840 * 10**9,
        (("pair", 2), ("switch", 2), ("socket", 2), ("node", 2)),
        "V100",
        32 * GIB,
    ),
    # NVIDIA DGX A100 640GB, datasheet: 2 × EPYC 7742 (64 cores), 8 × 3.84 TB; its user
    # guide shows pairs of devices at one switch, two pairs at each socket.
    "dgx-a100": MachineModel(128, 2 * TIB, 8 * 3840 * 10**9, PAIRS, "A100", 80 * GIB),
    # NVIDIA DGX H100, datasheet: 2 × Xeon 8480C (56 cores), 8 × 3.84 TB, one switch each.
    "dgx-h100": MachineModel(
        112, 2 * TIB, 8 * 3840 * 10**9, (("socket", 4), ("node", 2)), "H100", 80 * GIB
    ),
    # NVIDIA DGX H200, datasheet: as DGX H100, with 141 GB on each device.
    "dgx-h200": MachineModel(
        112, 2 * TIB, 8 * 3840 * 10**9, (("socket", 4), ("node", 2)), "H200", 141 * 10**9
    ),
    # Azure NC24, NC series: 4 K80 devices on two boards, 24 cores, 224 GiB, 1,440 GiB.
    "k80-4": MachineModel(
        24, 224 * GIB, 1440 * GIB, (("board", 2), ("node", 2)), "K80", 12 * GIB
    ),
    # Azure NC24s v2, NCv2 series: 4 × P100, 24 cores, 448 GiB, 2,948 GiB.
    "p100-4": MachineModel(
        24, 448 * GIB, 2948 * GIB, (("socket", 2), ("node", 2)), "P100", 16 * GIB
    ),
    # AWS g4dn.12xlarge: 4 × T4, 48 vCPUs, 192 GiB, 900 GB.
    "t4-4": MachineModel(48, 192 * GIB, 900 * 10**9, (("node", 4),), "T4", 16 * GIB),
    # AMD Instinct MI100 brochure: 32 GB, hives of 4 by Infinity Fabric. The host is of the
    # size common for 8 of them (2 × EPYC of 64 cores); AMD fixes none.
    "mi100-8": MachineModel(
        128, 1 * TIB, 4 * TB, (("hive", 4), ("node", 2)), "MI100", 32 * GIB
    ),
    # Google Cloud TPU v3-8: 4 chips of 32 GiB, 96 vCPUs, 334 GB.
    "tpu-v3-8": MachineModel(96, 334 * 10**9, 100 * GIB, (("node", 4),), "TPUv3", 32 * GIB),
}

HOST_LEAF = "core"
"""What the leaves of a machine without devices are called."""

CORES = re.compile(r"(cpu|arm64)-([1-9][0-9]{0,3})")
PLAIN = re.compile(r"([1-9][0-9]{0,3})[x×]([A-Za-z0-9][A-Za-z0-9._-]{0,40})")
MEMORY_A_CORE, DISK_A_CORE = 4 * GIB, 16 * GIB
"""General-purpose machines of all large clouds have 4 GiB to a core."""
CPUS_A_DEVICE, MEMORY_A_DEVICE = 8, 64 * GIB
"""What `8xV100` brings beside its devices, unless it says."""
MOST_DEVICES = 1_024
KNOWN = (*CATALOGUE, "cpu-32", "arm64-64", "8xV100")
"""What a message lists; the last three stand for any number."""


def machine_of(name: str) -> MachineModel | None:
    """Return a model: of the catalogue, `cpu-32`, `arm64-64`, or `8xV100`; None if unknown."""
    if found := CATALOGUE.get(name.lower()):
        return found
    if cores := CORES.fullmatch(name.lower()):
        count = int(cores[2])
        arch = Arch.ARM64 if cores[1] == "arm64" else Arch.X86_64
        levels = (("node", count),)
        return MachineModel(
            count, count * MEMORY_A_CORE, count * DISK_A_CORE, levels, arch=arch
        )
    plain = PLAIN.fullmatch(name)
    if plain and int(plain[1]) <= MOST_DEVICES:
        count = int(plain[1])
        cpus, memory = count * CPUS_A_DEVICE, count * MEMORY_A_DEVICE
        return MachineModel(cpus, memory, 0, (("node", count),), plain[2])
    return None
