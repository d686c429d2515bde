"""The life of jobs, attempts and tasks as tables that a person can check against a picture.

A table maps (state, event) to the next state. An event that a table does not name in a
state is a bug when we made it, and simply late when a backend reported it: the engine
drops late reports before they become events. The diagrams in docs/lifecycle.md are
generated from these tables.
"""

from enum import StrEnum
from typing import Final, Generic, TypeVar

from allotment.model import events as e
from allotment.model.errors import InvariantViolated


class JobState(StrEnum):
    """The state of a job. Each line says what holds in that state."""

    HELD = "held"
    """In its queue; it cannot start until its user releases it. It holds nothing."""
    QUEUED = "queued"
    """It waits for a place, for another job, or for the end of a back-off. It holds nothing,
    except perhaps a reserved place."""
    STARTING = "starting"
    """It has a place and holds all of it; not every task runs yet."""
    RUNNING = "running"
    """Every task of the gang has started."""
    SUSPENDED = "suspended"
    """Frozen: it keeps memory, disk and device memory, and has released devices and CPU."""
    STOPPING = "stopping"
    """It was told to stop, and holds its place until the last task has ended."""
    SUCCEEDED = "succeeded"
    """Its tasks succeeded, or as many of them as its roles ask for."""
    FAILED = "failed"
    """Its last attempt failed, and it is not tried again."""
    CANCELLED = "cancelled"
    """A person ended it, or its sweep, or its eviction, as it asked for."""
    TIMED_OUT = "timed_out"
    """It waited or ran for longer than it may."""

    @property
    def finished(self) -> bool:
        return self in FINISHED

    @property
    def waiting(self) -> bool:
        return self in WAITING


QUEUED: Final = JobState.QUEUED
HELD: Final = JobState.HELD
WAITING: Final = frozenset({QUEUED, HELD})
FINISHED: Final = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT}
)


def ended_how(state: JobState) -> str:
    """Return how a job ended, after its name: `failed`, `was cancelled`."""
    return "was cancelled" if state is JobState.CANCELLED else state.value.replace("_", " ")


class AttemptState(StrEnum):
    """The state of one try at running a job."""

    STARTING = "starting"
    """It has a place; not every task runs yet."""
    RUNNING = "running"
    """Every task has started."""
    SUSPENDED = "suspended"
    """Its tasks are frozen, and their devices are free for others."""
    STOPPING = "stopping"
    """Its tasks were told to end; the last has not."""
    ENDED = "ended"
    """Its last task has ended, and its place is free."""


class TaskState(StrEnum):
    """Where one task of an attempt stands."""

    PLACED = "placed"
    """It has a slot; the backend may not know it yet."""
    READY = "ready"
    """It is isolated and ready to run; it waits for the rest of its gang."""
    RUNNING = "running"
    """Its command runs, or was killed and does not die."""
    SUSPENDED = "suspended"
    """Its command is frozen."""
    HOLDING = "holding"
    """Its command failed. Its folders, devices and limits are kept for `allot exec`."""
    ENDED = "ended"
    """No process of it is left."""


S = TypeVar("S", bound=StrEnum)


class Lifecycle(dict[tuple[S, type[e.Event]], S], Generic[S]):
    """A transition table, from a state and an event to the state that follows.

    With it come its name, first and last states. Raises InvariantViolated where none follows.
    """

    def __init__(
        self,
        name: str,
        initial: S,
        final: frozenset[S],
        table: dict[tuple[S, type[e.Event]], S],
    ) -> None:
        super().__init__(table)
        self.name = name
        self.initial = initial
        self.final = final

    def __missing__(self, turn: tuple[S, type[e.Event]]) -> S:
        state, event = turn
        raise InvariantViolated(
            f"{self.name} in state {state.value} cannot take {event.__name__}"
        )


J, A, T = JobState, AttemptState, TaskState

