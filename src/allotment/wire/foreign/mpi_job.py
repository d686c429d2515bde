"""Kubeflow's MPIJob: a launcher whose mpirun starts ranks in workers, by a host file."""

from pathlib import PurePosixPath

import msgspec

from allotment.model.spec import MPI_PORT, MPI_SLOTS, MPI_WAITS, Dialect
from allotment.wire.foreign.fields import READ, Fields, Remarks, Unused
from allotment.wire.foreign.job import CONTAINER, Role, begin, finish, read_policy, read_roles
from allotment.wire.job_file import JobFile
from allotment.wire.tree import Plain, Tree

SPEC: Fields = {
    "mpiReplicaSpecs": READ,
    "runPolicy": READ,
    "slotsPerWorker": READ,
    "mpiImplementation": READ,
    "runLauncherAsWorker": READ,
    "launcherCreationPolicy": Unused("all tasks of a job start together"),
    "sshAuthMountPath": Unused("no keys are made: mpirun gets to workers without SSH"),
    "cleanPodPolicy": Unused("a job that ends leaves nothing behind"),
}
SSHD = "sshd"


def read_mpi_job(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read an MPIJob, of v1 or v2beta1. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    place = ("spec", "mpiReplicaSpecs")
    kinds = ("Launcher", "Worker")
    draft.roles = read_roles(spec.get("mpiReplicaSpecs"), place, kinds, told, MPI_WAITS)
    read_policy(draft, spec.get("runPolicy"), ("spec", "runPolicy"), told)
    if not any(role.name == "launcher" and role.count == 1 for role in draft.roles):
        told.refuse((*place, "Launcher"), "must be one: it starts the ranks in the workers")
    for role in draft.roles:
        role.decides = role.name == "launcher"
        if role.decides and role.task.command == MPI_WAITS:
            told.refuse((*role.place, "template"), "names no command", "write its mpirun")
        if not role.decides:
            role.ports = {MPI_PORT: 1}
            _wait(role, told)
    if told.truth(spec.get("runLauncherAsWorker"), ("spec", "runLauncherAsWorker")):
        told.refuse(("spec", "runLauncherAsWorker"), "puts ranks beside the launcher",
                    "add a worker in its place")  # fmt: skip
    if spec.get("mpiImplementation") not in (None, "", "OpenMPI"):
        told.refuse(
            ("spec", "mpiImplementation"), "must be OpenMPI: only its host file is written"
        )
    slots = told.number(spec.get("slotsPerWorker"), ("spec", "slotsPerWorker"), 1, 1)
    draft.env = {
        MPI_SLOTS: str(slots),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    return finish(draft, Dialect.MPI_JOB, told, tree, source)


def _wait(role: Role, told: Remarks) -> None:
    """Have workers wait that are to serve SSH: its port would be one of their node."""
    place = (*role.place, *CONTAINER, "command")
    command = role.task.command
    if command and PurePosixPath(command[0]).name == SSHD:
        told.warn(place, "is not run: mpirun gets to workers without SSH")
        role.task = msgspec.structs.replace(role.task, command=MPI_WAITS)
    elif command != MPI_WAITS:
        told.warn(place, "is all that its task runs: mpirun starts no ranks there",
                  "take it out")  # fmt: skip
