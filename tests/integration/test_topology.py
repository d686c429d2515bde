"""How this machine's devices lie together, asked of a driver library of the test's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Eight devices; 0 and 4, 1 and 5 … share a switch, evens and odds a socket.
LIBRARY = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static char cards[8];
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 8; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &cards[i]; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) {
  strncpy(s, "NVIDIA A100-SXM4-80GB", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
  strncpy(s, "GPU-x", n); s[4] = '0' + ((char *)d - cards); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) { m->total = 80ULL << 30; return 0; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *m) {
  *m = (unsigned)((char *)d - cards); return 0; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, unsigned *level) {
  long one = (char *)a - cards, other = (char *)b - cards;
  if (FAILS) return 3;
  *level = one % 4 == other % 4 ? 10 : one % 2 == other % 2 ? 40 : 50;
  return 0; }
"""
LOOK = """
import json, msgspec
from allotment.wiring.discovery import discovered
print(json.dumps(msgspec.to_builtins(discovered()[1])))
"""


def look(folder: Path, *, fails: bool) -> dict[str, list[dict[str, object]]]:
    source = folder / "nvml.c"
    source.write_text(LIBRARY)
    library = folder / "libnvidia-ml.so.1"
    fail = f"-DFAILS={int(fails)}"
    subprocess.run(["cc", fail, "-shared", "-fPIC", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.needs_tool("cc")
def test_cells_are_what_the_driver_says_devices_share(tmp_path: Path) -> None:
    found = look(tmp_path, fails=False)
    assert found["types"] == [
        {"name": "8xA100-switch", "child": "A100", "count": 2},
        {"name": "8xA100-socket", "child": "8xA100-switch", "count": 2},
        {"name": "8xA100-node", "child": "8xA100-socket", "count": 2, "is_node": True},
    ]
    (root,) = found["roots"]
    assert root["devices"] == [[0, 4, 2, 6, 1, 5, 3, 7]]


@pytest.mark.needs_tool("cc")
def test_a_driver_that_cannot_tell_makes_a_machine_of_devices_side_by_side(
    tmp_path: Path,
) -> None:
    found = look(tmp_path, fails=True)
    assert found["types"] == [
        {"name": "8xA100-node", "child": "A100", "count": 8, "is_node": True}
    ]
    assert "devices" not in found["roots"][0]
