"""The kinds of values in jobs and configurations, each with its reader, for pydantic."""

import re
from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import PlainValidator

from allotment.model.data_use import reference_of
from allotment.model.quantity import HOUR, Millis
from allotment.model.spec import MOST_WEIGHT, Arch, Dialect, EndKind, GiveWay, Mpi
from allotment.rights.mount_points import trouble_of
from allotment.wire import amounts, words
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.text import shown

HOLD_BY_DEFAULT = Millis(HOUR)
MOST_PORTS = 1000
"""Ports a role's task can ask for under one label."""
LAST_PORT = 65_535
MOST_GPUS = 1024
"""Devices of one node."""


def read_count(value: object) -> int:
    """Read how many tasks a role has."""
    return amounts.read_whole(value, 1, amounts.MOST_TASKS)


def read_retry(value: object) -> int:
    """Read how often to try again."""
    return amounts.read_whole(value, 0, amounts.MOST_RETRIES)


def read_min_failed(value: object) -> int:
    """Read how many failures end the job; 0 stands for `never`."""
    if value == "never":
        return 0
    return amounts.read_whole(value, 1, amounts.MOST_TASKS, "a whole number or never")


def read_port(value: object) -> int:
    """Read a port number that a task may listen on, 0 for any."""
    port = amounts.read_whole(value, 0, LAST_PORT)
    if 0 < port < 1024:
        raise Amiss(f"{port} is a reserved port", "use 1024 or more, or 0 for any free one")
    return port


def read_port_count(value: object) -> int:
    """Read how many ports a task wants under one label."""
    return amounts.read_whole(value, 1, MOST_PORTS)


def read_exit_code(value: object) -> int:
    """Read the exit code of a failure, which is not 0."""
    return amounts.read_whole(value, 1, 255, "an exit code")


def read_keep(value: object) -> int:
    """Read how many checkpoints are kept."""
    return amounts.read_whole(value, 1, 1_000_000)


def read_max_running(value: object) -> int:
    """Read how many of an array may run at a time, 0 for all."""
    return amounts.read_whole(value, 0, amounts.MOST_TASKS)


def read_job_id(value: object) -> int:
    """Read a job's number."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    if not isinstance(value, int):
        raise not_a("the number of a job", value, "`allot ps` lists them")
    return amounts.read_whole(value, 1, (1 << 63) - 1, "the number of a job")


REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9_, -]{1,200}\])?")


def read_job_ref(value: object) -> int | str:
    """Read a job's number, its name, or a part of an array: `8[12-49]`.

    A number in quotes is a name too: that of a job, and of the whole of an array.
    """
    if not isinstance(value, str) or value.isdecimal():
        number = read_job_id(value)
        return str(number) if isinstance(value, str) else number
    if not REF.fullmatch(value):
        raise not_a("a job", value, "write its number, its name, or 8[0-9] of an array")
    return value


def read_gpu_types(value: object) -> tuple[str, ...]:
    """Read the acceptable device types, best first."""
    if isinstance(value, str):
        return (words.read_word(value),)
    if not isinstance(value, (list, tuple)):
        raise not_a("a device type or a list of them", value, "`allot nodes` lists them")
    types = tuple(words.read_word(item) for item in cast("Sequence[object]", value))
    if len(set(types)) < len(types):
        raise Amiss("names a device type twice", "name each once, best first")
    return types


def read_gpu_count(value: object) -> int:
    """Read how many devices a node has."""
    return amounts.read_whole(value, 1, MOST_GPUS)


OTHER_ARCH = "other"
"""The architecture of a machine that is none of those that jobs name."""


def read_host_arch(value: object) -> Arch:
    """Read a machine's architecture, which is never just any."""
    if value == OTHER_ARCH:
        return Arch.ANY
    arch = words.read_arch(value)
    if arch is Arch.ANY:
        raise not_a("x86_64 or arm64", value)
    return arch


def read_data_name(value: object) -> str:
    """Read how a dataset is named."""
    text = words.read_line(value)
    if reference_of(text) is None:
        raise Amiss(
            f"{shown(text)} cannot be the name of a dataset",
            "write NAME, TENANT/NAME or NAME@VERSION; of a folder on the machine its path: "
            "`data: /PATH`",
        )
    return text


def read_mount_point(value: object) -> str:
    """Read where a dataset is to be found. Whether it can be there is not looked at."""
    if value is None:
        raise Amiss("has no path", "mount it at /data/NAME, for example")
    text = words.read_path(value)
    if trouble := trouble_of(text):
        raise Amiss(f"{shown(text)} {trouble}", "mount it at /data/NAME, for example")
    return text


def read_digest(value: object) -> str:
    """Read what code is called that was sent: 64 hexadecimal digits."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise not_a("a digest of 64 hexadecimal digits", value, "write code: {take: .}")
    return value


def read_file_count(value: object) -> int:
    """Read a number of files."""
    return amounts.read_whole(value, 0, amounts.MOST_RETRIES)


def read_hold(value: object) -> Millis:
    """Read whether, or how long, to keep a failed task's surroundings."""
    if type(value) is bool:
        return HOLD_BY_DEFAULT if value else Millis(0)
    return amounts.read_duration_or_none(value)


def read_end(value: object) -> EndKind:
    """Read how the job to wait for must have ended."""
    if value not in tuple(EndKind):
        raise not_a("success or any", value)
    return EndKind(str(value))


