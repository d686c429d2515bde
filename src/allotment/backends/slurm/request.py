"""A task → the Slurm job that runs it. Pure: no clock, no files."""

import json
from collections.abc import Collection
from math import ceil

from allotment.backends.local.in_image import span_of
from allotment.backends.slurm.apptainer import container_of
from allotment.backends.slurm.discover import UNTYPED
from allotment.backends.slurm.reservations import Calendar, Holder
from allotment.backends.slurm.settings import Partition
from allotment.model.engines import EngineSetup
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.model.quantity import MIB, MINUTE, Millis, Resources, WallTime
from allotment.model.spec import Mpi
from allotment.service.ports import Binding, GangLaunch, TaskLaunch

UNSEEN = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
    }
)
"""Which devices a task has is said by Slurm, which picks them: nobody can ask it for some."""

PYTHON = "/usr/bin/python3"

WARNING = "USR2"
"""By which the first process of a task is told that Slurm will soon end it."""

SPARE_S = 5
"""Added to the grace of a task that Slurm will end, for what its first process does."""
MOST_WARNING_S = 65_535
SPARE_MIN = 5
"""Added to a time limit, in minutes: the service ends a task first, and knows why."""


def name_of(prefix: str, key: TaskKey) -> str:
    """Return the name of a task's Slurm job, by which a submission is found again."""
    return f"{prefix}-{key.job}.{key.attempt}.{key.index}"


def document_of(
    gang: GangLaunch, task: TaskLaunch, apptainer: str = "", bubblewrap: str = ""
) -> bytes:
    """Return what the task's first process reads: `request.json`.

    `apptainer` is the program that runs images, and `bubblewrap` what shows folders to a task
    without. Raises BackendError where there is none.
    """
    env = {name: value for name, value in task.env if name not in UNSEEN}
    container = container_of(gang, task, apptainer)
    told = {
        "argv": task.argv,
        "env": env,
        "cwd": gang.workdir if container is None else "/",
        "at_barrier": gang.at_barrier,
        "warning": gang.warning,
        "log_bytes": gang.log_bytes,
        "is_rank": gang.mpi.by_engine,
        "container": container,
        "folders": None if container is not None else folders_of(gang, bubblewrap),
        "phases": [span_of(phase) for phase in gang.phases],
    }
    return json.dumps(told).encode()


def folders_of(gang: GangLaunch, bubblewrap: str) -> dict[str, object] | None:
    """Return the folders that a task finds at places of its job's; None where it has none."""
    if not gang.data:
        return None
    if not bubblewrap:
        raise BackendError("nothing here shows folders to tasks: bubblewrap is not found")
    if gang.mpi is Mpi.MPIRUN:
        raise BackendError("ranks that mpirun starts do not find datasets here")
    mounts = [(each.source, each.at, "rw" if each.write else "ro") for each in gang.data]
    return {"program": bubblewrap, "mounts": mounts}


def script_of(folder: str, runner: str) -> str:
    """Return the batch script. A job that Slurm starts a second time ends without a trace."""
    return (
        "#!/bin/sh\n"
        '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\n'
        f"exec {PYTHON} -I -S {quoted(runner)} {quoted(folder)}\n"
    )


def options_of(
    gang: GangLaunch, task: TaskLaunch, prefix: str, partition: str, folder: str
) -> list[str]:
    """Return the options of `sbatch`: one task, on this node, with these amounts."""
    options = [
        *common_of(gang, task.key, prefix, partition, folder),
        f"--nodelist={task.binding.node}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={cpus_of(task.resources)}",
        f"--mem={amount_of(task.resources)}M",
    ]
    if gres := gres_of(task.binding):
        options.append(f"--gres={gres}")
    return options


