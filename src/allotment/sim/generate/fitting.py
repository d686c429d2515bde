"""From a real trace to the model of a workload like it.

Kept: when jobs come (rate, rhythm, bursts), sizes, run times by size, whose jobs they are with
what sizes, how they end. Not kept: which jobs came together or resemble each other, types of
devices, users, names, priorities.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import gcd
from operator import attrgetter

import msgspec

from allotment.model.quantity import DEVICE
from allotment.sim.generate.curve import ALL_PPM, curve_of
from allotment.sim.generate.model import BadModel, Model, Runs, Size, TenantJobs
from allotment.sim.generate.rhythm import rhythm_of
from allotment.sim.trace import Ending, Trace, TraceJob

MOST_SIZES = 200
"""Rarer sizes than these are counted as the nearest of them."""

FEWEST_RUNS = 64
"""A class of sizes has at least so many jobs, if the trace has: else neighbours are pooled."""

FEWEST_FOR_MIX = 50
"""A tenant with fewer jobs shares a mix of sizes with the others like it."""

Shape = tuple[int, int]
"""Tasks, and thousandths of a device for each."""


def fit(trace: Trace) -> Model:
    """Learn a workload from a trace. Raises BadModel for one without jobs or absurd times."""
    jobs = sorted(trace.jobs, key=attrgetter("submit_ms"))
    if not jobs:
        raise BadModel(f"{trace.source or 'the trace'} has no jobs: there is nothing to fit")
    submits_ms = [job.submit_ms for job in jobs]
    rhythm = rhythm_of(submits_ms)
    stands_for = _stands_for(Counter(map(_shape, jobs)))
    sizes = _sizes(jobs, stands_for)
    tenants, other_sizes = _tenants(jobs, sizes, stands_for)
    endings = Counter(job.ending for job in jobs)
    return Model(
        about=f"Fitted to {trace.source} (digest {trace.digest}).",
        jobs=len(jobs),
        span_ms=submits_ms[-1] - submits_ms[0],
        submit_step_ms=_step(at - submits_ms[0] for at in submits_ms),
        run_step_ms=_step(job.run_ms for job in jobs),
        hours=rhythm.hours,
        days=rhythm.days,
        busy=rhythm.busy,
        gaps=rhythm.gaps,
        sizes=sizes,
        runs=_runs(jobs),
        tenants=tenants,
        other_sizes=other_sizes,
        failed_ppm=endings[Ending.FAILED] * ALL_PPM // len(jobs),
        cancelled_ppm=endings[Ending.CANCELLED] * ALL_PPM // len(jobs),
    )


def anonymous(model: Model) -> Model:
    """Call the tenants team1, team2 …, in the order they stand in: most jobs first."""
    named = [
        msgspec.structs.replace(share, name=f"team{number}")
        for number, share in enumerate(model.tenants, 1)
    ]
    return msgspec.structs.replace(model, tenants=tuple(named))


def _step(times_ms: Iterable[int]) -> int:
    """The greatest of 1 s, 100 ms, 10 ms, 1 ms that all these times are multiples of."""
    common = gcd(*times_ms)
    return gcd(common, 1000) or 1


def _shape(job: TraceJob) -> Shape:
    return job.tasks, job.need.gpu_milli


def _stands_for(counts: Counter[Shape]) -> dict[Shape, Shape]:
    """For every shape the one that is kept for it: itself, or the nearest by devices."""
    common = sorted(counts, key=lambda shape: (-counts[shape], shape))[:MOST_SIZES]

    def nearest(shape: Shape) -> Shape:
        devices = shape[0] * shape[1]
        return min(common, key=lambda kept: (abs(kept[0] * kept[1] - devices), kept))

    kept = set(common)
    return {shape: shape if shape in kept else nearest(shape) for shape in sorted(counts)}


def _sizes(jobs: Sequence[TraceJob], stands_for: dict[Shape, Shape]) -> tuple[Size, ...]:
    """The kept shapes, fewest devices first, each with its mean CPU, memory and disk."""
    alike: dict[Shape, list[TraceJob]] = {shape: [] for shape in stands_for.values()}
    for job in jobs:
        alike[stands_for[_shape(job)]].append(job)
    ordered = sorted(alike, key=lambda shape: (shape[0] * shape[1], shape))
    return tuple(_size(shape, alike[shape]) for shape in ordered)


def _size(shape: Shape, jobs: Sequence[TraceJob]) -> Size:
    def mean(resource: str) -> int:
        return sum(getattr(job.need, resource) for job in jobs) // len(jobs)

    return Size(
        len(jobs), *shape, mean("cpu_milli"), mean("memory"), mean("disk"), mean("gpu_memory")
    )


def _runs(jobs: Sequence[TraceJob]) -> tuple[Runs, ...]:
    """Run times by class of size, each class with enough jobs."""
    by_bound: dict[int, list[int]] = {}
    for job in jobs:
        by_bound.setdefault(_bound(job.gpu_milli), []).append(job.run_ms)
    pooled: list[tuple[int, list[int]]] = []
    few: list[int] = []
    for bound in sorted(by_bound):
        few = few + by_bound[bound]
        if len(few) >= FEWEST_RUNS:
            pooled.append((bound, few))
            few = []
    if few:
        runs_before = pooled.pop()[1] if pooled else []
        pooled.append((max(by_bound), runs_before + few))
    return tuple(Runs(bound, curve_of(runs)) for bound, runs in pooled)


def _bound(gpu_milli: int) -> int:
    """The upper end of its class: no device, a share of one, 1, 2, 4, 8 … devices."""
    if gpu_milli < DEVICE:
        return DEVICE - 1 if gpu_milli else 0
    return DEVICE << (-(-gpu_milli // DEVICE) - 1).bit_length()


def _tenants(
    jobs: Sequence[TraceJob], sizes: Sequence[Size], stands_for: dict[Shape, Shape]
) -> tuple[tuple[TenantJobs, ...], tuple[int, ...]]:
    """Tenants with their mixes of sizes, and the mix of all those with too few jobs."""
    places = {(size.tasks, size.gpu_milli): place for place, size in enumerate(sizes)}
    place_of = {shape: places[kept] for shape, kept in stands_for.items()}
    counts: dict[str, list[int]] = {}
    for job in jobs:
        mix = counts.setdefault(job.tenant, [0] * len(sizes))
        mix[place_of[_shape(job)]] += 1
    others = [0] * len(sizes)
    shares: list[TenantJobs] = []
    for name in sorted(counts, key=lambda name: (-sum(counts[name]), name)):
        mix, total = counts[name], sum(counts[name])
        if total < FEWEST_FOR_MIX:
            others = list(map(int.__add__, others, mix))
        shares.append(TenantJobs(name, total, tuple(mix) if total >= FEWEST_FOR_MIX else ()))
    return tuple(shares), tuple(others) if any(others) else ()
