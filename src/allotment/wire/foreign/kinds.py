"""The kinds of objects that are read as jobs."""

from collections.abc import Sequence

from allotment.model.errors import BadInput, Problem
from allotment.wire.foreign.batch_job import read_batch_job
from allotment.wire.foreign.framework import read_framework
from allotment.wire.foreign.job_set import read_job_set
from allotment.wire.foreign.mpi_job import read_mpi_job
from allotment.wire.foreign.pytorch_job import read_pytorch_job
from allotment.wire.foreign.runtime import KINDS as RUNTIMES
from allotment.wire.foreign.runtime import VERSION, read_runtime
from allotment.wire.foreign.tf_job import read_tf_job
from allotment.wire.foreign.train_job import read_train_job
from allotment.wire.job_file import JobFile
from allotment.wire.text import shown
from allotment.wire.tree import Leaf, Plain, Table, plain_of

TRAIN_JOB = "TrainJob"
KINDS = {
    ("kubeflow.org/v1", "PyTorchJob"): read_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): read_tf_job,
    ("kubeflow.org/v1", "MPIJob"): read_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): read_mpi_job,
    (VERSION, TRAIN_JOB): read_train_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): read_job_set,
    ("frameworkcontroller.microsoft.com/v1", "Framework"): read_framework,
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
        message = f"{shown(kind)} of {shown(version)} is not a kind of job that Allotment reads"
        raise BadInput((Problem(message, "kind", tree.entries["kind"].line, known),), source)
    return read(plain, tree, source)


def read_train_job_with(documents: Sequence[Table], source: str) -> JobFile | None:
    """Read a TrainJob with the runtimes in its file; None where the file is anything else.
    Raises BadInput."""
    kinds = [(_word(tree, "apiVersion"), _word(tree, "kind")) for tree in documents]
    if kinds.count((VERSION, TRAIN_JOB)) != 1 or not all(
        version == VERSION and kind in (TRAIN_JOB, *RUNTIMES) for version, kind in kinds
    ):
        return None
    job = documents[kinds.index((VERSION, TRAIN_JOB))]
    others = [tree for tree in documents if tree is not job]
    runtimes = [read_runtime(plain_of(tree), tree, source) for tree in others]
    return read_train_job(plain_of(job), job, source, runtimes)


def _word(tree: Table, key: str) -> str:
    value = tree.entries[key].value
    return str(value.value) if isinstance(value, Leaf) else ""
