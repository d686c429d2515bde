"""What `sacct` and slurmrestd say of ended jobs → the use of their devices. Pure.

Slurm counts it for a step: the sum over devices of the highest use in per cent that it saw of
a process, and of the memory. Of several tasks in a step (the ranks of MPI) it is the average.
"""

import re
from collections.abc import Sequence

import msgspec

from allotment.model.diagnosis import GpuUse

FIELDS = "JobID,State,TRESUsageInAve"
BUSY, MEMORY = "gpuutil", "gpumem"
TRES = re.compile(r"gres/(?P<name>gpuutil|gpumem)=(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)")
UNITS = {unit: 1 << (10 * power) for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}
OPEN = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING")
MOST = 1 << 53
"""No amount is larger: the event log has it."""


class Accounted(msgspec.Struct, frozen=True):
    """What the accounts have of a job."""

    is_closed: bool
    """Whether there is a step, and none goes on."""
    gpu: GpuUse | None
    """The most of any step; None where nothing is said of devices."""


class Step(msgspec.Struct, frozen=True):
    """A step of a job: whether it goes on, and what is said of its devices."""

    is_open: bool
    busy: float | None
    """Per cent."""
    memory: float | None
    """Bytes."""


def counts_in(text: str) -> bool:
    """Whether `sacctmgr show tres format=type,name` names what is counted of devices."""
    return f"gres|{BUSY}" in (line.strip().rstrip("|") for line in text.splitlines())


def accounted_in(text: str) -> dict[str, Accounted]:
    """Read `sacct -nP --format=FIELDS`: a line for each job and step, by number of the job."""
    steps: dict[str, list[Step]] = {}
    for line in text.splitlines():
        id_, _, rest = line.partition("|")
        state, _, told = rest.partition("|")
        job, dot, _ = id_.partition(".")
        if dot:
            found = {each["name"]: _amount(each) for each in TRES.finditer(told)}
            step = Step(state.startswith(OPEN), found.get(BUSY), found.get(MEMORY))
            steps.setdefault(job, []).append(step)
    return {job: most_of(told) for job, told in steps.items()}


def _amount(found: re.Match[str]) -> float:
    return float(found["number"]) * UNITS[found["unit"]]


def most_of(steps: Sequence[Step]) -> Accounted:
    """Return what the steps of a job say together: they had the same devices."""
    busy = [step.busy for step in steps if step.busy is not None]
    memory = [step.memory for step in steps if step.memory is not None]
    gpu = None
    if busy or memory:
        gpu = GpuUse(
            int(min(max(busy, default=0) * 10, MOST)), int(min(max(memory, default=0), MOST))
        )
    return Accounted(bool(steps) and not any(step.is_open for step in steps), gpu)
