"""What of a job is its owner's own, and what is left of it for everybody else.

Others need its name, state, resources and times: `allot why` is made of them. What it runs,
in which environment and from which folders, and what its output showed, is private. What is
left of a spec is listed, field by field: a new field is private until it stands here.
"""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from allotment.model import events as e
from allotment.model.datasets import DataKind, Dataset, DataVersion, Grant, Grantee
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.quantity import WallTime
from allotment.model.spec import ArraySlice, Checkpoint, JobSpec, TaskRole
from allotment.model.sweeps import Sweep
from allotment.service import views as v

HIDDEN = "***"
"""Stands where there is something that is not shown."""

OF_JOB = (
    "name", "tenant", "queue", "priority", "retry", "max_run_ms", "max_queue_ms", "depends_on",
    "hold_on_failure_ms", "preemptible", "within", "prefer", "dialect", "pin",
    "opportunistic", "deadline_ms", "on_eviction", "labels", "engine", "mpi", "weight",
)  # fmt: skip
OF_ROLE = (
    "name", "count", "resources", "gpu_types", "arch", "retry", "completion", "group",
    "group_within", "least", "elastic",
)  # fmt: skip
OF_ARRAY = ("index", "size", "parent", "max_running", "members")
OF_CHECKPOINT = ("every_ms", "keep", "signal", "grace_ms")

WITH = "with_image", "with_environment", "with_data"
"""What of a job was on its nodes already tells what it brings."""

OF_BROUGHT = ("image_", "registry_", "data_", "store_", "environment_")
"""How the codes of diagnoses begin that name what it brings, or say what a program of its user
printed."""

S = TypeVar("S", bound=msgspec.Struct)


def _kept(value: msgspec.Struct, fields: tuple[str, ...]) -> dict[str, object]:
    return {field: getattr(value, field) for field in fields}


def spec_for_others(spec: JobSpec) -> JobSpec:
    """Return what every user may know of a job's spec; its commands read `***`."""
    roles = tuple(TaskRole(**_kept(role, OF_ROLE), command=HIDDEN) for role in spec.roles)  # type: ignore[arg-type]
    saves = spec.checkpoint and Checkpoint(**_kept(spec.checkpoint, OF_CHECKPOINT))  # type: ignore[arg-type]
    array = spec.array and ArraySlice(**_kept(spec.array, OF_ARRAY))  # type: ignore[arg-type]
    return JobSpec(**_kept(spec, OF_JOB), roles=roles, checkpoint=saves, array=array)  # type: ignore[arg-type]


def _diagnosis(found: Diagnosis | None) -> Diagnosis | None:
    """Leave out what was seen in its output, and the names of what it brings.

    Any other cause is one of ours.
    """
    if found is not None and found.code.startswith(OF_BROUGHT):
        return _without(found, cause=HIDDEN, advice="", evidence="")
    return _without(found, evidence="") if found is not None else None


def _exit(ended: Exit | None) -> Exit | None:
    """Leave out what could not be done, and with which of its paths; not that it was so."""
    if ended is None or not ended.platform_error:
        return ended
    return replace(ended, platform_error=HIDDEN)


_OWN: dict[type[e.Event], dict[str, Any]] = {
    e.ContentSeen: {"name": HIDDEN, "bytes": 0},
    e.AttemptPlaced: dict.fromkeys(WITH, 0),
    e.TaskReady: {"phases": ()},
    e.TaskStarted: {"phases": ()},
    e.SweepSubmitted: {"sweep": Sweep(())},
    e.TrialProposed: {"params": ()},
    e.RungReached: {"step": 0, "value": None},
    e.TrialMeasured: {"step": 0, "value": None},
    e.CheckpointSaved: {"path": ""},
}
"""What stands in the place of fields that are their owner's own."""


def event_for_others(event: e.AnyEvent) -> e.AnyEvent:
    """Return what every user may know of an event; the same event where that is all."""
    match event:
        case e.JobSubmitted():
            return replace(event, spec=spec_for_others(event.spec), key="", warnings=())
        case e.JobEdited():
            return replace(event, spec=spec_for_others(event.spec))
        case e.DatasetCreated() | e.DatasetEvent():
            return _data_for_others(event)
        case e.CheckpointKept() | e.CheckpointRestored() | e.OutputsSaved():
            return _kept_for_others(event)
        case e.JobFailed() | e.JobTimedOut() | e.StopRequested() | e.AttemptEnded():
            return _without(event, diagnosis=_diagnosis(event.diagnosis))
        case e.TaskEnded():
            told = _diagnosis(event.diagnosis)
            return _without(event, diagnosis=told, exit=_exit(event.exit))
        case e.TaskHeld():
            return _without(event, exit=_exit(event.exit))
        case _:
            hidden = _OWN.get(type(event))
            return event if hidden is None else replace(event, **hidden)


def _kept_for_others(
    event: e.CheckpointKept | e.CheckpointRestored | e.OutputsSaved,
) -> e.AnyEvent:
    """Return only that something became of what a job left, or did not."""
    named = [name for name in ("dataset", "trouble") if getattr(event, name, "")]
    hidden = dict.fromkeys(named, HIDDEN) | ({"path": ""} if hasattr(event, "path") else {})
    return replace(event, **hidden)


_NO_DATASET = Dataset(HIDDEN, HIDDEN, HIDDEN, DataKind.MANAGED, HIDDEN)


def _data_for_others(event: e.DatasetCreated | e.DatasetEvent) -> e.AnyEvent:
    """Return an event of a dataset without its name: something became of one."""
    match event:
        case e.DatasetCreated():
            return e.DatasetCreated(_NO_DATASET)
        case e.DatasetVersionClosed():
            none = DataVersion(0, HIDDEN, 0, 0, WallTime(0), HIDDEN)
            return e.DatasetVersionClosed(HIDDEN, HIDDEN, none)
        case e.DatasetGranted():
            return e.DatasetGranted(HIDDEN, HIDDEN, Grant(Grantee.USER, HIDDEN))
        case e.DatasetRevoked():
            return e.DatasetRevoked(HIDDEN, HIDDEN, Grantee.USER, HIDDEN)
        case _:
            return e.DatasetRemoved(HIDDEN, HIDDEN)


def _without(event: S, **changes: object) -> S:
    same = all(getattr(event, name) is value for name, value in changes.items())
    return event if same else replace(event, **changes)


def job_for_others(job: v.JobView, spec: dict[str, object]) -> v.JobView:
    """Return what every user may know of a job. `spec` is the part left of its spec."""
    saved = job.checkpoint
    return replace(
        job,
        spec=spec,
        warnings=(),
        attempts=tuple(_attempt(attempt) for attempt in job.attempts),
        checkpoint=replace(saved, path="") if saved else None,
        diagnosis=_diagnosis(job.diagnosis),
        progress=replace(job.progress, metrics={}) if job.progress else None,
        output_dir="",
        saved="",
        unsaved="",
        kept="",
        unkept="",
        held_up=(),
        private=True,
    )


def _attempt(attempt: v.AttemptView) -> v.AttemptView:
    tasks = tuple(
        replace(task, exit=_exit(task.exit), diagnosis=_diagnosis(task.diagnosis), phases=())
        for task in attempt.tasks
    )
    told = _diagnosis(attempt.diagnosis)
    return replace(attempt, diagnosis=told, tasks=tasks, **dict.fromkeys(WITH, 0))
