"""A TrainingRuntime of Kubeflow that stands in the file of its TrainJob: what a node runs."""

import msgspec

from allotment.model.errors import Problem
from allotment.wire.foreign import batch_job
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.foreign.job import OBJECT
from allotment.wire.foreign.pod import INDEXED, Task, read_template
from allotment.wire.problems import problem_at, raise_all
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain, Tree

KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
VERSION = "trainer.kubeflow.org/v1alpha1"
META: Fields = {
    "name": READ,
    "namespace": Unused("it is for the job in its file"),
    "labels": Unused("its mlPolicy says what it is"),
    "annotations": Unused("it is for the job in its file"),
    "creationTimestamp": Unused("it says nothing about the job"),
}
SPEC: Fields = {
    "mlPolicy": READ,
    "template": READ,
    "podGroupPolicy": Unused("all tasks of a job start together"),
}
BY_SSH = Refused("has mpirun start ranks over SSH", "write an MPIJob")
POLICY: Fields = {
    "numNodes": READ,
    "torch": READ,
    "jax": READ,
    "xgboost": READ,
    "mpi": BY_SSH,
    "flux": Refused("needs Flux in each pod", "write the command that Flux would start"),
}
TORCH: Fields = {"numProcPerNode": READ, "envInjection": Unused("a node is one container")}
TEMPLATE: Fields = {"metadata": Unused("it is of an object of a cluster"), "spec": READ}
SET: Fields = {
    "replicatedJobs": READ,
    "failurePolicy": READ,
    "network": Unused("nodes are told where the first one is"),
    "successPolicy": Unused("the job ends with its nodes"),
    "startupPolicy": Unused("all tasks of a job start together"),
}
FAILURE: Fields = {"maxRestarts": READ}
PART: Fields = {
    "name": READ,
    "replicas": READ,
    "template": READ,
    "groupName": Unused("groups have no meaning but in labels"),
    "dependsOn": Refused(
        "waits for another, and all tasks of a job start together", "make it a job of its own"
    ),
}
JOB: Fields = {
    **batch_job.SPEC,
    "parallelism": Unused("numNodes says how many there are"),
    "completions": Unused("numNodes says how many there are"),
    "suspend": Unused("the TrainJob says whether it is held"),
    "activeDeadlineSeconds": Refused("is the job's", "write it into the TrainJob"),
    "backoffLimitPerIndex": Refused("is about some of its pods", "write backoffLimit"),
}
PARTS: Place = ("spec", "template", "spec", "replicatedJobs")


class Runtime(msgspec.Struct, frozen=True):
    """How the nodes of a TrainJob are started."""

    kind: str
    name: str
    policy: str
    """What tells its nodes of each other: torch, jax, xgboost, or '' for nothing."""
    retry: int
    nodes: int = 1
    processes: str = "auto"
    """How many a torchrun starts, where the job does not say."""
    task: Task = Task()
    warnings: tuple[Problem, ...] = ()


def read_runtime(plain: Plain, tree: Tree | None, source: str) -> Runtime:
    """Read a runtime. Raises BadInput."""
    told = Remarks()
    found = told.map(plain, (), OBJECT)
    meta = told.map(found.get("metadata"), ("metadata",), META)
    spec = told.map(found.get("spec"), ("spec",), SPEC)
    policy = told.map(spec.get("mlPolicy"), ("spec", "mlPolicy"), POLICY)
    torch = told.map(policy.get("torch"), ("spec", "mlPolicy", "torch"), TORCH)
    within: Place = ("spec", "template")
    template = told.map(spec.get("template"), within, TEMPLATE)
    body = told.map(template.get("spec"), (*within, "spec"), SET)
    task, tries = _node(body, told)
    at = (*within, "spec", "failurePolicy")
    rule = told.map(body.get("failurePolicy"), at, FAILURE)
    restarts = told.number(rule.get("maxRestarts"), (*at, "maxRestarts"), 0)
    raise_all((problem_at(tree, *finding) for finding in told.problems), source)
    return Runtime(
        kind=str(found.get("kind")),
        name=told.text(meta.get("name"), ("metadata", "name")),
        policy=next((each for each in ("torch", "jax", "xgboost") if each in policy), ""),
        retry=(restarts + 1) * tries - 1,
        nodes=told.number(policy.get("numNodes"), ("spec", "mlPolicy", "numNodes"), 1, 1),
        processes=str(torch.get("numProcPerNode", "auto")),
        task=task,
        warnings=tuple(problem_at(tree, *finding) for finding in told.warnings),
    )


def _node(body: Map, told: Remarks) -> tuple[Task, int]:
    """Return what a node runs, and how often it is tried."""
    parts = told.items(body.get("replicatedJobs"), PARTS)
    if len(parts) != 1:
        told.refuse(
            PARTS,
            "must be one, node: what prepares data is a job of its own here",
            "take the others out, and have the job `depends_on` one that does their work",
        )
        return Task(), 1
    at = (*PARTS, 0)
    part = told.map(parts[0], at, PART)
    if part.get("name") != "node":
        told.refuse((*at, "name"), f"must be node, not {shown(part.get('name'))}")
    if part.get("replicas") not in (None, 1):
        told.refuse((*at, "replicas"), "must be 1: numNodes says how many nodes there are")
    template = told.map(part.get("template"), (*at, "template"), JOB_TEMPLATE)
    place = (*at, "template", "spec")
    job = told.map(template.get("spec"), place, JOB)
    tries = told.number(job.get("backoffLimit"), (*place, "backoffLimit"), USUAL) + 1
    return read_template(job.get("template"), (*place, "template"), told, None, INDEXED), tries


JOB_TEMPLATE: Fields = {"metadata": Unused("a TrainJob here has its nodes alone"), "spec": READ}
USUAL = batch_job.USUAL_LIMIT
