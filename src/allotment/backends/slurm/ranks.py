"""A gang whose tasks are the ranks of a program with MPI → one Slurm job for all of it. Pure.

Slurm tells only tasks of one step of each other (PMI). So the gang is one job on all its nodes,
and in it one step, with the first process of each task as one of the step's tasks. Which task
goes where is Allotment's: the hosts file names a node for each rank.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from allotment.backends.slurm.request import (
    PYTHON,
    amount_of,
    common_of,
    cpus_of,
    gpus_of,
    gres_of,
    quoted,
)
from allotment.backends.slurm.status import Row, Rows
from allotment.model.ids import TaskIndex, TaskKey
from allotment.model.reports import TaskReport
from allotment.service.ports import GangLaunch, TaskLaunch

MOST_WORDS = 300
SCRIPT, HOSTS = "mpi.sh", "mpi-hosts"
"""Files beside the folders of the tasks, which are the service's own."""


class Share(msgspec.Struct, frozen=True):
    """What of the gang's job one task has, on its node."""

    cpus: int
    mib: int
    gres: str = ""


def share_of(task: TaskLaunch) -> Share:
    """Return what of its gang's Slurm job a task has."""
    return Share(cpus_of(task.resources), amount_of(task.resources), gres_of(task.binding))


def lead_of(key: TaskKey) -> TaskKey:
    """Return the task by whose name the Slurm job of its gang is found: rank 0."""
    return msgspec.structs.replace(key, index=TaskIndex(0))


def misfit_of(gang: GangLaunch) -> str:
    """Return why tasks cannot be the ranks of one step; '' where they can."""
    if [task.key.index for task in gang.tasks] != list(range(len(gang.tasks))):
        return "the other ranks were started before: ranks start together or not at all"
    if len({task.binding.types for task in gang.tasks}) > 1:
        return "its ranks have different types of GPUs: name one as `gpu_type`"
    if len(gang.tasks[0].binding.types) > 1:
        return "a rank has GPUs of several types: name one as `gpu_type`"
    return ""


def hosts_of(gang: GangLaunch) -> str:
    """Return the node of each rank, a line for each."""
    return "".join(f"{task.binding.node}\n" for task in gang.tasks)


def options_of_ranks(gang: GangLaunch, prefix: str, partition: str, folder: str) -> list[str]:
    """Return the options of `sbatch` for the job of a gang; its hosts file says where."""
    first = gang.tasks[0]
    cpus, mib = cpus_of(first.resources), amount_of(first.resources)
    options = [
        *common_of(gang, first.key, prefix, partition, folder),
        f"--nodes={len({task.binding.node for task in gang.tasks})}",
        f"--ntasks={len(gang.tasks)}",
        "--distribution=arbitrary",
        f"--cpus-per-task={cpus}",
        f"--mem-per-cpu={max(1, ceil(mib / cpus))}M",
    ]
    if gpus := gpus_of(first.binding):
        options.append(f"--gpus-per-task={gpus}")
    return options


def script_of_ranks(gang: GangLaunch, folder: str, runner: str, path: str) -> str:
    """Return the batch script: one step, with a rank's first process as each of its tasks.

    `folder` has a folder for each task, by its index; `path` is where Slurm's programs are. How
    a rank ends its first process says, and not Slurm, which would end the others at once.
    """
    words = [
        "srun", f"--mpi={gang.mpi.value}", "--distribution=arbitrary",
        f"--ntasks={len(gang.tasks)}", f"--cpus-per-task={cpus_of(gang.tasks[0].resources)}",
        "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--chdir=/", "--quiet",
    ]  # fmt: skip
    if gpus := sum(count for _, count in gang.tasks[0].binding.types):
        words.append(f"--gpu-bind=per_task:{gpus}")  # Else each would see those of all.
    return (
        "#!/bin/sh\n"
        '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\n'
        f"export PATH={quoted(path)} SLURM_HOSTFILE={quoted(f'{folder}/{HOSTS}')}\n"
        f"exec {' '.join(words)} {PYTHON} -I -S {quoted(runner)} rank {quoted(folder)}\n"
    )


def by_node(
    rows: Rows, shares: Mapping[tuple[str, int], Mapping[str, Sequence[Share]]]
) -> Rows:
    """Put a row for each node in the place of the one of a gang's job, which has them all."""
    found: dict[tuple[str, int], Row] = {}
    for name, row in rows.items():
        nodes = shares.get(name)
        if nodes is None:
            found[name] = row
            continue
        for node, its in nodes.items():
            devices = Counter[str]()
            for share in its:
                kind, _, count = share.gres.rpartition(":")
                devices[kind] += int(count or 0)
            found[f"{row.name}@{node}", row.uid] = msgspec.structs.replace(
                row,
                id=f"{row.id}@{node}",
                node=node,
                cpus=sum(share.cpus for share in its),
                memory=f"{sum(share.mib for share in its)}M",
                gres=",".join(f"{kind}:{count}" for kind, count in devices.items() if count),
            )
    return found


def with_words(told: TaskReport, said: str) -> TaskReport:
    """Add what srun said to the end of a rank that never came up, as its state does not."""
    lines = [line for line in said.splitlines() if "error" in line]
    if told.exit is None or not told.exit.platform_error or not lines:
        return told
    why = f"{told.exit.platform_error}; srun said: {lines[0].strip()[:MOST_WORDS]}"
    return msgspec.structs.replace(
        told, exit=msgspec.structs.replace(told.exit, platform_error=why)
    )
