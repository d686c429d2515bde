"""A gang with `mpi: mpirun` on nodes that are held: how mpirun gets from task to task. Pure."""

from pathlib import PurePosixPath

from msgspec.structs import replace

from allotment.backends.mpi_agents import AGENT, FOR_OPEN_MPI, KEY, key_of
from allotment.model.spec import Mpi
from allotment.service.job_folders import MPI_AGENT
from allotment.service.ports import GangLaunch, TaskLaunch

PYTHON = "/usr/bin/python3"


def with_agents(gang: GangLaunch, secret: bytes) -> GangLaunch:
    """Have the tasks behind the first start mpirun's daemons; other gangs stay as they are."""
    if gang.mpi is not Mpi.MPIRUN:
        return gang
    return replace(gang, tasks=tuple(_with_agent(task, secret) for task in gang.tasks))


def _with_agent(task: TaskLaunch, secret: bytes) -> TaskLaunch:
    env, key = dict(task.env), task.key
    agent = f"{PurePosixPath(env['ALLOT_HOSTFILE']).parent}/{MPI_AGENT}"
    own = {AGENT: f"{PYTHON} -I -S {agent}"}
    env = {**FOR_OPEN_MPI, **own, **env, KEY: key_of(key, secret)}
    argv = (PYTHON, "-I", "-S", agent, "serve") if key.index else task.argv
    return replace(task, argv=argv, env=tuple(sorted(env.items())))
