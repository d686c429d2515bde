"""The kinds of objects that are read as jobs."""

from allotment.model.errors import BadInput, Problem
from allotment.wire.foreign.batch_job import read_batch_job
from allotment.wire.foreign.mpi_job import read_mpi_job
from allotment.wire.foreign.pytorch_job import read_pytorch_job
from allotment.wire.foreign.tf_job import read_tf_job
from allotment.wire.job_file import JobFile
from allotment.wire.text import shown
from allotment.wire.tree import Leaf, Plain, Table

KINDS = {
    ("kubeflow.org/v1", "PyTorchJob"): read_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): read_tf_job,
    ("kubeflow.org/v1", "MPIJob"): read_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): read_mpi_job,
    ("batch/v1", "Job"): read_batch_job,
}


def read_foreign(
    plain: Plain, tree: Table, source: str, problems: tuple[Problem, ...]
) -> JobFile:
    """Read an object of a kind that is a job. Raises BadInput."""
    if problems:
        raise BadInput(problems, source)
    version, kind = (_word(tree, key) for key in ("apiVersion", "kind"))
    read = KINDS.get((version, kind))
    if read is None:
        known = ", ".join(f"{kind} ({version})" for version, kind in KINDS)
        message = f"{shown(kind)} of {shown(version)} is no kind of job that is read"
        raise BadInput((Problem(message, "kind", tree.entries["kind"].line, known),), source)
    return read(plain, tree, source)


def _word(tree: Table, key: str) -> str:
    value = tree.entries[key].value
    return str(value.value) if isinstance(value, Leaf) else ""