def read_give_way(value: object) -> GiveWay:
    """Read the eviction mode of a job."""
    if not value or value not in tuple(GiveWay):
        raise not_a(
            "requeue, suspend, cancel or migrate",
            value,
            "requeue: it waits in its queue again; migrate: it continues elsewhere if it can",
        )
    return GiveWay(str(value))


def read_mpi(value: object) -> Mpi:
    """Read who starts the ranks of a job with MPI."""
    if value not in tuple(Mpi):
        hint = (
            "pmix for Open MPI, pmi2 for MPICH: the tasks are the ranks; mpirun: it starts them"
        )
        raise not_a("pmix, pmi2 or mpirun", value, hint)
    return Mpi(str(value))


def read_dialect(value: object) -> Dialect:
    """Read which form's extra variables the tasks get."""
    if value not in tuple(Dialect):
        raise not_a(" or ".join((", ".join(list(Dialect)[:-1]), list(Dialect)[-1])), value)
    return Dialect(str(value))


Name = Annotated[str, PlainValidator(words.read_name, json_schema_input_type=str)]
NodeName = Annotated[str, PlainValidator(words.read_node_name, json_schema_input_type=str)]
NodeNameOrNone = Annotated[
    str,
    PlainValidator(
        lambda name: "" if name == "" else words.read_node_name(name),
        json_schema_input_type=str,
    ),
]
NameOrNone = Annotated[str, PlainValidator(words.read_name_or_none, json_schema_input_type=str)]
Line = Annotated[str, PlainValidator(words.read_line, json_schema_input_type=str)]
Path = Annotated[str, PlainValidator(words.read_path, json_schema_input_type=str)]
Variable = Annotated[str, PlainValidator(words.read_variable, json_schema_input_type=str)]
EnvValue = Annotated[
    str, PlainValidator(words.read_env_value, json_schema_input_type=str | int | bool)
]
Command = Annotated[
    str | tuple[str, ...],
    PlainValidator(words.read_command, json_schema_input_type=str | list[str]),
]
Cpu = Annotated[int, PlainValidator(amounts.read_cpu, json_schema_input_type=float | str)]
Gpu = Annotated[int, PlainValidator(amounts.read_gpu, json_schema_input_type=float | str)]
Size = Annotated[int, PlainValidator(amounts.read_size, json_schema_input_type=str)]
SizeOrNone = Annotated[
    int, PlainValidator(amounts.read_size_or_none, json_schema_input_type=str)
]
Duration = Annotated[
    Millis, PlainValidator(amounts.read_duration, json_schema_input_type=float | str)
]
TimeLimit = Annotated[
    Millis, PlainValidator(amounts.read_limit, json_schema_input_type=float | str)
]
DurationOrNone = Annotated[
    Millis, PlainValidator(amounts.read_duration_or_none, json_schema_input_type=float | str)
]
Truth = Annotated[bool, PlainValidator(amounts.read_truth, json_schema_input_type=bool)]
ExitCode = Annotated[int, PlainValidator(read_exit_code, json_schema_input_type=int)]
TaskCount = Annotated[int, PlainValidator(read_count, json_schema_input_type=int)]
Retry = Annotated[int, PlainValidator(read_retry, json_schema_input_type=int)]
MinFailed = Annotated[int, PlainValidator(read_min_failed, json_schema_input_type=int | str)]
PortNumber = Annotated[int, PlainValidator(read_port, json_schema_input_type=int)]
PortCount = Annotated[int, PlainValidator(read_port_count, json_schema_input_type=int)]
GpuTypes = Annotated[
    tuple[str, ...], PlainValidator(read_gpu_types, json_schema_input_type=str | list[str])
]
ArchWord = Annotated[Arch, PlainValidator(words.read_arch, json_schema_input_type=str)]
JobRef = Annotated[int | str, PlainValidator(read_job_ref, json_schema_input_type=int | str)]
Word = Annotated[str, PlainValidator(words.read_word, json_schema_input_type=str)]
SecretText = Annotated[str, PlainValidator(words.read_secret, json_schema_input_type=str)]
PriorityWord = Annotated[
    int, PlainValidator(words.read_priority, json_schema_input_type=int | str)
]
Weight = Annotated[
    int,
    PlainValidator(
        lambda value: amounts.read_whole(value, 1, MOST_WEIGHT),
        json_schema_input_type=int,
    ),
]
SignalWord = Annotated[str, PlainValidator(words.read_signal, json_schema_input_type=str)]
Keep = Annotated[int, PlainValidator(read_keep, json_schema_input_type=int)]
MaxRunning = Annotated[int, PlainValidator(read_max_running, json_schema_input_type=int)]
DataName = Annotated[str, PlainValidator(read_data_name, json_schema_input_type=str)]
MountPoint = Annotated[str, PlainValidator(read_mount_point, json_schema_input_type=str)]
Digest = Annotated[str, PlainValidator(read_digest, json_schema_input_type=str)]
FileCount = Annotated[int, PlainValidator(read_file_count, json_schema_input_type=int)]
Hold = Annotated[Millis, PlainValidator(read_hold, json_schema_input_type=bool | str)]


GiveWayWord = Annotated[GiveWay, PlainValidator(read_give_way, json_schema_input_type=GiveWay)]
EndWord = Annotated[EndKind, PlainValidator(read_end, json_schema_input_type=EndKind)]
MpiWord = Annotated[Mpi, PlainValidator(read_mpi, json_schema_input_type=Mpi)]
DialectWord = Annotated[Dialect, PlainValidator(read_dialect, json_schema_input_type=Dialect)]
