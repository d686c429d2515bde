"""The classic JSON form of a job (OpenPAI v1), as pydantic models.

Keys are read as they are written there; amounts come out in model units.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from allotment.model.quantity import MIB
from allotment.model.spec import USUAL
from allotment.wire import amounts
from allotment.wire.amiss import Amiss
from allotment.wire.fields import (
    Command,
    Cpu,
    EnvValue,
    Gpu,
    GpuTypes,
    Line,
    Name,
    NameOrNone,
    Path,
    PortCount,
    PortNumber,
    TaskCount,
    Variable,
)
from allotment.wire.job_shape import PortShape, Shape
from allotment.wire.words import same_variable, taken_label

ALWAYS, EVEN_AFTER_SUCCESS = -1, -2
"""Retry counts with a meaning of their own."""

NEVER = -1
"""A minimum that is never reached."""


def read_retry_count(value: object) -> int:
    """Read how often to try again; the caller interprets -1 and -2."""
    return amounts.read_whole(value, EVEN_AFTER_SUCCESS, amounts.MOST_RETRIES)


def read_minimum(value: object) -> int | None:
    """Read how many tasks decide; null, 0 and false stand for the default."""
    if value is None or value is False or value == 0 or value == "":
        return None
    if value == NEVER:
        return NEVER
    return amounts.read_whole(value, 1, amounts.MOST_TASKS)


def read_megabytes(value: object) -> int:
    """Read a count of MiB into bytes."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return amounts.read_whole(value, 1, amounts.MOST_BYTES // MIB, "a number of MiB") * MIB


def _some_role(value: object) -> object:
    if value == []:
        raise Amiss(
            "must have at least one task role", 'such as {"command": "python train.py"}'
        )
    return value


RetryCount = Annotated[int, PlainValidator(read_retry_count)]
Minimum = Annotated[int | None, PlainValidator(read_minimum)]
Megabytes = Annotated[int, PlainValidator(read_megabytes)]


class ClassicPort(PortShape):
    """Ports under one label; `beginAt` 0 for any."""

    begin: PortNumber = Field(0, alias="beginAt")
    count: PortCount = Field(1, alias="portNumber")


class ClassicRole(Shape):
    """A template for alike tasks."""

    command: Command = Field(examples=["python train.py"])
    name: NameOrNone = ""
    count: TaskCount = Field(1, alias="taskNumber")
    cpu: Cpu = Field(USUAL.cpu_milli, alias="cpuNumber")
    memory: Megabytes = Field(USUAL.memory, alias="memoryMB")
    gpu: Gpu = Field(0, alias="gpuNumber")
    shm: Megabytes | None = Field(None, alias="shmMB")
    min_failed: Minimum = Field(None, alias="minFailedTaskCount")
    min_succeeded: Minimum = Field(None, alias="minSucceededTaskCount")
    ports: list[ClassicPort] = Field(default=[], alias="portList")

    @model_validator(mode="after")
    def _enough_tasks_to_succeed(self) -> "ClassicRole":
        wanted = self.min_succeeded
        if wanted is not None and wanted > self.count:
            raise Amiss(
                f"{wanted} tasks can never succeed where there are {self.count}",
                "leave it out for all of them",
                at=("minSucceededTaskCount",),
            )
        return self

    @model_validator(mode="after")
    def _labels_once(self) -> "ClassicRole":
        labels = [port.label for port in self.ports]
        if doubles := same_variable(labels):
            first, second = doubles
            raise Amiss(
                *taken_label(labels[second], labels[first]),
                at=("portList", second, "label"),
            )
        return self


class ClassicJob(Shape):
    """A job in the classic form."""

    name: Name = Field(alias="jobName", examples=['"train-resnet"'])
    roles: Annotated[list[ClassicRole], BeforeValidator(_some_role)] = Field(
        alias="taskRoles", examples=['[{"command": "python train.py"}]']
    )
    image: Line = ""
    data: Path = Field("", alias="dataDir")
    output: Path = Field("", alias="outputDir")
    code: Path = Field("", alias="codeDir")
    tenant: NameOrNone = Field("", alias="virtualCluster")
    retry: RetryCount = Field(0, alias="retryCount")
    gpu_types: GpuTypes = Field((), alias="gpuType")
    env: dict[Variable, EnvValue] = Field(default={}, alias="jobEnvs")
    auth_file: Line = Field("", alias="authFile")
    extras: Annotated[object, PlainValidator(lambda value: value)] = None


UNUSED = {
    "authFile": "images are not pulled with credentials yet",
    "extras": "plug-ins of other platforms have no counterpart here",
}
"""Known keys of the top that have no effect, and why."""

UNUSED_IN_ROLE = {"shmMB": "the size of /dev/shm is the machine's"}
