"""What happened in sweeps, in words."""

from allotment.model import events as e
from allotment.model.sweeps import SweepEnd

SweepEvent = e.TrialProposed | e.RungReached | e.TrialMeasured | e.TrialStopped | e.SweepStopped

ENDED = {
    SweepEnd.ASKED: "its sweep was stopped",
    SweepEnd.GPU_HOURS: "its sweep is stopped: the GPU-hours of its budget are used up",
    SweepEnd.CPU_HOURS: "its sweep is stopped: the CPU-hours of its budget are used up",
}


def of_sweep(event: SweepEvent) -> str:
    """Return an event of a sweep as a sentence without its subject."""
    match event:
        case e.TrialProposed(_, params):
            values = " ".join(f"{name}={value}" for name, value in params)
            return f"gets its parameters{': ' + values if values else ''}"
        case e.RungReached(_, rung, step, value):
            return f"reached rung {rung + 1} at step {step} with {shown(value)}"
        case e.TrialMeasured(_, step, value):
            return f"reported {shown(value)} at step {step}, its last"
        case e.TrialStopped():
            return f"is stopped by its sweep: {loss(event.rung, event.place, event.of)}"
        case e.SweepStopped(_, why):
            return ENDED[why]


def shown(value: float | None) -> str:
    """Write the value of a metric."""
    return "no number" if value is None else f"{value:.6g}"


def loss(rung: int, place: int, of: int) -> str:
    """Return where a trial stood at the rung at which it was stopped: `5th of 9 at rung 1`."""
    return f"{place}{_ending(place)} of {of} at rung {rung + 1}"


def _ending(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
