"""What reading a job file gives."""

from enum import StrEnum

import msgspec

from allotment.model.errors import Problem
from allotment.model.grid import Grid
from allotment.model.spec import JobSpec
from allotment.model.sweeps import Sweep


class JobFile(msgspec.Struct, frozen=True):
    """A job as read. `copies` above 1 asks for an array, `max_running` of them at a time."""

    spec: JobSpec
    warnings: tuple[Problem, ...] = ()
    copies: int = 1
    max_running: int = 0
    grid: Grid = ()
    """What distinguishes the copies, where they are of a grid."""
    indices: tuple[int, ...] = ()
    """Their indices in the array, where they are not 0, 1, 2 …"""
    held: bool = False
    """Whether it is to be held."""
    waits: bool = False
    """Whether its submitter wants to wait for its end."""
    sweep: Sweep | None = None
    """What distinguishes the copies, where they are the trials of a sweep."""


class Form(StrEnum):
    """How a job is written."""

    AUTO = "auto"
    """Slurm or LSF when it is a script with their directives, an object of Kubernetes when it
    has `apiVersion` and `kind`, classic when it has `taskRoles` or `jobName` at the top,
    native otherwise."""
    NATIVE = "native"
    CLASSIC = "classic"
    SLURM = "slurm"
    LSF = "lsf"