JOB: Final = Lifecycle(
    "Job",
    J.QUEUED,
    FINISHED,
    {
        (J.QUEUED, e.JobHeld): J.HELD,
        (J.QUEUED, e.AttemptPlaced): J.STARTING,
        (J.QUEUED, e.JobCancelled): J.CANCELLED,
        (J.QUEUED, e.JobTimedOut): J.TIMED_OUT,
        (J.QUEUED, e.JobFailed): J.FAILED,
        (J.HELD, e.JobReleased): J.QUEUED,
        (J.HELD, e.JobCancelled): J.CANCELLED,
        (J.HELD, e.JobTimedOut): J.TIMED_OUT,
        (J.HELD, e.JobFailed): J.FAILED,
        (J.STARTING, e.AttemptStarted): J.RUNNING,
        (J.STARTING, e.StopRequested): J.STOPPING,
        (J.STARTING, e.JobRequeued): J.QUEUED,
        (J.STARTING, e.JobSucceeded): J.SUCCEEDED,
        (J.STARTING, e.JobFailed): J.FAILED,
        (J.RUNNING, e.AttemptSuspended): J.SUSPENDED,
        (J.RUNNING, e.StopRequested): J.STOPPING,
        (J.RUNNING, e.JobRequeued): J.QUEUED,
        (J.RUNNING, e.JobSucceeded): J.SUCCEEDED,
        (J.RUNNING, e.JobFailed): J.FAILED,
        (J.SUSPENDED, e.AttemptResumed): J.RUNNING,
        (J.SUSPENDED, e.StopRequested): J.STOPPING,
        (J.SUSPENDED, e.JobRequeued): J.QUEUED,
        (J.SUSPENDED, e.JobSucceeded): J.SUCCEEDED,
        (J.SUSPENDED, e.JobFailed): J.FAILED,
        (J.STOPPING, e.StopRequested): J.STOPPING,
        (J.STOPPING, e.JobRequeued): J.QUEUED,
        (J.STOPPING, e.JobSucceeded): J.SUCCEEDED,
        (J.STOPPING, e.JobFailed): J.FAILED,
        (J.STOPPING, e.JobCancelled): J.CANCELLED,
        (J.STOPPING, e.JobTimedOut): J.TIMED_OUT,
    },
)

ATTEMPT: Final = Lifecycle(
    "Attempt",
    A.STARTING,
    frozenset({A.ENDED}),
    {
        (A.STARTING, e.AttemptStarted): A.RUNNING,
        (A.STARTING, e.StopRequested): A.STOPPING,
        (A.STARTING, e.AttemptEnded): A.ENDED,
        (A.RUNNING, e.AttemptSuspended): A.SUSPENDED,
        (A.RUNNING, e.StopRequested): A.STOPPING,
        (A.RUNNING, e.AttemptEnded): A.ENDED,
        (A.SUSPENDED, e.AttemptResumed): A.RUNNING,
        (A.SUSPENDED, e.StopRequested): A.STOPPING,
        (A.SUSPENDED, e.AttemptEnded): A.ENDED,
        (A.STOPPING, e.StopRequested): A.STOPPING,
        (A.STOPPING, e.AttemptEnded): A.ENDED,
    },
)

TASK: Final = Lifecycle(
    "Task",
    T.PLACED,
    frozenset({T.ENDED}),
    {
        (T.PLACED, e.TaskReady): T.READY,
        (T.PLACED, e.TaskStarted): T.RUNNING,
        (T.PLACED, e.TaskEnded): T.ENDED,
        (T.READY, e.TaskStarted): T.RUNNING,
        (T.READY, e.TaskEnded): T.ENDED,
        (T.RUNNING, e.AttemptSuspended): T.SUSPENDED,
        (T.RUNNING, e.TaskHeld): T.HOLDING,
        (T.RUNNING, e.TaskEnded): T.ENDED,
        (T.HOLDING, e.TaskEnded): T.ENDED,
        (T.SUSPENDED, e.AttemptResumed): T.RUNNING,
        (T.SUSPENDED, e.TaskEnded): T.ENDED,
    },
)
