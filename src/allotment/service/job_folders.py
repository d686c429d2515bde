"""A job → the folders and files that its attempt needs. Pure: nothing is made here."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from allotment.engine.records import JobRecord
from allotment.model.spec import JobSpec, Mpi
from allotment.service import mpi_agent
from allotment.service.batch.files import File, batch_files, tool_files, tools_folder
from allotment.service.launch import Account, Folders, Nodes, hostfile
from allotment.service.workspace import JobFolders

OPEN = 0o644
MPI_AGENT = "mpi-agent"
"""In the folder of an attempt: the program by which mpirun gets to other nodes."""


@cache
def agent_program() -> str:
    """Return that program."""
    return Path(mpi_agent.__file__).read_text()


def wanted_for(job: JobRecord, folders: Folders, account: Account, nodes: Nodes) -> JobFolders:
    """Return what the present attempt of a job needs."""
    attempt, batch = job.attempts[-1], job.spec.batch
    files = dict(size_files(job, folders, nodes))
    own = folders.attempt(job.id, attempt.no)
    if job.spec.mpi is Mpi.MPIRUN:
        files[f"{own}/{MPI_AGENT}"] = File(agent_program(), 0o555)
    if batch is not None:
        made = batch_files(job, batch, nodes, account.name)
        files |= {f"{own}/{name}": file for name, file in made.items()}
    return JobFolders(
        job=job.id,
        user=job.owner.user,
        folders=(
            folders.output(job.id, job.spec, attempt.no),
            folders.checkpoints(job.id, job.spec),
        ),
        named=named_by(job.spec),
        files=files,
        programs=tools_folder(folders.root) if batch is not None else "",
        program_files=tool_files(folders.root) if batch is not None else {},
        identity=account.identity,
    )


def named_by(spec: JobSpec) -> tuple[str, ...]:
    """Return the folders of a job that its user named and that may be written to."""
    checkpoints = spec.checkpoint.dir if spec.checkpoint is not None else ""
    return tuple(path for path in (spec.output_dir, checkpoints) if path)


def size_files(job: JobRecord, folders: Folders, nodes: Nodes) -> Mapping[str, File]:
    """Return the files that tell the tasks of a gang how many they are, and where."""
    attempt = job.attempts[-1]
    hosts = hostfile(job.spec, attempt, nodes)
    files = {folders.hostfile(job.id, attempt.no): File(hosts, OPEN)}
    if job.spec.roles[-1].elastic:
        size = folders.size_file(job.id, attempt.no)
        files[size] = File(f"{attempt.staying}\n", OPEN)
    return files
