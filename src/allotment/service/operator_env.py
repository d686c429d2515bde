"""What an operator of Kubernetes would tell the tasks of its jobs, as far as it hangs on where
they run. What is known before stands in the job's own environment."""

from collections.abc import Callable, Mapping

from allotment.engine.records import JobRecord
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.spec import MPI_SLOTS, Dialect, JobSpec

Env = dict[str, str]
Nodes = Mapping[NodeId, Node]
LAUNCHER = "launcher"


def operator_env(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    """Return the variables of one task; none where its job was not written for an operator."""
    make = MAKE.get(job.spec.dialect)
    return make(job, index, nodes, hostfile) if make is not None else {}


def slots_of(spec: JobSpec, index: int) -> int:
    """Return how many ranks mpirun may start where a task is; an MPIJob's are in workers."""
    if spec.dialect is not Dialect.MPI_JOB:
        return spec.batch.tasks if spec.batch is not None else 1
    role, _ = spec.role_of(index)
    return 0 if role.name == LAUNCHER else int(dict(spec.env).get(MPI_SLOTS, "1"))


def _pytorch(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    attempt = job.attempts[-1]
    return {
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": nodes[attempt.slots[0].node].address,
        "PET_MASTER_PORT": str(attempt.port),
    }


def _mpi(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    role, _ = job.running_as.role_of(index)
    return {"K_MPI_JOB_ROLE": role.name, "OMPI_MCA_orte_default_hostfile": hostfile}


def _batch(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    array = job.spec.array
    return {"JOB_COMPLETION_INDEX": str(array.index if array is not None else 0)}


MAKE: Mapping[Dialect, Callable[[JobRecord, int, Nodes, str], Env]] = {
    Dialect.PYTORCH_JOB: _pytorch,
    Dialect.MPI_JOB: _mpi,
    Dialect.BATCH_JOB: _batch,
}
