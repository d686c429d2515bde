"""What the driver does to a process next, so that its device memory is away or back. Pure.

The driver's own states say how far it is: they are asked for after each step, so that what was
begun by somebody who was killed is gone on with, whoever asks again.
"""

from enum import IntEnum, StrEnum


class State(IntEnum):
    """How the driver sees a process (CUDA Driver API, `CUprocessState`)."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    RESTORING = 5


class Wanted(StrEnum):
    """Where the device memory of a process is to be."""

    AWAY = "away"
    BACK = "back"


class Step(StrEnum):
    """A call of the driver, or a wait for one that somebody else began."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"
    WAIT = "wait"


UNDER_WAY = (State.CHECKPOINTING, State.RESTORING)

_TO_AWAY = {State.RUNNING: Step.LOCK, State.LOCKED: Step.CHECKPOINT}
_TO_BACK = {State.CHECKPOINTED: Step.RESTORE, State.LOCKED: Step.UNLOCK}


def next_step(state: State, wanted: Wanted) -> Step | None:
    """Return what is to be done now; None where nothing is left, or nothing can be done."""
    if state in UNDER_WAY:
        return Step.WAIT
    return (_TO_AWAY if wanted is Wanted.AWAY else _TO_BACK).get(state)


def is_reached(state: State, wanted: Wanted) -> bool:
    """Whether the device memory is where it is wanted."""
    return state is (State.CHECKPOINTED if wanted is Wanted.AWAY else State.RUNNING)
