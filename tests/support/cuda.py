"""A driver and an NVML of the tests' own, for one device that exists in a folder only.

Programs have memory of it by `cuMemAlloc`; whoever asks for a checkpoint of one by its pid
moves it away, as libcuda does. A file for each process holds `STATE BYTES`. Processes are told
apart by their number and PID namespace, as tasks have one of their own. A file `fault` makes a
call fail (`fails CALL`), hang (`hangs CALL`), leave the process unusable (`breaks CALL`), or
lose a bit
(`forgets`). `/dev/zero` is the device's file.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

UUID = "GPU-of-a-test"
DEVICE_FILE = "/dev/zero"
TOTAL = 2 << 30

_COMMON = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int key(const char *pid, char *path, size_t size) {
  char link[64], ns[64], status[64], line[256]; int inner = -1; ssize_t n; FILE *f;
  const char *world = getenv("XDG_TEST_CUDA");
  snprintf(link, sizeof link, "/proc/%s/ns/pid", pid);
  if (!world || (n = readlink(link, ns, sizeof ns - 1)) < 0) return -1;
  ns[n] = 0;
  snprintf(status, sizeof status, "/proc/%s/status", pid);
  if (!(f = fopen(status, "r"))) return -1;
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, "NSpid:", 6)) {
      char *last = strrchr(line, '\t'); inner = last ? atoi(last) : -1; }
  fclose(f);
  snprintf(path, size, "%s/%s-%d", world, ns, inner);
  for (char *c = path + strlen(world) + 1; *c; c++)
    if (*c == ':' || *c == '[' || *c == ']') *c = '_';
  return 0;
}
static int load(const char *path, int *state, long long *bytes) {
  FILE *f = fopen(path, "r"); if (!f) return -1;
  int n = fscanf(f, "%d %lld", state, bytes); fclose(f); return n == 2 ? 0 : -1;
}
static void save(const char *path, int state, long long bytes) {
  char made[600]; snprintf(made, sizeof made, "%s.tmp", path);
  FILE *f = fopen(made, "w"); if (!f) return;
  fprintf(f, "%d %lld", state, bytes); fclose(f); rename(made, path);
}
"""
_CUDA = (
    _COMMON
    + r"""
#define STATE_OF(p) char who[16], path[512]; int state; long long bytes; \
  snprintf(who, sizeof who, "%d", p); \
  if (key(who, path, sizeof path) || load(path, &state, &bytes)) return 1;
static char own[512]; static int device = -1;
static int fault(const char *kind, const char *call) {
  char path[512], wanted[64], found[64] = "";
  snprintf(path, sizeof path, "%s/fault", getenv("XDG_TEST_CUDA"));
  snprintf(wanted, sizeof wanted, "%s %s", kind, call);
  FILE *f = fopen(path, "r"); if (!f) return 0;
  if (!fgets(found, sizeof found, f)) found[0] = 0;
  fclose(f); return !strcmp(found, wanted);
}
static void *follow(void *_) {
  for (;; usleep(2000)) {
    int state; long long bytes; if (load(own, &state, &bytes)) continue;
    if (state == 2 && device >= 0) { close(device); device = -1; }
    if (state != 2 && device < 0) device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  }
}
int cuInit(unsigned f) { return getenv("XDG_TEST_CUDA") ? 0 : 100; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int e, const char **s) {
  *s = e == 1 ? "CUDA_ERROR_INVALID_VALUE" : e == 600 ? "CUDA_ERROR_NOT_READY" :
       e == 401 ? "CUDA_ERROR_ILLEGAL_STATE" : "CUDA_ERROR_UNKNOWN"; return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = own; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, size_t n) {
  pthread_t t; void *m = malloc(n); if (!m || key("self", own, sizeof own)) return 2;
  device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  save(own, 0, n + (300 << 20)); pthread_create(&t, 0, follow, 0);
  *p = (unsigned long long)m; return 0; }
int cuMemsetD32_v2(unsigned long long p, unsigned v, size_t n) {
  for (size_t i = 0; i < n; i++) ((unsigned *)p)[i] = v; return 0; }
int cuMemcpyDtoH_v2(void *h, unsigned long long p, size_t n) {
  memcpy(h, (void *)p, n); if (fault("forgets", "")) ((char *)h)[n - 1] ^= 1; return 0; }
int cuCheckpointProcessGetState(int p, int *s) { STATE_OF(p) *s = state; return 0; }
static int change(int p, const char *call, int from, int to) {
  STATE_OF(p)
  while (fault("hangs", call)) usleep(10000);
  if (fault("fails", call)) return 600;
  if (fault("breaks", call)) { save(path, 3, bytes); return 999; }
  if (state != from) return 401;
  save(path, to, bytes); return 0; }
int cuCheckpointProcessLock(int p, void *a) { return change(p, "lock", 0, 1); }
int cuCheckpointProcessCheckpoint(int p, void *a) { return change(p, "checkpoint", 1, 2); }
int cuCheckpointProcessRestore(int p, void *a) { return change(p, "restore", 2, 1); }
int cuCheckpointProcessUnlock(int p, void *a) { return change(p, "unlock", 1, 0); }
"""
)
_NVML = (
    _COMMON
    + r"""
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { unsigned gpu, memory; } rates_t;
static char card;
static unsigned users(process_t *found, unsigned most) {
  unsigned n = 0; DIR *d = opendir("/proc"); struct dirent *e; char path[512];
  while (d && (e = readdir(d))) {
    int state; long long bytes;
    if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
    if (key(e->d_name, path, sizeof path)) continue;
    if (load(path, &state, &bytes) || state == 2) continue;
    if (found && n < most) found[n] = (process_t){atoi(e->d_name), bytes, -1, -1};
    n++;
  }
  if (d) closedir(d);
  return n;
}
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.1", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &card; return 0; }
int nvmlDeviceGetHandleByUUID(const char *s, void **d) {
  *d = &card; return strcmp(s, "GPU-of-a-test") ? 6 : 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) {
  strncpy(s, "NVIDIA H100 80GB HBM3", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
  strncpy(s, "GPU-of-a-test", n); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, rates_t *r) { r->gpu = r->memory = 40; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
  process_t found[64]; unsigned n = users(found, 64);
  m->total = 2ULL << 30; m->used = 480ULL << 20;
  for (unsigned i = 0; i < n && i < 64; i++) m->used += found[i].used;
  m->free = m->total - m->used; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process_t *found) {
  unsigned most = *n; *n = users(found, most); return *n > most ? 7 : 0; }
"""
)


def build(folder: Path) -> Mapping[str, str]:
    """Make the libraries; return the variables with which programs find them and the device."""
    world = folder / "world"
    world.mkdir()
    for name, text in (("libcuda.so.1", _CUDA), ("libnvidia-ml.so.1", _NVML)):
        source = folder / f"{name}.c"
        source.write_text(text)
        words = [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-w",
            "-o",
            folder / name,
            source,
            "-lpthread",
        ]
        subprocess.run(words, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "XDG_TEST_CUDA": str(world)}


def faulty(folder: Path, fault: str) -> None:
    """Have a call go wrong from now on; '' for none."""
    path = folder / "world" / "fault"
    path.unlink(missing_ok=True)
    if fault:
        path.write_text(fault)