def common_of(
    gang: GangLaunch, key: TaskKey, prefix: str, partition: str, folder: str
) -> list[str]:
    """Return the options of `sbatch` for the job of a task, or of a gang by its first."""
    labels = "".join(f" {name}={value}" for name, value in gang.labels)
    options = [
        f"--job-name={name_of(prefix, key)}",
        f"--comment=allotment {key}{labels}",
        f"--partition={partition}",
        "--no-requeue",
        "--export=ALL",  # Of sbatch's few; else slurmd runs a login shell of the user first.
        "--chdir=/",
        f"--output={folder.replace('%', '%%')}/slurm.log",
        "--open-mode=append",
    ]
    if gang.identity is not None:
        options += [f"--uid={gang.identity.uid}", f"--gid={gang.identity.gid}"]
    return options


def cpus_of(need: Resources) -> int:
    """Return the CPUs of a task: in Slurm they are whole."""
    return max(1, ceil(need.cpu_milli / 1000))


def amount_of(need: Resources) -> int:
    """Return the memory of a task in MiB."""
    return max(1, ceil(need.memory / MIB))


def charges_of(gang: GangLaunch, setup: EngineSetup) -> list[str]:
    """Return the options that say to which account of Slurm a gang is charged, and in which
    quality of service it runs."""
    tenant = dict(gang.labels).get("tenant", "")
    account = dict(setup.accounts).get(tenant, "")
    qos = dict(setup.qos_of).get(tenant, setup.qos)
    return [
        *([f"--account={account}"] if account else []),
        *([f"--qos={qos}"] if qos else []),
    ]


def gres_of(binding: Binding) -> str:
    """Return the devices of a task by type and number, such as `gpu:a100:2`; '' for none."""
    return ",".join(f"gpu:{part}" for part in _typed(binding))


def gpus_of(binding: Binding) -> str:
    """Return the same for the options about GPUs alone, such as `a100:2`."""
    return ",".join(_typed(binding))


def _typed(binding: Binding) -> list[str]:
    return [
        str(count) if kind == UNTYPED else f"{kind}:{count}" for kind, count in binding.types
    ]


def time_of(limit_ms: Millis, most: int | None) -> int:
    """Return the time limit of a job in minutes, with a reserve as far as that is allowed."""
    minutes = ceil(limit_ms / MINUTE)
    spared = minutes + SPARE_MIN
    return spared if most is None else max(minutes, min(spared, most))


def lasting_of(
    gang: GangLaunch,
    nodes: Collection[str],
    calendar: Calendar,
    partition: Partition | None,
    now: WallTime,
) -> list[str]:
    """Return the options that say for how long a gang may run on nodes, and in which of
    Slurm's reservations: Slurm starts nothing that may reach into another.

    Where that is not for as long as it wants, its first process is told before. Raises
    BackendError where another has begun.
    """
    labels = dict(gang.labels)
    holder = Holder(labels.get("user", ""), labels.get("tenant", ""))
    named = calendar.named(nodes, holder, now)
    left = calendar.minutes(nodes, named, now)
    most, usual = (partition.max_min, partition.usual_min) if partition else (None, None)
    minutes = time_of(gang.limit_ms, most) if gang.limit_ms else usual
    is_cut = left is not None and (minutes is None or left < minutes)
    options = [f"--reservation={named}"] if named else []
    if gang.limit_ms or is_cut:
        options.append(f"--time={left if is_cut else minutes}")
    lasts = left if is_cut else minutes
    if lasts is not None and not gang.mpi.by_engine:
        options += _warned(gang, lasts)
    return options


def _warned(gang: GangLaunch, lasts_min: int) -> list[str]:
    """Return the option that has Slurm tell the first process of a task before it ends it,
    where it would do so before we do."""
    if gang.limit_ms and lasts_min * MINUTE >= gang.limit_ms:
        return []
    grace_s = ceil(gang.warning[1] / 1000) + SPARE_S
    return [f"--signal=B:{WARNING}@{min(grace_s, 30 * lasts_min, MOST_WARNING_S)}"]


def quoted(path: str) -> str:
    """Return a path as one word of a shell."""
    return "'" + path.replace("'", "'\\''") + "'"
