"""From a model and a seed to jobs, in order of submission, one at a time.

Drawn twice: first to sum up, then for good. So the jobs spread over exactly the wanted time,
whatever chance gives, and nothing is held in memory.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

from allotment.model.quantity import Resources
from allotment.sim.generate.calendar import START_MS, weekly
from allotment.sim.generate.curve import ALL_PPM, DRAW_BITS, drawer
from allotment.sim.generate.loading import (
    LONGEST_SPAN_MS,
    Reached,
    SubmitPeriod,
    WorkSum,
    fitted,
    reached,
)
from allotment.sim.generate.model import BadModel, Model, Size, check
from allotment.sim.trace import Ending, TraceJob

MOST_JOBS = 100_000_000
"""A file of gigabytes; more is a slip of the finger."""

Asked = tuple[str, int, Resources, int]
"""Tenant, tasks, what each needs, devices of all in thousandths."""


def generate(
    model: Model, jobs: int, seed: int, load: float | None = None, capacity_milli: int = 0
) -> Iterator[TraceJob]:
    """Draw so many jobs; the same model and numbers give the same jobs everywhere.

    They come as `planned`. Raises BadModel before the first job.
    """
    span, _ = planned(model, jobs, seed, load, capacity_milli)
    return drawn(model, jobs, seed, span)


def planned(
    model: Model, jobs: int, seed: int, load: float | None = None, capacity_milli: int = 0
) -> tuple[SubmitPeriod, Reached | None]:
    """Choose when so many jobs come; with a load, say also what they come to.

    They come at the model's rate, or at the rate that makes the load `load` of a cluster of
    `capacity_milli` thousandths of a device (see `loading`). A model of a single moment (one
    job, or all at once) has no rate: without a load its jobs come all at once, too. Raises
    BadModel for a model or number that cannot be used.
    """
    check(model)
    _check_asked(model, jobs, seed, load, capacity_milli)
    if load is None:
        return SubmitPeriod(_at_own_rate(model, jobs)), None
    draw, work = _work(model, seed), WorkSum(capacity_milli)
    for _ in range(jobs):
        (_, _, _, gpu_milli), run_ms = draw()
        work.add(gpu_milli, run_ms)

    def measure(span: SubmitPeriod) -> Reached:
        draw = _work(model, seed)
        told = (
            (submit_ms, asked[3], run_ms)
            for submit_ms in _arrivals(model, jobs, seed, span.length_ms)
            for asked, run_ms in (draw(),)
        )
        return reached(told, START_MS + span.length_ms, span, capacity_milli)

    return fitted(work, load, measure)


def drawn(model: Model, jobs: int, seed: int, span: SubmitPeriod) -> Iterator[TraceJob]:
    """Draw the jobs of a plan."""
    when = _arrivals(model, jobs, seed, span.length_ms)
    work = _work(model, seed)
    ending = _endings(model, seed)
    for number, submit_ms in enumerate(when, 1):
        (tenant, tasks, need, _), run_ms = work()
        run_ms = min(run_ms, span.longest_ms)
        yield TraceJob(str(number), submit_ms, run_ms, tasks, need, tenant, ending=ending())


def _check_asked(
    model: Model, jobs: int, seed: int, load: float | None, capacity_milli: int
) -> None:
    if jobs < 1:
        raise BadModel(f"{jobs} jobs: there must be at least 1")
    if jobs > MOST_JOBS:
        raise BadModel(f"{jobs:,} jobs: there may be at most {MOST_JOBS:,}")
    if seed < 0:
        raise BadModel(f"seed {seed}: it must be 0 or more")
    if load is None:
        return
    if not 0 < load < float("inf"):
        raise BadModel(f"load {load}: it must be more than 0, such as 0.8")
    if capacity_milli < 1:
        raise BadModel("a load needs the size of the cluster it is for (its devices)")


def _at_own_rate(model: Model, jobs: int) -> int:
    span_ms = model.span_ms * (jobs - 1) // max(model.jobs - 1, 1)
    if span_ms > LONGEST_SPAN_MS:
        raise BadModel(f"at the model's rate {jobs} jobs would take millions of years")
    return span_ms


def _arrivals(model: Model, jobs: int, seed: int, span_ms: int) -> Iterator[int]:
    calendar = weekly(model.hours, model.days, model.busy, _stream(seed, "rhythm"))
    draw = drawer(model.gaps, _stream(seed, "gaps"))
    whole = sum(draw() for _ in range(jobs - 1)) or 1
    draw = drawer(model.gaps, _stream(seed, "gaps"))
    steady_ms, step, passed = calendar.steady(span_ms), model.submit_step_ms, 0
    for number in range(jobs):
        if number:
            passed += draw()
        at_ms = calendar.when(steady_ms * passed // whole)
        yield START_MS + at_ms // step * step


def _work(model: Model, seed: int) -> Callable[[], tuple[Asked, int]]:
    """Make a function that draws what a job asks for, and how long it runs (ms)."""
    bits = _stream(seed, "work")
    asked, counts, classes = _choices(model)
    last = [*accumulate(counts)]
    total, step = last.pop(), model.run_step_ms
    run_of_class = [drawer(runs.run_ms, bits) for runs in model.runs]
    run_of = [run_of_class[number] for number in classes]
    half = step // 2

    def draw() -> tuple[Asked, int]:
        place = bisect_right(last, bits(DRAW_BITS) * total >> DRAW_BITS)
        run_ms = (run_of[place]() + half) // step * step
        return asked[place], run_ms or 1

    return draw


def _choices(model: Model) -> tuple[list[Asked], list[int], list[int]]:
    """Every tenant with every size: what is asked, how often, and its class of run times."""
    bounds = [runs.up_to_gpu_milli for runs in model.runs[:-1]]
    needs = [_need(size) for size in model.sizes]
    asked: list[Asked] = []
    counts: list[int] = []
    classes: list[int] = []
    for share in model.tenants:
        mix = share.sizes or model.other_sizes
        for size, need, count in zip(model.sizes, needs, mix, strict=True):
            if count and share.jobs:
                gpu_milli = size.whole_gpu_milli
                asked.append((share.name, size.tasks, need, gpu_milli))
                counts.append(count * share.jobs * ALL_PPM // sum(mix))
                classes.append(sum(bound < gpu_milli for bound in bounds))
    return asked, counts, classes


def _need(size: Size) -> Resources:
    return Resources(size.gpu_milli, size.cpu_milli, size.memory, size.disk, size.gpu_memory)


def _endings(model: Model, seed: int) -> Callable[[], Ending]:
    bits = _stream(seed, "endings")
    failed, unhappy = model.failed_ppm, model.failed_ppm + model.cancelled_ppm
    if not unhappy:
        return lambda: Ending.SUCCEEDED

    def draw() -> Ending:
        point = bits(DRAW_BITS) * ALL_PPM >> DRAW_BITS
        if point >= unhappy:
            return Ending.SUCCEEDED
        return Ending.FAILED if point < failed else Ending.CANCELLED

    return draw


STREAMS = ("rhythm", "gaps", "work", "endings")


def _stream(seed: int, name: str) -> Callable[[int], int]:
    """Chance of its own for each purpose, so that one can be drawn again without the others."""
    return Random(seed * len(STREAMS) + STREAMS.index(name)).getrandbits
