"""A gang with `mpi: mpirun` on nodes that are held: how mpirun gets from task to task. Pure."""

import hmac
from hashlib import sha256
from pathlib import PurePosixPath

from msgspec.structs import replace

from allotment.model.spec import Mpi
from allotment.service.job_folders import MPI_AGENT
from allotment.service.ports import GangLaunch, TaskLaunch

PYTHON = "/usr/bin/python3"
FOR_OPEN_MPI = {
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "OMPI_MCA_orte_leave_session_attached": "1",
}
"""Each daemon is started from mpirun's node, and stays a child of what started it."""


def with_agents(gang: GangLaunch, secret: bytes) -> GangLaunch:
    """Have the tasks behind the first start mpirun's daemons; other gangs stay as they are.

    Of one attempt all tasks have the same key, however often it is launched.
    """
    if gang.mpi is not Mpi.MPIRUN:
        return gang
    return replace(gang, tasks=tuple(_with_agent(task, secret) for task in gang.tasks))


def _with_agent(task: TaskLaunch, secret: bytes) -> TaskLaunch:
    env, key = dict(task.env), task.key
    agent = f"{PurePosixPath(env['ALLOT_HOSTFILE']).parent}/{MPI_AGENT}"
    of_attempt = hmac.new(secret, f"{key.job}.{key.attempt}".encode(), sha256).hexdigest()
    env = {
        **FOR_OPEN_MPI,
        "OMPI_MCA_plm_rsh_agent": f"{PYTHON} -I -S {agent}",
        **env,
        "ALLOT_MPI_KEY": of_attempt,
    }
    argv = (PYTHON, "-I", "-S", agent, "serve") if key.index else task.argv
    return replace(task, argv=argv, env=tuple(sorted(env.items())))
