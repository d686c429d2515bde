"""The driver's own library: the calls that take device memory from a process, by its pid.

They are in libcuda since driver 570 (CUDA 12.8), for Linux; see "CUDA Checkpointing" in the
CUDA Driver API. They need the rights to trace the process. Only Python's own library is used.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from allotment.backends.local.driver.steps import State, Step

LIBRARY: Final = "libcuda.so.1"
CALLS: Final = (
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
)


class DriverError(Exception):
    """A call that the driver refused: which, and its name for why."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.call = call
        self.name = name


class _LockArgs(ctypes.Structure):
    """`CUcheckpointLockArgs`, 64 bytes."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class LibCuda:
    """The library, opened and initialised. Raises DriverError where it cannot be used.

    Initialised, it also keeps the driver loaded, which restoring needs where the driver has no
    persistence mode.
    """

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DriverError(LIBRARY, str(error)) from error
        missing = [name for name in CALLS if not hasattr(self._library, name)]
        if missing:
            raise DriverError(LIBRARY, f"has no {missing[0]}: it is older than driver 570")
        self._call("cuInit", 0)

    def _call(self, function: str, *arguments: object) -> None:
        result = int(getattr(self._library, function)(*arguments))
        if result:
            raise DriverError(function, self._name_of(result))

    def _name_of(self, result: int) -> str:
        name = ctypes.c_char_p()
        if self._library.cuGetErrorName(result, ctypes.byref(name)) or not name.value:
            return f"error {result}"
        return name.value.decode(errors="replace")

    def version(self) -> int:
        """Return the newest CUDA version that the driver knows: 13000 for 13.0."""
        found = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    def state(self, pid: int) -> State:
        """Return how far a process is; Raises DriverError where it does not use CUDA."""
        found = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", ctypes.c_int(pid), ctypes.byref(found))
        return State(found.value)

    def do(self, step: Step, pid: int, lock_ms: int) -> None:
        """Carry out one step; locking waits for at most `lock_ms`. Raises DriverError."""
        steps: dict[Step, Callable[[], None]] = {
            Step.LOCK: lambda: self._lock(pid, lock_ms),
            Step.CHECKPOINT: lambda: self._plain("Checkpoint", pid),
            Step.RESTORE: lambda: self._plain("Restore", pid),
            Step.UNLOCK: lambda: self._plain("Unlock", pid),
        }
        steps[step]()

    def _lock(self, pid: int, lock_ms: int) -> None:
        arguments = _LockArgs(timeout_ms=lock_ms)
        self._call("cuCheckpointProcessLock", ctypes.c_int(pid), ctypes.byref(arguments))

    def _plain(self, what: str, pid: int) -> None:
        self._call(f"cuCheckpointProcess{what}", ctypes.c_int(pid), None)
