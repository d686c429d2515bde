"""The most that tasks used of their devices, by looks at them now and then."""

from allotment.backends.local.gpu_peaks import GpuPeaks
from allotment.model.diagnosis import Exit, GpuUse
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.reports import Seen, TaskReport


def key(job: int) -> TaskKey:
    return TaskKey(JobId(job), AttemptNo(1), TaskIndex(0))


def used(peaks: GpuPeaks, job: int) -> GpuUse | None:
    report = peaks.end(TaskReport(key(job), Seen.ENDED, exit=Exit(code=0)))
    assert report.exit is not None
    return report.exit.usage.gpu


def test_the_most_of_all_its_devices_together_counts() -> None:
    peaks = GpuPeaks()
    peaks.begin(key(1), (0, 1), 2000)
    peaks.see({0: GpuUse(900, 10), 1: GpuUse(100, 10), 2: GpuUse(1000, 99)})
    peaks.see({0: GpuUse(400, 40), 1: GpuUse(400, 40)})
    peaks.see({0: GpuUse(1000, 90)})  # The other did not answer.
    assert used(peaks, 1) == GpuUse(1000, 80)
    assert used(peaks, 1) is None


def test_of_a_shared_device_nothing_is_said_nor_of_none() -> None:
    peaks = GpuPeaks()
    peaks.begin(key(1), (0,), 500)
    peaks.begin(key(2), (), 0)
    peaks.see({0: GpuUse(900, 10)})
    assert (used(peaks, 1), used(peaks, 2)) == (None, None)


def test_while_it_is_frozen_others_have_its_devices() -> None:
    peaks = GpuPeaks()
    peaks.begin(key(1), (0,), 1000)
    peaks.see({0: GpuUse(100, 1)})
    peaks.freeze(key(1))
    peaks.see({0: GpuUse(900, 9)})
    peaks.thaw(key(1))
    peaks.see({0: GpuUse(200, 2)})
    assert used(peaks, 1) == GpuUse(200, 2)
