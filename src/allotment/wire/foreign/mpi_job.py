"""Kubeflow's MPIJob: a launcher whose mpirun starts ranks in workers, by a host file."""

from allotment.model.spec import MPI_SLOTS, Dialect
from allotment.wire.foreign.fields import READ, Fields, Remarks, Unused
from allotment.wire.foreign.job import begin, finish, read_policy, read_roles
from allotment.wire.job_file import JobFile
from allotment.wire.tree import Plain, Tree

SPEC: Fields = {
    "mpiReplicaSpecs": READ,
    "runPolicy": READ,
    "slotsPerWorker": READ,
    "mpiImplementation": READ,
    "runLauncherAsWorker": READ,
    "launcherCreationPolicy": Unused("all tasks of a job start together"),
    "sshAuthMountPath": Unused(
        "no keys are made: between nodes, mpirun needs those of the image"
    ),
    "cleanPodPolicy": Unused("a job that ends leaves nothing behind"),
}
WAITS = ("sleep", "infinity")
"""What a worker does that names no command, until the launcher has ended."""


def read_mpi_job(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read an MPIJob, of v1 or v2beta1. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    place = ("spec", "mpiReplicaSpecs")
    kinds = ("Launcher", "Worker")
    draft.roles = read_roles(spec.get("mpiReplicaSpecs"), place, kinds, told, WAITS)
    read_policy(draft, spec.get("runPolicy"), ("spec", "runPolicy"), told)
    if not any(role.name == "launcher" and role.count == 1 for role in draft.roles):
        told.refuse((*place, "Launcher"), "must be one: it starts the ranks in the workers")
    for role in draft.roles:
        role.decides = role.name == "launcher"
        if role.decides and role.task.command == WAITS:
            told.refuse((*role.place, "template"), "names no command", "write its mpirun")
    if told.truth(spec.get("runLauncherAsWorker"), ("spec", "runLauncherAsWorker")):
        told.refuse(("spec", "runLauncherAsWorker"), "puts ranks beside the launcher",
                    "add a worker in its place")  # fmt: skip
    if spec.get("mpiImplementation") not in (None, "", "OpenMPI"):
        told.refuse(
            ("spec", "mpiImplementation"), "must be OpenMPI, whose host file is written"
        )
    slots = told.number(spec.get("slotsPerWorker"), ("spec", "slotsPerWorker"), 1, 1)
    draft.env = {
        MPI_SLOTS: str(slots),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    return finish(draft, Dialect.MPI_JOB, told, tree, source)
