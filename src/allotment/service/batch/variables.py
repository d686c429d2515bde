"""What a batch system would tell a script of its job: SLURM_*, LSB_*. Pure.

What is known when a job is submitted stands in `Batch.variables`, and wins.
"""

from collections.abc import Callable, Mapping

from allotment.engine.records import AttemptRecord, JobRecord
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.quantity import DEVICE
from allotment.model.spec import Dialect, JobSpec

Env = dict[str, str]
Nodes = Mapping[NodeId, Node]

CLUSTER = "allotment"


def batch_env(job: JobRecord, nodes: Nodes, user: str) -> Env:
    """Return the variables of the batch system for which a job's script was written."""
    spec = job.running_as
    make = MAKE.get(spec.dialect)
    if spec.batch is None or make is None:
        return {}
    told = {**make(job, nodes, user), **dict(spec.batch.variables)}
    if spec.dialect is Dialect.LSF and spec.array is not None:
        told["LSB_JOBNAME"] += f"[{spec.array.index}]"
    return told


def cpus_of(spec: JobSpec) -> int:
    """Return how many CPUs a job's script has, rounded up to whole ones."""
    return max(1, -(-spec.roles[0].resources.cpu_milli // 1000))


def _slurm(job: JobRecord, nodes: Nodes, user: str) -> Env:
    spec, attempt = job.running_as, job.attempts[-1]
    tasks, cpus = _tasks(spec), str(cpus_of(spec))
    node = nodes[attempt.slots[0].node].name
    env = {
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.family,
        "SLURM_JOB_NODELIST": node,
        "SLURM_NODELIST": node,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_TASKS_PER_NODE": str(tasks),
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_TOPOLOGY_ADDR": node,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURMD_NODENAME": node,
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_JOB_PARTITION": spec.queue,
        "SLURM_JOB_ACCOUNT": spec.tenant,
        "SLURM_JOB_QOS": "normal",
        "SLURM_JOB_USER": user,
        "SLURM_SUBMIT_DIR": spec.workdir,
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": node,
        **_slurm_devices(attempt),
    }
    if attempt.no > 1:
        env["SLURM_RESTART_COUNT"] = str(attempt.no - 1)
    if spec.array is not None:
        env |= {
            "SLURM_ARRAY_JOB_ID": str(spec.array.parent),
            "SLURM_ARRAY_TASK_ID": str(spec.array.index),
            "SLURM_ARRAY_TASK_COUNT": str(spec.array.jobs),
            "SLURM_ARRAY_TASK_MIN": "0",
            "SLURM_ARRAY_TASK_MAX": str(spec.array.size - 1),
            "SLURM_ARRAY_TASK_STEP": "1",
        }
    return env


def _slurm_devices(attempt: AttemptRecord) -> Env:
    devices = attempt.slots[0].devices
    if not devices:
        return {}
    return {
        "SLURM_JOB_GPUS": ",".join(str(device) for device in devices),
        "SLURM_GPUS_ON_NODE": str(max(1, attempt.slots[0].gpu_milli // DEVICE)),
        "GPU_DEVICE_ORDINAL": ",".join(str(device) for device in devices),
    }


def _tasks(spec: JobSpec) -> int:
    return spec.batch.tasks if spec.batch is not None else 1


def _lsf(job: JobRecord, nodes: Nodes, user: str) -> Env:
    spec, attempt = job.running_as, job.attempts[-1]
    tasks, array = _tasks(spec), spec.array
    node = nodes[attempt.slots[0].node].name
    number = str(array.parent if array else job.id)
    return {
        "LSB_JOBID": number,
        "LSB_JOBINDEX": str(array.index if array else 0),
        "LSB_BATCH_JID": f"{number}[{array.index}]" if array else number,
        "LSB_JOBNAME": spec.family,
        "LSB_QUEUE": spec.queue,
        "LSB_HOSTS": " ".join([node] * tasks),
        "LSB_MCPU_HOSTS": f"{node} {tasks}",
        "LSB_DJOB_NUMPROC": str(tasks),
        "LSB_MAX_NUM_PROCESSORS": str(tasks),
        "LSB_EXEC_CLUSTER": CLUSTER,
        "LSB_PROJECT_NAME": "default",
        "LSB_RESTART": "Y" if attempt.no > 1 else "N",
        "LSB_SUB_USER": user,
        "LSFUSER": user,
        "LS_SUBCWD": spec.workdir,
        "LS_EXECCWD": spec.workdir,
    }


MAKE: Mapping[Dialect, Callable[[JobRecord, Nodes, str], Env]] = {
    Dialect.SLURM: _slurm,
    Dialect.LSF: _lsf,
}
