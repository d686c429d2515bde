"""A task → the Slurm job that runs it. Pure: no clock, no files."""

import json
from math import ceil

from allotment.backends.slurm.discover import UNTYPED
from allotment.model.engines import EngineSetup
from allotment.model.ids import TaskKey
from allotment.model.quantity import MIB, MINUTE, Millis
from allotment.service.ports import Binding, GangLaunch, Limit, TaskLaunch

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

SPARE_MIN = 5
"""Added to a time limit, in minutes: the service ends a task first, and knows why."""


def name_of(prefix: str, key: TaskKey) -> str:
    """Return the name of a task's Slurm job, by which a submission is found again."""
    return f"{prefix}-{key.job}.{key.attempt}.{key.index}"


def document_of(gang: GangLaunch, task: TaskLaunch) -> bytes:
    """Return what the task's first process reads: `request.json`."""
    env = {name: value for name, value in task.env if name not in UNSEEN}
    told = {
        "argv": task.argv,
        "env": env,
        "cwd": gang.workdir,
        "at_barrier": gang.at_barrier,
        "log_bytes": gang.log_bytes,
    }
    return json.dumps(told).encode()


def script_of(folder: str, runner: str) -> str:
    """Return the batch script. A job that Slurm starts a second time ends without a trace."""
    return (
        "#!/bin/sh\n"
        '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\n'
        f"exec {PYTHON} -I -S {_quoted(runner)} {_quoted(folder)}\n"
    )


def options_of(
    gang: GangLaunch, task: TaskLaunch, prefix: str, partition: str, folder: str
) -> list[str]:
    """Return the options of `sbatch`: one task, on this node, with these amounts."""
    need = task.resources
    labels = "".join(f" {name}={value}" for name, value in gang.labels)
    options = [
        f"--job-name={name_of(prefix, task.key)}",
        f"--comment=allotment {task.key}{labels}",
        f"--partition={partition}",
        f"--nodelist={task.binding.node}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={max(1, ceil(need.cpu_milli / 1000))}",
        f"--mem={max(1, ceil(need.memory / MIB))}M",
        "--no-requeue",
        "--export=NIL",
        "--chdir=/",
        f"--output={folder.replace('%', '%%')}/slurm.log",
        "--open-mode=append",
    ]
    if gres := gres_of(task.binding):
        options.append(f"--gres={gres}")
    if gang.identity is not None:
        options += [f"--uid={gang.identity.uid}", f"--gid={gang.identity.gid}"]
    return options


def charges_of(gang: GangLaunch, setup: EngineSetup) -> list[str]:
    """Return the options that say to which account of Slurm a gang is charged."""
    account = dict(setup.accounts).get(dict(gang.labels).get("tenant", ""), "")
    return [
        *([f"--account={account}"] if account else []),
        *([f"--qos={setup.qos}"] if setup.qos else []),
    ]


def gres_of(binding: Binding) -> str:
    """Return the devices of a task by type and number, such as `gpu:a100:2`; '' for none."""
    return ",".join(
        f"gpu:{count}" if kind == UNTYPED else f"gpu:{kind}:{count}"
        for kind, count in binding.types
    )


def time_of(limit_ms: Millis, most: Limit | None) -> int:
    """Return the time limit of a job in minutes, with a reserve as far as that is allowed."""
    minutes = ceil(limit_ms / MINUTE)
    spared = minutes + SPARE_MIN
    return spared if most is None else max(minutes, min(spared, most.most_ms // MINUTE))


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
