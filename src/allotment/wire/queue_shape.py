"""What is said of a queue besides its order: amounts, caps and its state, for pydantic."""

from typing import Annotated

from pydantic import Field, PlainValidator, model_validator

from allotment.model.amounts import (
    CPU,
    DISK,
    GPU,
    GPU_MEMORY,
    MEMORY,
    Amounts,
    amounts,
    of_type,
)
from allotment.model.tenancy import QueueState
from allotment.wire import amounts as readers
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.fields import SizeOrNone, Word
from allotment.wire.job_shape import Shape

MOST_JOBS = 10_000_000


def read_cpu_or_none(value: object) -> int:
    """Read CPUs into thousandths; 0 is none."""
    return 0 if type(value) in (int, float) and value == 0 else readers.read_cpu(value)


def read_state(value: object) -> QueueState:
    """Read whether a queue takes jobs, and starts them."""
    if value not in tuple(QueueState):
        hint = "closed and draining refuse new jobs; stopped also starts no job"
        raise not_a("open, closed, draining or stopped", value, hint)
    return QueueState(str(value))


def read_most_jobs(value: object) -> int:
    """Read how many jobs there may be at once."""
    return readers.read_whole(value, 0, MOST_JOBS)


def read_most_jobs_or_none(value: object) -> int | None:
    """Read how many jobs there may be at once; `none` is no bound."""
    return None if value == "none" else read_most_jobs(value)


def read_overtaken(value: object) -> int:
    """Read how many jobs may start before an earlier one; `none` is no bound."""
    return readers.read_whole(value, 1, MOST_JOBS)


State = Annotated[QueueState, PlainValidator(read_state)]
Gpus = Annotated[int, PlainValidator(readers.read_gpus)]
MostJobs = Annotated[int, PlainValidator(read_most_jobs)]
MostJobsOrNone = Annotated[int | None, PlainValidator(read_most_jobs_or_none)]
Overtaken = Annotated[int, PlainValidator(read_overtaken)]


class AmountsShape(Shape):
    """So much of each part that is named; the others are not meant."""

    gpu: Gpus | None = None
    gpu_by_type: dict[Word, Gpus] = Field(default={}, examples=["{A100-80G: 4}"])
    gpu_memory: SizeOrNone | None = None
    cpu: Annotated[int, PlainValidator(read_cpu_or_none)] | None = None
    memory: SizeOrNone | None = None
    disk: SizeOrNone | None = None

    def amounts(self) -> Amounts:
        """Return the amounts in the model's form."""
        named = {
            GPU: self.gpu,
            GPU_MEMORY: self.gpu_memory,
            CPU: self.cpu,
            MEMORY: self.memory,
            DISK: self.disk,
            **{of_type(kind): count for kind, count in self.gpu_by_type.items()},
        }
        return amounts({part: amount for part, amount in named.items() if amount is not None})


class CapShape(AmountsShape):
    """What one user or group may hold; a cap of nothing would keep everybody out."""

    @model_validator(mode="after")
    def _more_than_nothing(self) -> "CapShape":
        for part in ("gpu", "gpu_memory", "cpu", "memory", "disk"):
            if getattr(self, part) == 0:
                raise Amiss("0 is not a cap", "leave it out, or give more", at=(part,))
        return self
