"""A tiny CUDA program: it fills device memory, and says later whether that is still the same.

    python -m …target BYTES      prints `ready`, reads a line, prints `same` or `differs`

What the self-test takes memory from. Needs only the driver and Python's own library.
"""

import ctypes
import struct
import sys
from typing import Any, Final

CHUNK: Final = 64 << 20
"""Bytes that are filled with one number, and looked at as a whole."""


def main() -> None:
    """Fill, wait to be told, compare. Ends with 1 where the driver refuses."""
    size = int(sys.argv[1])
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        memory = _filled(cuda, size)
        print("ready", flush=True)
        sys.stdin.readline()
        print("same" if _is_same(cuda, memory, size) else "differs", flush=True)
    except OSError as error:
        print(f"failed {error}", flush=True)
        sys.exit(1)


def _filled(cuda: Any, size: int) -> int:
    """Take device memory and fill each part of it with a number of its own."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _call(cuda, "cuInit", 0)
    _call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(cuda, "cuCtxSetCurrent", context)
    _call(cuda, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    for start in range(0, size, CHUNK):
        count = ctypes.c_size_t(min(CHUNK, size - start) // 4)
        at = ctypes.c_uint64(memory.value + start)
        _call(cuda, "cuMemsetD32_v2", at, ctypes.c_uint(_number_at(start)), count)
    _call(cuda, "cuCtxSynchronize")
    return memory.value


def _is_same(cuda: Any, memory: int, size: int) -> bool:
    host = ctypes.create_string_buffer(CHUNK)
    for start in range(0, size, CHUNK):
        length = min(CHUNK, size - start) // 4 * 4
        at = ctypes.c_uint64(memory + start)
        _call(cuda, "cuMemcpyDtoH_v2", host, at, ctypes.c_size_t(length))
        if host.raw[:length] != struct.pack("<I", _number_at(start)) * (length // 4):
            return False
    return True


def _number_at(start: int) -> int:
    return (0x9E3779B1 * (start // CHUNK + 1)) & 0xFFFFFFFF


def _call(cuda: Any, function: str, *arguments: object) -> None:
    result = int(getattr(cuda, function)(*arguments))
    if result:
        raise OSError(f"{function}: CUDA error {result}")
