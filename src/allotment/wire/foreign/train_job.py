"""Kubeflow's TrainJob: so many alike nodes, started as its runtime says.

A runtime is an object of a cluster. Those that Kubeflow brings along are known by name; any
other may stand in the same file.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from allotment.model.spec import Dialect
from allotment.wire.foreign.batch_job import USUAL_LIMIT
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.foreign.job import JobDraft, Role, begin, finish
from allotment.wire.foreign.pod import (
    INDEXED,
    POD,
    Task,
    amount_of,
    need_command,
    read_container,
    with_pod,
)
from allotment.wire.foreign.runtime import Runtime
from allotment.wire.job_file import JobFile
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain, Tree

CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
SPEC: Fields = {
    "runtimeRef": READ,
    "trainer": READ,
    "runtimePatches": READ,
    "podTemplateOverrides": READ,
    "suspend": READ,
    "activeDeadlineSeconds": READ,
    "managedBy": READ,
    "labels": Unused("they are of pods, and a job has its own"),
    "annotations": Unused("they are of pods"),
    "initializer": Refused(
        "fetches data or a model before it starts, which no engine here does",
        "take it out; fetch them in a job of its own, and have this one `depends_on` it",
    ),
}
REFERENCE: Fields = {"name": READ, "kind": READ, "apiGroup": READ}
TRAINER: Fields = {
    "numNodes": READ,
    "numProcPerNode": READ,
    "image": READ,
    "command": READ,
    "args": READ,
    "env": READ,
    "resourcesPerNode": READ,
}
PATCH: Fields = {
    "manager": Unused("no other controller changes a job here"),
    "time": Unused("it says nothing about the job"),
    "trainingRuntimeSpec": READ,
}
OVERRIDE: Fields = {
    "targetJobs": READ,
    "spec": READ,
    "metadata": Unused("they are of pods"),
    "manager": Unused("no other controller changes a job here"),
}
PATCHED: Fields = {"metadata": Unused("they are of objects of a cluster"), "spec": READ}
JOBS: Fields = {"replicatedJobs": READ}
JOB: Fields = {"name": READ, "template": READ}
INNER: Fields = {"template": READ}
PATCHED_POD: Fields = {
    key: what
    for key, what in POD.items()
    if key not in ("containers", "restartPolicy", "activeDeadlineSeconds")
} | {
    "containers": Refused("changes a container by its name", "write it under trainer"),
    "volumes": Refused("mounts something that does not exist here", "take it out"),
    "schedulingGates": Unused("the job waits in its queue"),
}
NODE = "node"
KNOWN: Final[Mapping[str, str]] = {
    "torch-distributed": "torch",
    "jax-distributed": "jax",
    "xgboost-distributed": "xgboost",
}
"""Runtimes of Kubeflow, and what tells their nodes of each other."""
BY_SSH = ("deepspeed-distributed", "mlx-distributed")
RESERVED = {
    "torch": frozenset({
        "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    }),
    "jax": frozenset({"JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"}),
    "xgboost": frozenset({
        "DMLC_NUM_WORKER", "DMLC_TASK_ID", "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT",
    }),
}  # fmt: skip
"""The variables that are the runtime's own."""


