"""An MPIJob in pods, as its operator would have it but for SSH: mpirun in the launcher starts
its daemons in the workers, through a small program there. Pure.

Pods are on their nodes' network, where a server of SSH would need a port that no other has, and
where a user needs a name that his image knows. Each worker is a host by its own name, though it
may share a node: so ranks run in the pod that has their devices. No name service knows these
names, and none should: mpirun takes a name that leads to its own node for its own pod.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from allotment.backends.mpi_agents import AGENT, FOR_OPEN_MPI, KEY, key_of
from allotment.model.spec import MPI_WAITS
from allotment.service.job_folders import MPI_AGENT, agent_program
from allotment.service.mpi_agent import HOST, TASKS
from allotment.service.ports import GangLaunch, TaskLaunch

FOLDER = "/etc/mpi"
HOSTS = "hostfile"
NAMES = "discover_hosts.sh"
TABLE = "tasks"
NOTE = "allotment.io/mpi-"
"""Annotations: what the files say that a pod finds there."""
LIST = f'#!/bin/sh\nwhile read -r host _; do echo "$host"; done <{FOLDER}/{HOSTS}\n'
RUN = f"python3 -I -S {FOLDER}/{MPI_AGENT}"
SERVE = f"""\
command -v python3 >/dev/null || {{
  echo "allotment: this image has no python3, by which mpirun gets to a worker" >&2; exit 127
}}
exec {RUN} serve
"""


def with_agents(gang: GangLaunch, secret: bytes) -> GangLaunch:
    """Have the workers of an MPIJob start mpirun's daemons; other gangs stay as they are."""
    if not gang.hosts:
        return gang
    tasks = tuple(_with_agent(gang, task, secret) for task in gang.tasks)
    return replace(gang, tasks=tasks, named=gang.named | {KEY})


def _with_agent(gang: GangLaunch, task: TaskLaunch, secret: bytes) -> TaskLaunch:
    hosts = f"{FOLDER}/{HOSTS}"
    given = {name: value for name, value in task.env if name in gang.named}
    env = {
        **dict(task.env),
        **FOR_OPEN_MPI,
        AGENT: RUN,
        "OMPI_MCA_orte_default_hostfile": hosts,
        **given,
        "ALLOT_HOSTFILE": hosts,
        TASKS: f"{FOLDER}/{TABLE}",
        KEY: key_of(task.key, secret),
    }
    argv, own = task.argv, gang.hosts.get(task.key.index)
    if own is not None:
        env[HOST] = own.name
        argv = ("/bin/sh", "-c", SERVE) if argv == MPI_WAITS else argv
    return replace(task, argv=argv, env=tuple(sorted(env.items())))


class Files(NamedTuple):
    """The files of a pod: annotations with what they say, and where the pod finds them."""

    notes: dict[str, str]
    mounts: list[dict[str, Any]]
    volumes: list[dict[str, Any]]


def files_of(gang: GangLaunch) -> Files:
    """Return the files of each pod of a gang; none where it is no MPIJob."""
    hosts = gang.hosts.values()
    if not hosts:
        return Files({}, [], [])
    says = {
        HOSTS: "".join(f"{host.name} slots={host.slots}\n" for host in hosts),
        NAMES: LIST,
        TABLE: "".join(f"{host.name} {host.address} {host.port}\n" for host in hosts),
        MPI_AGENT: agent_program(),
    }
    items = [
        {
            "path": name,
            "fieldRef": {"fieldPath": f"metadata.annotations['{NOTE}{name}']"},
            "mode": 0o555 if name == NAMES else 0o444,
        }
        for name in says
    ]
    return Files(
        {f"{NOTE}{name}": text for name, text in says.items()},
        [{"name": "mpi", "mountPath": FOLDER, "readOnly": True}],
        [{"name": "mpi", "downwardAPI": {"items": items}}],
    )
