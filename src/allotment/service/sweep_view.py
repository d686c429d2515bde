"""Sweeps, as the API shows them."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Moment
from allotment.model.sweeps import Sweep


class TrialView(msgspec.Struct, frozen=True):
    """One trial of a sweep: a job with its parameters, and what it reported."""

    job: JobId
    index: int
    """In the array."""
    params: dict[str, str]
    """None for users who may not see inside the jobs; likewise step and values."""
    state: JobState
    ran_ms: int
    rung: int
    """How many rungs it has reached."""
    step: int = 0
    value: float | None = None
    """The metric at that step; None where none is known, or it is no number."""
    rungs: tuple[float | None, ...] = ()
    """The metric at each rung that it reached."""
    stopped: str = ""
    """Why the sweep stopped it: `7th of 9 at rung 1`; empty where it did not."""


class SweepRow(msgspec.Struct, frozen=True):
    """One line of `allot sweep ls`."""

    id: JobId
    """Of its array, and of the first trial."""
    name: str
    tenant: str
    user: str
    state: str
    """`running`, `over`, or why it was stopped: `asked`, `gpu_hours`, `cpu_hours`."""
    counts: dict[str, int]
    """How many trials are in each state."""
    stopped: int
    """How many trials the sweep stopped itself."""
    submitted_at: Moment
    finished_at: Moment
    gpu_ms: int
    """What the trials have used so far: device-thousandths × ms."""
    cpu_ms: int
    """Likewise of CPUs."""
    best: TrialView | None = None
    """The trial with the best last value; None for users who may not see inside."""


class SweepView(msgspec.Struct, frozen=True):
    """Everything about one sweep: `allot sweep show`."""

    row: SweepRow
    sweep: Sweep | None
    """As it was asked for, with its seed; None for users who may not see inside. Budgets are
    in device- and CPU-thousandths × ms."""
    max_running: int
    trials: tuple[TrialView, ...]
    """The best first; those without a value come last, by their index."""
    hint: str = ""
    """What is odd about it: no trial reports what it is to be compared by."""
    private: bool = False
    """The private parts were left out: the caller may not see them."""
