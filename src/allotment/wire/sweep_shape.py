"""Sweeps as they are written in job files: parameters, how they are drawn and compared."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from allotment.model.sweeps import MOST_RUNGS, Axis, Goal, Halving, Range, Sampler, Scale, Sweep
from allotment.sweeps.draw import combinations_of
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import read_duration, read_hours, read_whole
from allotment.wire.fields import Variable
from allotment.wire.grids import read_values
from allotment.wire.text import shown
from allotment.wire.words import read_line

MOST_TRIALS = 10_000
MOST_VALUES = 10_000
"""Of all parameters together: the sweep keeps them, beyond its jobs."""
MOST_STUDIED = 1_000
"""Trials that are proposed: each proposal looks at all before it."""
MOST_STUDIED_VALUES = 100
"""Likewise: the values of all parameters together, one for each range."""
MOST_ETA = 100
MOST_SEED = (1 << 63) - 1
LONGEST_METRIC = 64
SPANS = ", ".join(scale.value for scale in Scale)
LIKE = "write it like [0.1, 0.01], 1..5 or {log: [1e-5, 1e-1]}"


def read_axis(value: object) -> Axis:
    """Read the values of a parameter: a list, a range, or a range such as `{log: [1, 9]}`."""
    if not isinstance(value, dict):
        return read_values(value)
    items = cast("dict[object, object]", value)
    if len(items) != 1 or next(iter(items)) not in tuple(Scale):
        raise Amiss(f"must have one key, of {SPANS}", LIKE)
    ((key, ends),) = items.items()
    scale = Scale(str(key))
    pair = _listed(ends)
    if pair is None or len(pair) != 2:
        raise not_a("a list of two numbers, the lower first", ends, LIKE)
    low, high = (_number(end, scale) for end in pair)
    if low >= high:
        ends = " to ".join(map(shown, pair))
        raise Amiss(f"must rise: {ends} does not", "write the lower number first")
    if not math.isfinite(high - low):
        raise Amiss("spans more than a number can hold", "take ends that are nearer, or `log`")
    if scale is Scale.LOG and low <= 0:
        raise Amiss("must begin above 0 on a scale of powers", "use `uniform`, or another end")
    return Range(scale, low, high)


def _listed(value: object) -> Sequence[object] | None:
    is_list = isinstance(value, (list, tuple))
    return cast("Sequence[object]", value) if is_list else None


def _number(value: object, scale: Scale) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise not_a("a number", value, LIKE)
    if scale is Scale.INT and (number != int(number) or abs(number) >= 1 << 53):
        raise not_a("a whole number", value, "use `uniform` for others")
    return number


def read_metric(value: object) -> str:
    """Read the name of a metric."""
    name = read_line(value)
    if not name or len(name) > LONGEST_METRIC:
        raise Amiss(
            f"must have 1 to {LONGEST_METRIC} characters", "name what the trials report: loss"
        )
    return name


def read_goal(value: object) -> Goal:
    """Read which values are better."""
    if value not in tuple(Goal):
        raise not_a("minimize or maximize", value)
    return Goal(str(value))


def read_rungs(value: object) -> tuple[tuple[int, ...], bool]:
    """Read the steps, or run times, at which trials are compared; return whether times."""
    hint = "write steps like [100, 300, 900], or run times like [1min, 3min]"
    items = _listed(value)
    if not items:
        raise not_a("a list of steps or of run times", value, hint)
    if len(items) > MOST_RUNGS:
        raise Amiss(f"has {len(items)} rungs, and {MOST_RUNGS} are accepted", "take fewer")
    times = [isinstance(item, str) and not item.strip().isdecimal() for item in items]
    if any(times) and not all(times):
        raise Amiss("mixes steps and run times", hint)
    found = tuple(_rung(item, at, is_time=all(times)) for at, item in enumerate(items))
    if any(second <= first for first, second in pairwise(found)):
        raise Amiss("must rise", hint)
    return found, all(times)


def _rung(item: object, at: int, *, is_time: bool) -> int:
    try:
        if is_time:
            return read_duration(item)
        return read_whole(
            int(item) if isinstance(item, str) else item, 1, (1 << 53) - 1, "a step"
        )
    except Amiss as amiss:
        amiss.at = (at,)
        raise


Axis_: TypeAlias = Annotated[
    Axis,
    PlainValidator(
        read_axis,
        json_schema_input_type=list[str | float | bool] | str | dict[Scale, list[float]],
    ),
]
Count = Annotated[
    int,
    PlainValidator(
        lambda value: read_whole(value, 1, MOST_TRIALS, "how many trials are drawn"),
        json_schema_input_type=int,
    ),
]
Seed = Annotated[
    int,
    PlainValidator(
        lambda value: read_whole(value, 0, MOST_SEED, "a seed"), json_schema_input_type=int
    ),
]
Eta = Annotated[
    int,
    PlainValidator(
        lambda value: read_whole(value, 2, MOST_ETA, "one part in how many continues"),
        json_schema_input_type=int,
    ),
]
GpuHours = Annotated[int, PlainValidator(read_hours, json_schema_input_type=float)]
CpuHours = Annotated[
    int,
    PlainValidator(lambda value: read_hours(value, "CPU-hours"), json_schema_input_type=float),
]
Metric = Annotated[str, PlainValidator(read_metric, json_schema_input_type=str)]
GoalWord = Annotated[Goal, PlainValidator(read_goal, json_schema_input_type=Goal)]
Rungs = Annotated[
    tuple[tuple[int, ...], bool],
    PlainValidator(read_rungs, json_schema_input_type=list[int | str]),
]


class SweepPart(BaseModel):
    """A map of known keys of a sweep; any other key is a problem."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RandomShape(SweepPart):
    """Trials that are drawn: how many, and with which seed."""

    count: Count
    seed: Seed | None = None


