"""Take so many MiB of device memory at once, fill them, and end; 3 if they are not there.

    hog.py MEBIBYTES

Needs only the driver.
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
size = ctypes.c_size_t(int(sys.argv[1]) << 20)
calls = (
    ("cuInit", 0),
    ("cuDeviceGet", ctypes.byref(device), 0),
    ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
    ("cuCtxSetCurrent", context),
    ("cuMemAlloc_v2", ctypes.byref(memory), size),
    ("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), size),
    ("cuCtxSynchronize",),
)
for name, *arguments in calls:
    if error := getattr(cuda, name)(*arguments):
        print(f"{name}: CUDA error {error}")
        sys.exit(3)
print(f"had {sys.argv[1]} MiB", flush=True)
