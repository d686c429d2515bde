"""Slurm's job states, which the traces of other clusters use too."""

from allotment.sim.trace import Ending

_UNFINISHED = frozenset(
    (
        *("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "STOPPED", "SIGNALING"),
        *("CONFIGURING", "COMPLETING", "STAGE_OUT", "REQUEUE_HOLD", "REQUEUE_FED", "WAITING"),
    )
)


def ending_of(state: str) -> Ending:
    """Return what became of a job: `CANCELLED by 1000` is cancelled, TIMEOUT has failed."""
    word = state.strip().upper().partition(" ")[0].rstrip("+")
    if word == "COMPLETED":
        return Ending.SUCCEEDED
    if word in ("CANCELLED", "CANCELED"):
        return Ending.CANCELLED
    return Ending.CENSORED if word in _UNFINISHED else Ending.FAILED
