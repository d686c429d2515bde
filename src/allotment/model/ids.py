"""Identities. Two ids of one runtime type must not be swappable, so each has its name."""

from typing import NewType

import msgspec

JobId = NewType("JobId", int)
"""Minted by the engine, 1, 2, 3 …; kept through every retry."""

AttemptNo = NewType("AttemptNo", int)
"""Counts the attempts of one job from 1."""

NodeId = NewType("NodeId", int)
"""A node's place in the order of its first appearance in the configuration."""

DeviceIndex = NewType("DeviceIndex", int)
"""A device's index within its node, as its vendor's library counts it."""

TaskIndex = NewType("TaskIndex", int)
"""A task's place in its job: roles in the order of the spec, then 0, 1, 2 … in the role.
It is also the task's RANK."""

Seq = NewType("Seq", int)
"""An event's place in the log, from 1, without gaps."""


class Actor(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Who acted: recorded with every command, job and event."""

    user: str
    uid: int | None = None
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.user


SYSTEM = Actor("allot")
"""The scheduler itself, when nobody asked."""


class TaskKey(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One task of one attempt: what a backend launches, at most once for ever."""

    job: JobId
    attempt: AttemptNo
    index: TaskIndex

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}.{self.index}"
