"""What a synthetic workload is drawn from: aggregate numbers, and names of tenants.

It is kept as JSON that a person can read and change by hand.
"""

import re

import msgspec

from allotment.sim.bad import BadScenario
from allotment.sim.generate.curve import ALL_PPM, Curve

VERSION = 1
HOURS = 24
DAYS = 7
BUSY_LEVELS = 8
EVEN = 1000
"""The weight of an average hour or day."""

MOST_WEIGHT = 1_000_000
"""No weight may be greater: the sums stay small, and a rate of 1000 times the mean is odd."""


class BadModel(BadScenario):
    """A workload model that cannot be used, or cannot be made. Says which key, and why."""


class Size(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What some jobs ask for: `tasks` alike tasks, each so much; and how many jobs do."""

    jobs: int
    tasks: int
    gpu_milli: int
    cpu_milli: int = 0
    """The mean over these jobs, as are memory (bytes) and disk (bytes)."""
    memory: int = 0
    disk: int = 0
    gpu_memory: int = 0
    """The mean, bytes on each device."""

    @property
    def whole_gpu_milli(self) -> int:
        """Return the devices of the whole gang, in thousandths."""
        return self.tasks * self.gpu_milli


class Runs(msgspec.Struct, frozen=True, gc=False):
    """Run times (ms) of jobs with up to so many devices and more than the class before."""

    up_to_gpu_milli: int
    run_ms: Curve


class TenantJobs(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tenant: its jobs, and how many of them have each size of `Model.sizes`."""

    name: str
    jobs: int
    sizes: tuple[int, ...] = ()
    """Empty where it had too few jobs to tell: then `Model.other_sizes` stands for it."""


class Model(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A workload: when jobs come, what they ask for, how long they run, whose they are."""

    about: str
    """Where the numbers come from, and whose they are."""
    version: int = VERSION
    jobs: int
    """Jobs of the trace this was fitted to; with `span_ms` it gives the mean rate."""
    span_ms: int
    """From its first submission to its last."""
    submit_step_ms: int = 1
    """Submissions fall on multiples of this."""
    run_step_ms: int = 1
    hours: tuple[int, ...]
    """Weight of each hour of the day, UTC, from midnight; 1000 is an average hour."""
    days: tuple[int, ...]
    """Weight of each day of the week from Monday; 1000 is an average day."""
    busy: tuple[int, ...]
    """Eight weights, equally likely, by which whole days differ beside their weekday."""
    gaps: Curve
    """Time between submissions on a clock that takes out all those rhythms, in millionths
    of its mean."""
    sizes: tuple[Size, ...]
    runs: tuple[Runs, ...]
    """By rising `up_to_gpu_milli`; the last is also for anything above."""
    tenants: tuple[TenantJobs, ...]
    other_sizes: tuple[int, ...] = ()
    failed_ppm: int = 0
    """Jobs that end in failure, in millionths of all."""
    cancelled_ppm: int = 0


def model_to_json(model: Model) -> bytes:
    """Write a model as indented JSON, each list of numbers on one line."""
    text = msgspec.json.format(msgspec.json.encode(model), indent=2).decode()
    one_line = re.sub(r"\[\n[\s\d,]+\]", lambda found: _one_line(found[0]), text)
    return one_line.encode() + b"\n"


def _one_line(numbers: str) -> str:
    return "[" + ", ".join(numbers.strip("[]").replace(",", " ").split()) + "]"


def model_from_json(text: bytes | str) -> Model:
    """Read a model. Raises BadModel that names the key which is missing or wrong."""
    try:
        model = msgspec.json.decode(text, type=Model)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadModel(f"not a workload model: {problem}") from None
    check(model)
    return model


def check(model: Model) -> None:
    """Raise BadModel, naming the key, unless jobs can be drawn from the model."""
    if model.version != VERSION:
        raise BadModel(f"version is {model.version}: this program knows {VERSION} only")
    _least("jobs", model.jobs, 1)
    _least("span_ms", model.span_ms, 0)
    _least("submit_step_ms", model.submit_step_ms, 1)
    _least("run_step_ms", model.run_step_ms, 1)
    _weights("hours", model.hours, HOURS)
    _weights("days", model.days, DAYS)
    _weights("busy", model.busy, BUSY_LEVELS)
    _curve("gaps", model.gaps)
    _check_sizes(model)
    _check_tenants(model)
    _check_endings(model)


def _check_sizes(model: Model) -> None:
    if not model.sizes:
        raise BadModel("sizes is empty: a job must ask for something")
    for place, size in enumerate(model.sizes):
        for field in size.__struct_fields__:
            least = 1 if field == "tasks" else 0
            _least(f"sizes[{place}].{field}", getattr(size, field), least)
    if not model.runs:
        raise BadModel("runs is empty: there must be run times for at least one class")
    before = -1
    for place, runs in enumerate(model.runs):
        _least(f"runs[{place}].up_to_gpu_milli", runs.up_to_gpu_milli, before + 1)
        _curve(f"runs[{place}].run_ms", runs.run_ms)
        before = runs.up_to_gpu_milli


def _check_tenants(model: Model) -> None:
    if not any(share.jobs > 0 for share in model.tenants):
        raise BadModel("tenants has no jobs: somebody must submit them")
    for place, share in enumerate(model.tenants):
        _least(f"tenants[{place}].jobs", share.jobs, 0)
        if share.sizes:
            _mix(f"tenants[{place}].sizes", share.sizes, model)
        elif share.jobs:
            _mix("other_sizes", model.other_sizes, model)


def _check_endings(model: Model) -> None:
    _least("failed_ppm", model.failed_ppm, 0)
    _least("cancelled_ppm", model.cancelled_ppm, 0)
    if model.failed_ppm + model.cancelled_ppm > ALL_PPM:
        raise BadModel(f"failed_ppm and cancelled_ppm are together more than {ALL_PPM}")


def _least(key: str, value: int, least: int) -> None:
    if value < least:
        raise BadModel(f"{key} is {value}: it must be at least {least}")


def _weights(key: str, weights: tuple[int, ...], count: int) -> None:
    if len(weights) != count:
        raise BadModel(f"{key} has {len(weights)} weights: it must have {count}")
    if any(not 0 <= weight <= MOST_WEIGHT for weight in weights) or not any(weights):
        raise BadModel(f"{key}: weights are 0 to {MOST_WEIGHT}, and not all 0")


def _curve(key: str, curve: Curve) -> None:
    fault = curve.fault()
    if fault:
        raise BadModel(f"{key}: {fault}")


def _mix(key: str, counts: tuple[int, ...], model: Model) -> None:
    if len(counts) != len(model.sizes):
        raise BadModel(f"{key} has {len(counts)} numbers for {len(model.sizes)} sizes")
    if any(count < 0 for count in counts) or not any(counts):
        raise BadModel(f"{key}: numbers of jobs must not be negative, and not all 0")
