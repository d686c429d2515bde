"""What an operator of Kubernetes would tell the tasks of its jobs, as far as it hangs on where
they run. What is known before stands in the job's own environment."""

from collections.abc import Callable, Mapping

from allotment.engine.records import JobRecord
from allotment.model.cluster import Node
from allotment.model.ids import NodeId, TaskIndex
from allotment.model.later import OPENING, Known
from allotment.model.port_layout import ports_by_task
from allotment.model.spec import MPI_PORT, MPI_SLOTS, SET_JOBS, Dialect, JobSpec
from allotment.service.ports import MpiHost

Env = dict[str, str]
Nodes = Mapping[NodeId, Node]
LAUNCHER = "launcher"
LONGEST_KNOWN = 255
"""Characters of a variable that is put into texts, which may name it many times: as long as the
address of a node can be."""


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


def mpi_hosts(job: JobRecord, nodes: Nodes) -> dict[TaskIndex, MpiHost]:
    """Return the workers of an MPIJob by the names that its operator gives them; none of
    other jobs, and of one that was read before workers had ports."""
    spec, attempt = job.running_as, job.attempts[-1]
    if spec.dialect is not Dialect.MPI_JOB:
        return {}
    found: dict[TaskIndex, MpiHost] = {}
    for index, ports in enumerate(ports_by_task(spec, attempt.port)):
        if MPI_PORT in ports:
            role, number = spec.role_of(index)
            found[TaskIndex(index)] = MpiHost(
                f"{spec.name}-{role.name}-{number}.{spec.name}", slots_of(spec, index),
                nodes[attempt.slots[index].node].address, ports[MPI_PORT][0],
            )  # fmt: skip
    return found


def known_later(job: JobRecord, index: int, nodes: Nodes, given: Env) -> Known:
    """Return what tells, by its name, a thing that is known of a task once it starts.

    `given` are variables of the task that are not its own job's.
    """
    spec, attempt = job.running_as, job.attempts[-1]
    role, number = spec.role_of(index)
    in_set = _place_in_set(spec, index)
    short = {
        name: value
        for name, value in (*given.items(), *spec.env)
        if len(value) <= LONGEST_KNOWN and OPENING not in value
    }
    node = nodes[attempt.slots[index].node]
    own = short | in_set | {
        "task.role": role.name,
        "task.number": str(number),
        "task.node": node.name,
        "task.address": node.address,
        "task.restart": str(attempt.no - 1),
    }  # fmt: skip

    def look_up(name: str) -> str | None:
        host, _, other = name.removeprefix("host.").rpartition(".")
        if not name.startswith("host.") or not (other.isdecimal() and len(other) < 9):
            return own.get(name)
        first = 0
        for each in spec.roles:
            if each.name == host and int(other) < each.count:
                return nodes[attempt.slots[first + int(other)].node].address
            first += each.count
        return None

    return look_up


def _place_in_set(spec: JobSpec, index: int) -> Env:
    """Return which Job of a JobSet a task is of, and which of its pods. O(roles)."""
    if spec.dialect is not Dialect.JOB_SET:
        return {}
    said: Env = {}
    for each in dict(spec.env).get(SET_JOBS, "").split(","):
        name, _, jobs_of = each.partition("=")
        said[name] = jobs_of
    before = 0
    for role in spec.roles:
        text = said.get(role.name, "1")
        jobs = min(max(1, int(text)) if text.isdecimal() and len(text) < 9 else 1, role.count)
        pods = role.count // jobs
        if index < role.count:
            return {
                "task.replicas": str(jobs),
                "task.job-index": str(index // pods),
                "task.job-global-index": str(before + index // pods),
                "task.completion-index": str(index % pods),
            }
        index -= role.count
        before += jobs
    raise IndexError(index)


def _job_set(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    place = _place_in_set(job.running_as, index)
    return {"JOB_COMPLETION_INDEX": place["task.completion-index"]}


def _framework(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    spec = job.running_as
    role, number = spec.role_of(index)
    return {
        "FC_FRAMEWORK_NAME": spec.name,
        "FC_TASKROLE_NAME": role.name,
        "FC_TASK_INDEX": str(number),
        "FC_FRAMEWORK_ATTEMPT_ID": str(job.attempts[-1].no - 1),
        "FC_POD_NAME": f"{spec.name}-{role.name}-{number}",
    }


def _train(job: JobRecord, index: int, nodes: Nodes, hostfile: str) -> Env:
    """Return what the runtime would tell a node; which one it is shows what it told all."""
    attempt, all_are_told = job.attempts[-1], dict(job.running_as.env)
    address, port = nodes[attempt.slots[0].node].address, str(attempt.port)
    told = {"JOB_COMPLETION_INDEX": str(index)}
    if "PET_NNODES" in all_are_told:
        told |= _pytorch(job, index, nodes, hostfile)
    if "JAX_NUM_PROCESSES" in all_are_told:
        told |= {
            "JAX_PROCESS_ID": str(index),
            "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        }
    if "DMLC_NUM_WORKER" in all_are_told:
        told |= {
            "DMLC_TASK_ID": str(index),
            "DMLC_TRACKER_URI": address,
            "DMLC_TRACKER_PORT": port,
        }
    return told


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
    Dialect.TRAIN_JOB: _train,
    Dialect.JOB_SET: _job_set,
    Dialect.FRAMEWORK: _framework,
}
