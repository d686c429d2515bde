"""How mpirun is told to start its daemons by a program of ours in place of ssh. Pure."""

import hmac
from hashlib import sha256

from allotment.model.ids import TaskKey
from allotment.service.mpi_agent import KEY

FOR_OPEN_MPI = {
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "OMPI_MCA_orte_leave_session_attached": "1",
}
"""Each daemon is started from mpirun's task, and stays a child of what started it."""
AGENT = "OMPI_MCA_plm_rsh_agent"


def key_of(key: TaskKey, secret: bytes) -> str:
    """Return what the tasks of an attempt know each other by, the same at each launch."""
    return hmac.new(secret, f"{key.job}.{key.attempt}".encode(), sha256).hexdigest()


__all__ = ["AGENT", "FOR_OPEN_MPI", "KEY", "key_of"]
