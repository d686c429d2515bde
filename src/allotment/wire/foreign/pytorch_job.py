"""Kubeflow's PyTorchJob: a master and workers, which find each other by MASTER_ADDR."""

import re

from allotment.model.spec import Dialect
from allotment.wire.foreign.fields import READ, Fields, Refused, Remarks
from allotment.wire.foreign.job import begin, finish, read_policy, read_roles
from allotment.wire.job_file import JobFile
from allotment.wire.text import shown
from allotment.wire.tree import Plain, Tree

SPEC: Fields = {
    "pytorchReplicaSpecs": READ,
    "runPolicy": READ,
    "nprocPerNode": READ,
    "elasticPolicy": Refused(
        "lets the number of workers vary",
        "take it out; a job file has `count: {min: 2, max: 8, elastic: true}`",
    ),
}
HOW_MANY = re.compile("auto|gpu|cpu|[1-9][0-9]{0,2}")


def read_pytorch_job(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read a PyTorchJob. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    place = ("spec", "pytorchReplicaSpecs")
    draft.roles = read_roles(spec.get("pytorchReplicaSpecs"), place, ("Master", "Worker"), told)
    read_policy(draft, spec.get("runPolicy"), ("spec", "runPolicy"), told)
    each = str(spec.get("nprocPerNode") or "auto")
    if not HOW_MANY.fullmatch(each):
        told.refuse(
            ("spec", "nprocPerNode"),
            f"must be a number from 1 to 999, auto, gpu or cpu, not {shown(each)}",
        )
        each = "auto"
    tasks = sum(role.count for role in draft.roles)
    processes = tasks * int(each) if each.isdecimal() else tasks
    draft.env = {
        "WORLD_SIZE": str(processes),
        "PET_NNODES": str(tasks),
        "PET_NPROC_PER_NODE": each,
    }
    return finish(draft, Dialect.PYTORCH_JOB, told, tree, source)
