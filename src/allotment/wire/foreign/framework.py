"""FrameworkController's Framework, as HiveD's pods come: roles of tasks that end together.

HiveD's annotation of a pod says for whom it is, how urgent, and which devices it needs.
"""

from collections.abc import Sequence

import msgspec

from allotment.model.errors import BadInput
from allotment.model.later import later
from allotment.model.spec import Dialect, JobSpec
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.foreign.job import JobDraft, Role, begin, finish
from allotment.wire.foreign.pod import FIELDS, Task, Texts, read_template
from allotment.wire.hived_job import read_pod_spec
from allotment.wire.job_file import JobFile
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain, Tree

HIVED = "hivedscheduler.microsoft.com"
SCHEDULING = f"{HIVED}/pod-scheduling-spec"
SPEC: Fields = {
    "executionType": READ,
    "retryPolicy": READ,
    "taskRoles": READ,
    "description": Unused("it says nothing about the job"),
}
RETRY: Fields = {
    "maxRetryCount": READ,
    "fancyRetryPolicy": Unused("what cannot help is never tried again, whatever it says"),
}
ROLE: Fields = {
    "name": READ,
    "taskNumber": READ,
    "frameworkAttemptCompletionPolicy": READ,
    "dependOn": Refused("waits for another role, and all tasks start together", "take it out"),
    "task": READ,
}
COMPLETION: Fields = {"minFailedTaskCount": READ, "minSucceededTaskCount": READ}
TASK: Fields = {
    "retryPolicy": READ,
    "pod": READ,
    "podGracefulDeletionTimeoutSec": Unused("a node that is silent is waited for"),
}
SAID_BY_HIVED = ("priority", "priorityClassName")
VISIBLE: Texts = FIELDS | {
    f"metadata.annotations['{HIVED}/pod-leaf-cell-isolation']": later("NVIDIA_VISIBLE_DEVICES")
}
"""The devices of a pod, as HiveD says them."""
NEVER = -1


def read_framework(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read a Framework. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    at: Place = ("spec", "taskRoles")
    chosen: list[tuple[Place, JobSpec]] = []
    for number, each in enumerate(told.items(spec.get("taskRoles"), at)):
        role = _role(each, (*at, number), draft.name, chosen, told)
        if role is not None:
            draft.roles.append(role)
    if not draft.roles:
        told.refuse(at, "asks for no task", "add one: [{name: worker, taskNumber: 1, task: …}]")
    _choose(draft, chosen, told)
    draft.retry = _tries(spec.get("retryPolicy"), ("spec", "retryPolicy"), told)
    execution = spec.get("executionType")
    draft.is_held = execution == "Create"
    if execution not in (None, "Create", "Start"):
        told.refuse(
            ("spec", "executionType"), f"must be Start or Create, not {shown(execution)}"
        )
    return finish(draft, Dialect.FRAMEWORK, told, tree, source)


def _role(
    value: Plain, place: Place, job: str, chosen: list[tuple[Place, JobSpec]], told: Remarks
) -> Role | None:
    found = told.map(value, place, ROLE)
    name = told.text(found.get("name"), (*place, "name"))
    if not name:
        told.refuse(place, "has no name")
    count = told.number(found.get("taskNumber"), (*place, "taskNumber"), 1)
    inside = told.map(found.get("task"), (*place, "task"), TASK)
    at = (*place, "task", "pod")
    template, hived = _without_hived(inside.get("pod"), at, job, told)
    task = read_template(template, at, told, fields=VISIBLE)
    if hived is not None:
        chosen.append((at, hived[0]))
        task = _with_devices(task, *hived)
    if _tries(inside.get("retryPolicy"), (*place, "task", "retryPolicy"), told):
        told.warn((*place, "task", "retryPolicy"), "is not used: the whole job is tried again")
    role = Role(name, count, task, (*place, "task"), "OnFailure")
    _read_completion(found.get("frameworkAttemptCompletionPolicy"), role, place, told)
    return role if count and name else None


def _without_hived(
    template: Plain, place: Place, job: str, told: Remarks
) -> tuple[Plain, tuple[JobSpec, int] | None]:
    """Return a template without what HiveD reads of it, and what that says."""
    meta = template.get("metadata") if isinstance(template, dict) else None
    words = meta.get("annotations") if isinstance(meta, dict) else None
    if not isinstance(template, dict) or not isinstance(meta, dict):
        return template, None
    if not isinstance(words, dict) or SCHEDULING not in words:
        return template, None
    at = (*place, "metadata", "annotations", SCHEDULING)
    rest: Map = {key: text for key, text in words.items() if key != SCHEDULING}
    spec = template.get("spec")
    if isinstance(spec, dict):
        for key in SAID_BY_HIVED:
            if key in spec:
                told.warn((*place, "spec", key), "is not used: HiveD's annotation says it")
        spec = {key: part for key, part in spec.items() if key not in SAID_BY_HIVED}
    changed: Map = {**template, "metadata": {**meta, "annotations": rest}, "spec": spec}
    try:
        text = told.text(words[SCHEDULING], at)
        found = read_pod_spec(text.encode(), source=SCHEDULING, name=job, command="true")
    except BadInput as error:
        for problem in error.problems:
            told.refuse(at, f"{problem.path}: {problem.message}", problem.hint)
        return changed, None
    for warning in found.warnings:
        told.warn(at, f"{warning.path}: {warning.message}")
    return changed, (found.spec, found.leaves)


def _with_devices(task: Task, hived: JobSpec, leaves: int) -> Task:
    types: Map = {"gpu_type": [*hived.roles[0].gpu_types]} if hived.roles[0].gpu_types else {}
    return msgspec.structs.replace(
        task, resources={"gpu": str(leaves), **task.resources, **types}
    )


def _choose(draft: JobDraft, chosen: Sequence[tuple[Place, JobSpec]], told: Remarks) -> None:
    """Set for whom a job is and how urgent, as all of its pods do."""
    if not chosen:
        return
    first = chosen[0][1]
    for place, other in chosen[1:]:
        if _terms(other) != _terms(first):
            told.refuse(
                (*place, "metadata", "annotations", SCHEDULING),
                "differs from that of the first role in virtualCluster, priority or pin",
                "make them alike: a job has one of each",
            )
    draft.tenant = draft.tenant or first.tenant
    draft.priority = first.priority if draft.priority is None else draft.priority
    draft.opportunistic, draft.pin = first.opportunistic, first.pin


def _terms(spec: JobSpec) -> tuple[object, ...]:
    return spec.tenant, spec.priority, spec.opportunistic, spec.pin


def _tries(value: Plain, place: Place, told: Remarks) -> int:
    most = told.map(value, place, RETRY).get("maxRetryCount")
    if type(most) is int and most < 0:
        told.refuse(
            (*place, "maxRetryCount"), "lets it be tried again without a limit", "write 100"
        )
        return 0
    return told.number(most, (*place, "maxRetryCount"), 0)


def _read_completion(value: Plain, role: Role, place: Place, told: Remarks) -> None:
    """Read how many tasks of a role decide the job; -1 is for none."""
    at = (*place, "frameworkAttemptCompletionPolicy")
    policy = told.map(value, at, COMPLETION)
    failed, done = policy.get("minFailedTaskCount"), policy.get("minSucceededTaskCount")
    if failed == NEVER:
        role.fails = NEVER
    else:
        role.fails = told.number(failed, (*at, "minFailedTaskCount"), 1, 1)
    if done not in (None, NEVER):
        role.decides = True
        role.enough = told.number(done, (*at, "minSucceededTaskCount"), role.count, 1)
