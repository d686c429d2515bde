"""Sweeps: arrays whose jobs are trials of parameters, stopped early by what they report."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from allotment.model.quantity import HOUR

GPU_HOUR = CPU_HOUR = 1000 * HOUR
"""Of device-thousandths, or of thousandths of a CPU, × milliseconds."""


MOST_RUNGS = 16


class Sampler(StrEnum):
    """What chooses the parameters of trials that are not just all combinations."""

    RANDOM = "random"
    """Chance, for all of them before the first one starts."""
    OPTUNA = "optuna"
    """Optuna, for each of them from what those before it reported."""


class Goal(StrEnum):
    """Which values of a metric are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Scale(StrEnum):
    """How values are drawn between two ends."""

    UNIFORM = "uniform"
    LOG = "log"
    """Each power of ten is as likely as the next."""
    INT = "int"
    """Whole numbers, both ends among them."""


class Range(msgspec.Struct, frozen=True):
    """A parameter that may have any value between two ends."""

    scale: Scale
    low: float
    high: float


Axis: TypeAlias = tuple[str, ...] | Range
"""The values of a parameter: these, or those of a range."""

Space: TypeAlias = tuple[tuple[str, Axis], ...]
"""Each parameter with its values."""


class Halving(msgspec.Struct, frozen=True, omit_defaults=True):
    """At each rung only the best go on: one part in `eta` of the trials that came so far."""

    rungs: tuple[int, ...]
    """Steps that a trial reports, ascending; or its run time in milliseconds."""
    by_time: bool = False
    eta: int = 3


class Sweep(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which trials there are, how they are compared, and what they may use together."""

    space: Space
    draws: int = 0
    """So many trials are drawn or proposed; 0: one for each combination of values."""
    seed: int | None = None
    """What the draws are made with; None until it is accepted."""
    sampler: Sampler = Sampler.RANDOM
    metric: str = ""
    """The name of what trials report and are compared by; '' where they are not."""
    goal: Goal = Goal.MINIMIZE
    halving: Halving | None = None
    gpu_hours: int = 0
    """Budget of all trials together, in device-thousandths × ms; 0: none."""
    cpu_hours: int = 0
    """The same of CPUs."""

    @property
    def is_study(self) -> bool:
        """Whether the parameters of a trial are proposed when its turn comes."""
        return self.sampler is Sampler.OPTUNA


class Came(StrEnum):
    """How far a trial has come, for whatever learns from it."""

    UNDER_WAY = "under_way"
    TO_ITS_END = "to_its_end"
    NOT_SO_FAR = "not_so_far"
    """It was stopped by comparison, was cancelled or failed."""


class Tried(msgspec.Struct, frozen=True):
    """Parameters that were tried, and what is recorded of their trial."""

    params: tuple[tuple[str, str], ...]
    came: Came
    values: tuple[tuple[int, float | None], ...] = ()
    """Steps, or run times, with the metric there, ascending; None: it was no number."""


class SweepEnd(StrEnum):
    """Why a sweep was stopped."""

    ASKED = "asked"
    """Somebody stopped it."""
    GPU_HOURS = "gpu_hours"
    """Its trials have used up their budget."""
    CPU_HOURS = "cpu_hours"