class OptunaShape(SweepPart):
    """Trials that Optuna proposes, each from those before it: how many, and with which seed."""

    count: Annotated[
        int,
        PlainValidator(
            lambda value: read_whole(value, 1, MOST_STUDIED, "how many trials are proposed"),
            json_schema_input_type=int,
        ),
    ]
    seed: Seed | None = None


class HalvingShape(SweepPart):
    """When trials are compared, and how many go on: one in `eta`."""

    rungs: Rungs = Field(examples=["[100, 300, 900]"])
    eta: Eta = 3


class SweepShape(SweepPart):
    """Trials of parameters, instead of a `grid`."""

    parameters: dict[Variable, Axis_] = Field(examples=["{lr: {log: [1e-5, 1e-1]}}"])
    random: RandomShape | None = Field(default=None, examples=["{count: 27, seed: 7}"])
    optuna: OptunaShape | None = Field(default=None, examples=["{count: 60, seed: 7}"])
    metric: Metric = Field(default="", examples=["loss"])
    goal: GoalWord = Goal.MINIMIZE
    halving: HalvingShape | None = Field(default=None, examples=["{rungs: [100, 300, 900]}"])
    gpu_hours: GpuHours = 0
    cpu_hours: CpuHours = 0

    @model_validator(mode="after")
    def _drawn_or_listed(self) -> "SweepShape":
        if not self.parameters:
            raise Amiss("has no parameter", LIKE, at=("parameters",))
        made, chosen = combinations_of(tuple(self.parameters.items())), self._chosen
        if made is None and chosen is None:
            spans = [name for name, axis in self.parameters.items() if isinstance(axis, Range)]
            raise Amiss(
                f"has values between two ends ({', '.join(spans)}), so trials must be drawn",
                "add random: {count: 20}, or list the values",
                at=("parameters",),
            )
        if made is not None and chosen is not None and chosen.count > made:
            key = "random" if self.random else "optuna"
            message = f"is {chosen.count:,}, and there are only {made:,} combinations"
            raise Amiss(message, f"take `{key}` out to try all", at=(key, "count"))
        if made is not None and chosen is None and made > MOST_TRIALS:
            many = (
                f"{made:,}" if made < 10**15 else "more than 10^15"
            )  # It may have any length.
            message = f"make {many} trials, and {MOST_TRIALS:,} are accepted"
            raise Amiss(message, "draw some: random: {count: 100}", at=("parameters",))
        axes = self.parameters.values()
        values = sum(1 if isinstance(axis, Range) else len(axis) for axis in axes)
        if values > MOST_VALUES:
            message = f"have {values:,} values, and {MOST_VALUES:,} are accepted"
            raise Amiss(message, "draw from two ends: {int: [1, 100000]}", at=("parameters",))
        return self

    @model_validator(mode="after")
    def _can_be_studied(self) -> "SweepShape":
        if self.optuna is None:
            return self
        if self.random is not None:
            message = (
                "cannot be used together with `random`: only one of them chooses the trials"
            )
            raise Amiss(message, "keep one of the two", at=("optuna",))
        if not self.metric:
            message = "is missing, and `optuna` learns from it"
            raise Amiss(message, "add metric: loss", at=("metric",))
        axes = self.parameters.values()
        values = sum(1 if isinstance(axis, Range) else len(axis) for axis in axes)
        if values > MOST_STUDIED_VALUES:
            message = f"have {values:,} values, and `optuna` takes {MOST_STUDIED_VALUES:,}"
            hint = "give numbers by their two ends: {int: [1, 100000]}"
            raise Amiss(message, hint, at=("parameters",))
        return self

    @property
    def _chosen(self) -> RandomShape | OptunaShape | None:
        return self.random or self.optuna

    @model_validator(mode="after")
    def _compared_by_something(self) -> "SweepShape":
        if self.halving is not None and not self.metric:
            raise Amiss(
                "is missing, and `halving` compares by it", "add metric: loss", at=("metric",)
            )
        return self

    @property
    def sweep(self) -> Sweep:
        """Return the sweep as a value."""
        rule = self.halving
        return Sweep(
            space=tuple(self.parameters.items()),
            draws=self._chosen.count if self._chosen else 0,
            seed=self._chosen.seed if self._chosen else None,
            sampler=Sampler.OPTUNA if self.optuna else Sampler.RANDOM,
            metric=self.metric,
            goal=self.goal,
            halving=Halving(rule.rungs[0], rule.rungs[1], rule.eta) if rule else None,
            gpu_hours=self.gpu_hours,
            cpu_hours=self.cpu_hours,
        )

    @property
    def trials(self) -> int:
        """Return how many trials it makes."""
        made = combinations_of(tuple(self.parameters.items()))
        return self._chosen.count if self._chosen else made or 0
