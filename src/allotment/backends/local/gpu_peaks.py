"""How much of their devices tasks used at most, by the looks of the device watch. Pure."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allotment.model.diagnosis import GpuUse
from allotment.model.ids import TaskKey
from allotment.model.reports import TaskReport


class GpuPeaks:
    """The highest use seen of each running task that has whole devices to itself."""

    def __init__(self) -> None:
        self._devices: dict[TaskKey, Sequence[int]] = {}
        self._frozen: set[TaskKey] = set()
        self._most: dict[TaskKey, GpuUse] = {}

    def begin(self, key: TaskKey, devices: Sequence[int], gpu_milli: int) -> None:
        """Take note of a task that starts. Of one that shares a device nothing is known."""
        if devices and gpu_milli == 1000 * len(devices):
            self._devices[key] = devices

    def freeze(self, key: TaskKey) -> None:
        """Take note that others have a task's devices."""
        self._frozen.add(key)

    def thaw(self, key: TaskKey) -> None:
        """Take note that it has them again."""
        self._frozen.discard(key)

    def see(self, uses: Mapping[int, GpuUse]) -> None:
        """Take note of a look at all devices."""
        for key, devices in self._devices.items():
            seen = [uses[index] for index in devices if index in uses]
            if key in self._frozen or len(seen) < len(devices):
                continue
            most = self._most.get(key, GpuUse())
            self._most[key] = GpuUse(
                max(most.busy_milli, sum(use.busy_milli for use in seen)),
                max(most.memory, sum(use.memory for use in seen)),
            )

    def end(self, report: TaskReport) -> TaskReport:
        """Return the report of a task's end, with what was seen of its devices."""
        self._devices.pop(report.key, None)
        self._frozen.discard(report.key)
        most = self._most.pop(report.key, None)
        if most is None or report.exit is None:
            return report
        usage = replace(report.exit.usage, gpu=most)
        return replace(report, exit=replace(report.exit, usage=usage))
