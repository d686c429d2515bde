"""Real devices that fail, asked of a driver library of the test's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.backends.local.device_watch import Look, is_hardware, reports, trouble_in
from allotment.model.ids import DeviceIndex, NodeId

# Two devices. Each line of the file WORLD is one look: for each device a letter, `o` for ok,
# `l` lost, `e` one more ECC error, `r` a row that could not be remapped, `x` Xid 79, `p` 13.
LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event_t;
typedef struct { unsigned gpu, memory; } rates_t;
static char cards[2], line[8], told[2];
static unsigned long long errors[2];
static FILE *world;
static int at(void *d) { return (char *)d - cards; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *s, void **d) {
  if (s[4] != '0' && s[4] != '1') return 6;
  *d = &cards[s[4] - '0']; return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
  strncpy(s, "GPU-x", n); s[4] = '0' + at(d); return 0; }
int nvmlEventSetCreate(void **s) { *s = cards; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long t, void *s) { return 0; }
int nvmlEventSetWait_v2(void *s, event_t *event, unsigned ms) {
  if (!world) world = fopen(getenv("WORLD"), "r");
  if (!line[0] && !fgets(line, sizeof line, world)) exit(9);
  for (int i = 0; i < 2; i++)
    if ((line[i] == 'x' || line[i] == 'p') && !told[i]) {
      told[i] = 1; event->device = &cards[i]; event->type = 8;
      event->data = line[i] == 'x' ? 79 : 13; return 0; }
  return 10; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
  m->used = 1 << 20; return line[at(d)] == 'l' ? 15 : 0; }
int nvmlDeviceGetUtilizationRates(void *d, rates_t *r) {
  r->gpu = 40 + at(d); return line[at(d)] == 'r' ? 3 : 0; }
int nvmlDeviceGetTotalEccErrors(void *d, int k, int c, unsigned long long *n) {
  errors[at(d)] += line[at(d)] == 'e'; *n = errors[at(d)]; return 0; }
int nvmlDeviceGetRemappedRows(void *d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
  *c = *u = *p = 0; *f = line[at(d)] == 'r';
  if (at(d) == 1) { line[0] = 0; told[0] = told[1] = 0; }
  return 0; }
"""
LOOK = """
import json, sys
from allotment.backends.local.device_watch import DeviceWatch
known = {"GPU-0": (0, 4), "GPU-1": (0, 5), "GPU-9": (0, 6)}
watch = DeviceWatch(lambda: known)
told = [
    [(r.device, r.ok, r.code, r.words) for r in watch.look()]
    for _ in range(int(sys.argv[1]))
]
uses = {index: (use.busy_milli, use.memory) for index, use in watch.uses().items()}
watch.close()
print(json.dumps([told, uses]))
"""


def looks(folder: Path, *world: str) -> list[list[list[object]]]:
    """Return what each look told of the devices' health."""
    return seen(folder, *world)[0]


def seen(folder: Path, *world: str) -> tuple[list[list[list[object]]], dict[str, list[int]]]:
    """Return that, and how the devices were used at the last look."""
    source, lines = folder / "nvml.c", folder / "world"
    source.write_text(LIBRARY)
    lines.write_text("".join(f"{line}\n" for line in world))
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(len(world))],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "WORLD": str(lines)},
        capture_output=True,
        text=True,
        check=True,
    )
    told, uses = json.loads(done.stdout)
    return told, uses


@pytest.mark.needs_tool("cc")
def test_every_look_tells_of_every_device_how_it_is(tmp_path: Path) -> None:
    told = looks(tmp_path, "oo", "eo", "oo", "xo", "po", "ro", "oo")
    assert [[device for device, *_ in look] for look in told] == [[4, 5]] * 7
    assert [look[0][1:3] for look in told] == [
        [True, ""],
        [False, "gpu_ecc"],
        [True, ""],
        [False, "gpu_fault"],
        [True, ""],
        [False, "gpu_ecc"],
        [True, ""],
    ]
    assert all(look[1][1] for look in told)
    assert told[3][0][3] == "the driver reported Xid 79"


@pytest.mark.needs_tool("cc")
def test_a_device_that_fell_off_the_bus_is_told_as_long_as_it_is_gone(tmp_path: Path) -> None:
    told = looks(tmp_path, "lo", "lo", "oo")
    assert [look[0][1:3] for look in told] == [
        [False, "gpu_lost"],
        [False, "gpu_lost"],
        [True, ""],
    ]


@pytest.mark.needs_tool("cc")
def test_the_use_of_a_device_is_told_as_far_as_it_says_it(tmp_path: Path) -> None:
    assert seen(tmp_path, "oo")[1] == {"4": [400, 1 << 20], "5": [410, 1 << 20]}
    assert list(seen(tmp_path, "or")[1]) == ["4"]
    assert list(seen(tmp_path, "oo", "lo")[1]) == ["5"]


def test_what_was_counted_before_we_looked_is_no_news() -> None:
    assert trouble_in(None, Look(ecc=7)) == ("", "")
    assert trouble_in(Look(ecc=7), Look(ecc=7)) == ("", "")
    assert trouble_in(Look(ecc=7), Look(ecc=0)) == ("", ""), "the driver was loaded anew"
    assert trouble_in(Look(lost="?"), Look(ecc=7)) == ("", ""), "unknown before"
    assert trouble_in(Look(ecc=7), Look(ecc=9))[1] == "2 new uncorrectable ECC error(s)"


def test_faults_of_programs_are_not_the_devices() -> None:
    assert [xid for xid in (13, 31, 43, 45, 48, 63, 79, 94, 144) if is_hardware(xid)] == [
        48, 63, 79, 94, 144,
    ]  # fmt: skip


def test_devices_the_configuration_does_not_have_are_not_told_of() -> None:
    known = {"a": (NodeId(0), DeviceIndex(1))}
    (report,) = reports({}, {"a": Look(), "b": Look(lost="?")}, known)
    assert (report.device, report.ok) == (1, True)
