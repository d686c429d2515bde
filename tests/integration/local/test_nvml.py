"""Real devices are found through NVIDIA's library; here a stand-in for it, in C.

`nvidia-ml-py` loads the library by name, so a small one of that name is enough.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.backends.local.machine import real_devices
from tests.integration.local.harness import SOURCES

LIBRARY = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) {
    snprintf(s, n, (long)h == 1 ? "NVIDIA A100-SXM4-80GB" : "Tesla V100-PCIE-32GB"); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { snprintf(s, n, "GPU-%ld", (long)h); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) {
    m->total = (unsigned long long)(long)h << 30; m->free = m->used = 0; return 0; }
int nvmlDeviceGetMinorNumber(void *h, unsigned *n) { *n = (long)h + 5; return 0; }
"""
ASK = """
import json, msgspec
from allotment.backends.local.machine import real_devices
print(json.dumps(msgspec.to_builtins(real_devices())))
"""


def ask(library_path: str) -> list[tuple[dict[str, object], list[str]]]:
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "LD_LIBRARY_PATH": library_path}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.needs_tool("cc")
@pytest.mark.may_skip("needs a C compiler")
def test_devices_are_found_with_model_memory_and_files(tmp_path: Path) -> None:
    source = tmp_path / "nvml.c"
    source.write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    found = ask(str(tmp_path))
    assert [(d["type"], d["memory"], d["uuid"], files) for d, files in found] == [
        ("A100", 1 << 30, "GPU-1", ["/dev/nvidia6"]),
        ("V100", 2 << 30, "GPU-2", ["/dev/nvidia7"]),
    ]
    assert not any(device.get("virtual") for device, _ in found)


@pytest.mark.needs_tool("cc")
@pytest.mark.may_skip("needs a C compiler")
def test_a_library_that_lacks_a_function_means_no_devices(tmp_path: Path) -> None:
    source = tmp_path / "nvml.c"
    source.write_text(
        "int nvmlInit_v2(void) { return 0; } int nvmlShutdown(void) { return 0; }"
    )
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert ask(str(tmp_path)) == []


def test_without_the_library_there_are_no_devices() -> None:
    if not Path("/dev/nvidiactl").exists():
        assert real_devices() == []
