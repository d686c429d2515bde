"""This machine as a node, with a driver library of the test's own where it has none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.backends.local.machine import cpu_milli, memory_bytes, this_machine, type_of
from allotment.model.quantity import GIB, MIB

LIBRARY = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static char cards[2];
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &cards[i]; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) {
  strncpy(s, "NVIDIA A100-SXM4-80GB", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
  strncpy(s, (char *)d == cards ? "GPU-a" : "GPU-b", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) { m->total = 80ULL << 30; return 0; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *m) {
  *m = 4 + (unsigned)((char *)d - cards); return 0; }
"""
LOOK = """
import json, msgspec
from allotment.backends.local.machine import this_machine
node, files = this_machine(gpus=7)
print(json.dumps({"devices": msgspec.to_builtins(node.devices), "files": files}))
"""


@pytest.mark.needs_tool("cc")
def test_real_devices_are_found_through_the_drivers_library(tmp_path: Path) -> None:
    source = tmp_path / "nvml.c"
    source.write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [device["uuid"] for device in found["devices"]] == ["GPU-a", "GPU-b"]
    assert {device["type"] for device in found["devices"]} == {"A100"}
    assert {device["memory"] for device in found["devices"]} == {80 * GIB}
    assert not any(device.get("virtual", True) for device in found["devices"])
    assert found["files"]["1"] == [
        "/dev/nvidia5",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]


def test_virtual_devices_say_that_they_are() -> None:
    node, files = this_machine(gpus=3)
    if not files:
        assert [device.virtual for device in node.devices] == [True] * 3
    assert node.cpu_milli == cpu_milli() >= 1000
    assert node.memory == memory_bytes() >= 256 * MIB


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H200", "H200"),
        ("Tesla V100-PCIE-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
    ],
)
def test_product_names_become_words_people_ask_for(name: str, kind: str) -> None:
    assert type_of(name) == kind
