"""What reading a job file gives."""

from enum import StrEnum

import msgspec

from allotment.model.errors import Problem
from allotment.model.grid import Grid
from allotment.model.spec import JobSpec


class JobFile(msgspec.Struct, frozen=True):
    """A job as read. `copies` above 1 asks for an array, `max_running` of them at a time."""

    spec: JobSpec
    warnings: tuple[Problem, ...] = ()
    copies: int = 1
    max_running: int = 0
    grid: Grid = ()
    """What distinguishes the copies, where they are of a grid."""


class Form(StrEnum):
    """How a job is written."""

    AUTO = "auto"
    """Classic when it has `taskRoles` or `jobName` at the top, native otherwise."""
    NATIVE = "native"
    CLASSIC = "classic"
