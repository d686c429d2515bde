"""This machine's real devices, looked at through NVML again and again.

A look is plain values; what it tells of a device's health is a pure function of it and the
look before. Counters count from when we first look: what broke before, and was put right by
a reset of the driver, is no news. Every device is told of after every look, well or not, so
that a service that was restarted hears what still stands.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pynvml as _untyped  # pyright: ignore[reportMissingTypeStubs]

from allotment.model.diagnosis import GpuUse
from allotment.model.health import HealthReport, Source
from allotment.model.ids import DeviceIndex, NodeId

nvml: Any = _untyped
"""The maker's library has no types; what it gives is converted where it comes in."""

LOOK_EVERY_S = 15.0

Known = Mapping[str, tuple[NodeId, DeviceIndex]]
"""The node and index of each real device in the configuration, by UUID."""
Locate = Callable[[], Known]

MOST_EVENTS = 64
"""Xid errors taken in one look; more come with the next."""


class Look(msgspec.Struct, frozen=True):
    """What NVML says of one device."""

    lost: str = ""
    """Why it does not answer; empty when it does."""
    ecc: int = 0
    """Uncorrectable memory errors since the driver was loaded; 0 where not counted."""
    remap_failed: bool = False
    """A row of its memory is broken and could not be replaced by a spare one."""
    xids: tuple[int, ...] = ()
    """Xid errors since the last look."""
    use: GpuUse | None = None
    """None where it does not say."""


def trouble_in(before: Look | None, now: Look) -> tuple[str, str]:
    """Return what is wrong with a device, as a code and in words; empty if nothing is."""
    if now.lost:
        return "gpu_lost", f"the device does not answer: {now.lost}"
    if now.remap_failed:
        return "gpu_ecc", "a broken row of its memory could not be replaced"
    if before is not None and now.ecc > before.ecc and not before.lost:
        return "gpu_ecc", f"{now.ecc - before.ecc} new uncorrectable ECC error(s)"
    bad = sorted({xid for xid in now.xids if is_hardware(xid)})
    if bad:
        return "gpu_fault", f"the driver reported Xid {', '.join(map(str, bad))}"
    return "", ""


def is_hardware(xid: int) -> bool:
    """Whether an Xid error is the device's fault; most others are the program's."""
    single = {48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120}
    return xid in single or 140 <= xid <= 149


def reports(
    before: Mapping[str, Look], now: Mapping[str, Look], known: Known
) -> list[HealthReport]:
    """Turn a look at all devices into reports on those of the configuration."""
    found: list[HealthReport] = []
    for uuid, look in now.items():
        if uuid in known:
            node, device = known[uuid]
            code, words = trouble_in(before.get(uuid), look)
            found.append(
                HealthReport(node, Source.DRIVER, not code, device, code=code, words=words)
            )
    return found


class DeviceWatch:
    """Keeps NVML open, and what the last look saw. Calls block: use a thread."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._handles: dict[str, Any] = {}
        self._last: dict[str, Look] = {}
        self._events: Any = None
        self._open = False

    def look(self) -> list[HealthReport]:
        """Look at all devices that the configuration has; nothing to do where it has none."""
        known = self._locate()
        if not known or not self._reach(known):
            return []
        xids = self._new_xids()
        now = {uuid: _look_at(self._handles[uuid], xids.get(uuid, ())) for uuid in known
               if uuid in self._handles}  # fmt: skip
        told = reports(self._last, now, known)
        self._last |= now
        return told

    def uses(self) -> dict[int, GpuUse]:
        """Return how devices were used at the last look."""
        known = self._locate()
        return {
            known[uuid][1]: look.use
            for uuid, look in self._last.items()
            if uuid in known and look.use is not None
        }

    def close(self) -> None:
        """Let go of the library."""
        if self._open:
            self._open = False
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _reach(self, known: Iterable[str]) -> bool:
        """Open the library, and find devices not found before."""
        try:
            if not self._open:
                nvml.nvmlInit()
                self._open = True
        except nvml.NVMLError:
            return False
        for uuid in known:
            if uuid not in self._handles:
                with suppress(nvml.NVMLError):
                    self._handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
                    self._listen(self._handles[uuid])
        return True

    def _listen(self, handle: Any) -> None:
        if self._events is None:
            self._events = nvml.nvmlEventSetCreate()
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _new_xids(self) -> dict[str, tuple[int, ...]]:
        """Take the Xid errors that came since the last look, by device."""
        found: dict[str, tuple[int, ...]] = {}
        for uuid, xid in self._waiting_events():
            found[uuid] = (*found.get(uuid, ()), xid)
        return found

    def _waiting_events(self) -> Iterator[tuple[str, int]]:
        if self._events is None:
            return
        for _ in range(MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                yield str(nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)
            except nvml.NVMLError:
                return  # None is left, or its device does not answer.


def _look_at(handle: Any, xids: Sequence[int]) -> Look:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return Look(lost=str(error))
    ecc, remap_failed, use = 0, False, None
    with suppress(nvml.NVMLError):
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        use = GpuUse(int(rates.gpu) * 10, int(memory.used))
    with suppress(nvml.NVMLError):
        kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        ecc = int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))
    with suppress(nvml.NVMLError):
        remap_failed = bool(nvml.nvmlDeviceGetRemappedRows(handle)[3])
    return Look("", ecc, remap_failed, tuple(xids), use)