def read_train_job(
    plain: Plain, tree: Tree | None, source: str, runtimes: Sequence[Runtime] = ()
) -> JobFile:
    """Read a TrainJob. `runtimes` are those of its file. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    trainer = told.map(spec.get("trainer"), ("spec", "trainer"), TRAINER)
    runtime = _runtime(spec.get("runtimeRef"), runtimes, told)
    count = told.number(trainer.get("numNodes"), (*AT, "numNodes"), runtime.nodes, 1)
    task = _task(trainer, runtime, told)
    for pod, place in _patches(spec, told):
        task = with_pod(task, pod, place, told)
    draft.roles = [Role(NODE, count, task, AT, "OnFailure")]
    draft.retry = runtime.retry
    if (most := spec.get("activeDeadlineSeconds")) is not None:
        draft.most_s = told.number(most, ("spec", "activeDeadlineSeconds"), 1, 1)
    draft.is_held = told.truth(spec.get("suspend"), ("spec", "suspend"))
    if spec.get("managedBy") not in (None, CONTROLLER):
        told.refuse(("spec", "managedBy"), "gives the job to another controller", "take it out")
    processes = trainer.get("numProcPerNode")
    if processes is not None and runtime.policy != "torch":
        told.warn((*AT, "numProcPerNode"), "is not used: it is for torchrun's runtimes")
    _tell(draft, runtime, processes, count, told)
    job = finish(draft, Dialect.TRAIN_JOB, told, tree, source)
    return msgspec.structs.replace(job, warnings=(*runtime.warnings, *job.warnings))


AT: Place = ("spec", "trainer")


def _runtime(value: Plain, runtimes: Sequence[Runtime], told: Remarks) -> Runtime:
    """Return the runtime that a job names."""
    at = ("spec", "runtimeRef")
    found = told.map(value, at, REFERENCE)
    name = told.text(found.get("name"), (*at, "name"))
    kind = told.text(found.get("kind"), (*at, "kind"), "ClusterTrainingRuntime")
    for runtime in runtimes:
        if (runtime.kind, runtime.name) == (kind, name):
            return runtime
    if kind == "ClusterTrainingRuntime" and name in KNOWN:
        return Runtime(kind, name, KNOWN[name], retry=USUAL_LIMIT)
    if name in BY_SSH:
        hint = "write an MPIJob, whose launcher starts the ranks"
        told.refuse((*at, "name"), f"{name} has mpirun start ranks over SSH", hint)
    else:
        told.refuse(
            at,
            f"names {shown(name)}, a {kind} of a cluster, which is not read",
            f"put it into this file, before the TrainJob; known are {', '.join(KNOWN)}",
        )
    return Runtime(kind, name, "", retry=0)


def _task(trainer: Map, runtime: Runtime, told: Remarks) -> Task:
    """Return what a node runs: what its runtime says, changed by the job."""
    base = runtime.task
    own: Map = dict(trainer)
    if not own.get("command"):
        own["command"] = [*base.words]
    if not own.get("args"):
        own["args"] = [*base.arguments]
    mine = read_container(own, AT, told, INDEXED, "resourcesPerNode", base.env)
    image = mine.image or base.image
    need_command(msgspec.structs.replace(mine, image=image), AT, told)
    if not image:
        told.warn(
            ("spec", "runtimeRef"),
            f"{runtime.name} has an image in its cluster, which is not known here: the "
            "engine's own is used",
            "write it: trainer.image",
        )
    return msgspec.structs.replace(
        base,
        image=image,
        command=mine.command,
        env=mine.env,
        resources=mine.resources or base.resources,
    )


def _patches(spec: Map, told: Remarks) -> list[tuple[Map, Place]]:
    """Return what is changed of the pods of the trainer, with the place of each."""
    found: list[tuple[Map, Place]] = []
    at: Place = ("spec", "runtimePatches")
    for number, each in enumerate(told.items(spec.get(at[-1]), at)):
        place: Place = (*at, number)
        inner = told.map(each, place, PATCH)
        for key, table in (
            ("trainingRuntimeSpec", INNER),
            ("template", PATCHED),
            ("spec", JOBS),
        ):
            place = (*place, key)
            inner = told.map(inner.get(key), place, table)
        place = (*place, "replicatedJobs")
        for index, job in enumerate(told.items(inner.get("replicatedJobs"), place)):
            within: Place = (*place, index)
            part = told.map(job, within, JOB)
            _check_target(part.get("name"), (*within, "name"), told)
            for key, table in (
                ("template", PATCHED), ("spec", INNER), ("template", PATCHED),
                ("spec", PATCHED_POD),
            ):  # fmt: skip
                within = (*within, key)
                part = told.map(part.get(key), within, table)
            found.append((part, within))
    at = ("spec", "podTemplateOverrides")
    for number, each in enumerate(told.items(spec.get(at[-1]), at)):
        place = (*at, number)
        override = told.map(each, place, OVERRIDE)
        targets = (*place, "targetJobs")
        for index, target in enumerate(told.items(override.get("targetJobs"), targets)):
            name = told.map(target, (*targets, index), {"name": READ}).get("name")
            _check_target(name, (*targets, index), told)
        pod = (*place, "spec")
        found.append((told.map(override.get("spec"), pod, PATCHED_POD), pod))
    return found


def _check_target(name: Plain, place: Place, told: Remarks) -> None:
    if name != NODE:
        told.refuse(place, f"changes {shown(name)}, and a TrainJob here has its {NODE} alone")


def _tell(
    draft: JobDraft, runtime: Runtime, processes: Plain, count: int, told: Remarks
) -> None:
    """Have all nodes be told what their runtime tells them; the rest as each starts."""
    (role,) = draft.roles
    policy = runtime.policy
    for name in role.task.env:
        if name in RESERVED.get(policy, ()):
            told.refuse((*AT, "env"), f"sets {name}, which is its runtime's own", "take it out")
    need = role.task.resources
    devices = int(str(need.get("gpu", "0")))
    each = str(runtime.processes if processes is None else processes)
    if each not in ("auto", "gpu", "cpu") and not (
        each.isascii() and each.isdecimal() and 0 < len(each) < 4 and int(each)
    ):
        told.refuse(
            (*AT, "numProcPerNode"),
            f"must be a number from 1 to 999, auto, gpu or cpu, not {shown(each)}",
        )
    if policy == "torch":
        cpus = amount_of(str(need.get("cpu", "0"))) or 0
        if each == "cpu" or (each == "auto" and not devices):
            each = str(max(1, -int(-cpus // 1)))
        draft.env = {"PET_NNODES": str(count), "PET_NPROC_PER_NODE": each}
    elif policy == "jax":
        draft.env = {"JAX_NUM_PROCESSES": str(count)}
    elif policy == "xgboost":
        draft.env = {"DMLC_NUM_WORKER": str(count * max(1, devices))}
