"""Orders to the outside, made by the engine and carried out by a shell.

All are idempotent: they may be given again after a restart.
"""

import msgspec

from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause


class Effect(msgspec.Struct, frozen=True):
    """Something to be done outside."""


class LaunchGang(Effect, frozen=True):
    """Start tasks of a gang, each once; those of a gang of several wait at the barrier."""

    job: JobId
    attempt: AttemptNo
    tasks: tuple[TaskIndex, ...]
    """All of them; after a restart those that may never have been started."""
    at_barrier: bool

    @property
    def keys(self) -> tuple[TaskKey, ...]:
        return tuple(TaskKey(self.job, self.attempt, index) for index in self.tasks)


class OpenBarrier(Effect, frozen=True):
    """Let every task of the gang go."""

    job: JobId
    attempt: AttemptNo


class StopTask(Effect, frozen=True):
    """Signal a task, and after the grace end it by force."""

    key: TaskKey
    signal: str
    grace_ms: Millis
    cause: StopCause | None = None
    """Why its whole gang has to end; None where only this task has to."""


class FreezeGang(Effect, frozen=True):
    """Let the tasks of a gang stand still, in the best of the grades that their engine can."""

    keys: tuple[TaskKey, ...]
    no: int
    """Which suspension of its attempt this is: its engine's answers carry it."""


class ThawTask(Effect, frozen=True):
    """Let a frozen task go on."""

    key: TaskKey


class TellSize(Effect, frozen=True):
    """Let the tasks that stay know how many they are: for an elastic gang."""

    job: JobId
    attempt: AttemptNo


class CloseNode(Effect, frozen=True):
    """Let the engine of a node start nothing new there, by whomever it is asked."""

    node: NodeId
    reason: str


class OpenNode(Effect, frozen=True):
    """Let the engine start tasks on a node again, if it was closed for us."""

    node: NodeId


NodeEffect = CloseNode | OpenNode
AnyEffect = LaunchGang | OpenBarrier | StopTask | FreezeGang | ThawTask | TellSize | NodeEffect
