"""How long the submissions are to take so that the jobs load a cluster as was asked.

The load is what would be in use between the first submission and the last if no job waited,
over what there is. So neither what runs on after the last submission counts, nor jobs that
are larger than the cluster. Lest most of the work lies after the last submission, no job
runs for longer than a part of the time between the two: with few jobs for a large cluster
the longest are cut, and it is told how many.
"""

from collections.abc import Callable, Iterable

import msgspec

from allotment.sim.generate.model import BadModel

PART = 2
"""The longest run is this part of the time between the first submission and the last."""

LONGEST_SPAN_MS = 1 << 60
"""As far as the readers of traces go."""

STEPS = 16
"""Classes of run times for each doubling."""

ROUNDS = 16
"""So often a span is tried and mended at most."""

CLOSE = 0.01
"""Nearer than this part of the load, nothing is mended."""


class SubmitPeriod(msgspec.Struct, frozen=True, gc=False):
    """When jobs are submitted, and for how long they run at most."""

    length_ms: int
    longest_ms: int = LONGEST_SPAN_MS


class Reached(msgspec.Struct, frozen=True, gc=False):
    """What the jobs that were drawn come to on the cluster."""

    load: float
    longest_ms: int
    """Runs were cut to this."""
    cut: int
    """So many runs."""
    too_large: int
    """Jobs that are larger than the cluster, which never run there."""


class WorkSum:
    """The work of jobs in classes of run times: enough to choose a span without them."""

    def __init__(self, capacity_milli: int) -> None:
        self._capacity = capacity_milli
        self._classes: dict[int, list[int]] = {}
        """Of each class: device-thousandths, and these times milliseconds."""
        self.jobs = 0

    def add(self, gpu_milli: int, run_ms: int) -> None:
        """Count a job, unless it asks for no device or is larger than the cluster."""
        if not 0 < gpu_milli <= self._capacity:
            return
        self.jobs += 1
        sums = self._classes.setdefault(_class(run_ms), [0, 0])
        sums[0] += gpu_milli
        sums[1] += gpu_milli * run_ms

    def load(self, span_ms: float) -> float:
        """Foresee the load of a span, if submissions were spread evenly."""
        longest = span_ms / PART
        used = 0.0
        for gpu_milli, asked in self._classes.values():
            run = min(asked / gpu_milli, longest)
            used += gpu_milli * run * (1 - run / (2 * span_ms))
        return used / (self._capacity * span_ms)

    def span_ms(self, load: float) -> float:
        """Find the span of a load, by halving. Raises BadModel where none has it."""
        if not self._classes:
            raise BadModel("a load needs jobs that ask for devices, and none of these does")
        low, high = 1.0, float(LONGEST_SPAN_MS)
        most = self.load(low)
        if most < load:
            enough = int(self.jobs * load / most) + 1
            raise BadModel(
                f"{self.jobs:,} jobs are too few for a load of {load:g}: about {enough:,} "
                "would be enough for this cluster, or take a smaller one"
            )
        if self.load(high) > load:
            raise BadModel(f"load {load} is too small: the jobs would take millions of years")
        while high / low > 1 + CLOSE / 100:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self.load(middle) > load else (low, middle)
        return high


def _class(run_ms: int) -> int:
    """Put run times that are less than a sixteenth apart together."""
    shift = max(0, run_ms.bit_length() - STEPS.bit_length())
    return shift << STEPS.bit_length() | run_ms >> shift


def reached(
    drawn: Iterable[tuple[int, int, int]], last_ms: int, span: SubmitPeriod, capacity: int
) -> Reached:
    """Sum up jobs: when each is submitted, thousandths of devices, and its uncut run time."""
    used = cut = too_large = 0
    for submit_ms, gpu_milli, run_ms in drawn:
        cut += run_ms > span.longest_ms
        if gpu_milli > capacity:
            too_large += 1
        else:
            used += gpu_milli * min(run_ms, span.longest_ms, max(0, last_ms - submit_ms))
    load = used / (capacity * max(1, span.length_ms))
    return Reached(load, span.longest_ms, cut, too_large)


def fitted(
    work: WorkSum, load: float, measure: Callable[[SubmitPeriod], Reached]
) -> tuple[SubmitPeriod, Reached]:
    """Choose the span, and mend it until the jobs of it have the load.

    The rhythm of days and weeks makes the load of a span jump: first a shorter span with more
    and a longer one with less are looked for, then what lies between them is halved.
    """
    span_ms, low, high = work.span_ms(load), 0.0, 0.0
    best = _tried(span_ms, measure)
    found = best
    for _ in range(ROUNDS):
        if _off(best, load) < CLOSE:
            break
        if found[1].load > load:
            low = span_ms
        else:
            high = span_ms
        if low and high:
            span_ms = (low * high) ** 0.5
        else:
            span_ms *= (found[1].load or load / 2) / load
        found = _tried(span_ms, measure)
        best = min(best, found, key=lambda each: _off(each, load))
    return best


def _tried(
    span_ms: float, measure: Callable[[SubmitPeriod], Reached]
) -> tuple[SubmitPeriod, Reached]:
    span = SubmitPeriod(round(span_ms), max(1, round(span_ms / PART)))
    return span, measure(span)


def _off(found: tuple[SubmitPeriod, Reached], load: float) -> float:
    return abs(found[1].load / load - 1)
