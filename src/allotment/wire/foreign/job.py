"""What all kinds of foreign jobs share: names, the run policy, and the native form of them."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from allotment.model.errors import BadInput, Problem
from allotment.model.spec import Dialect
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.foreign.pod import Task, read_template
from allotment.wire.job_file import JobFile
from allotment.wire.problems import in_order, problem_at, raise_all
from allotment.wire.tree import Place, Plain, Tree, line_of

OBJECT: Fields = {
    "apiVersion": READ,
    "kind": READ,
    "metadata": READ,
    "spec": READ,
    "status": Unused("it says how the job was elsewhere"),
}
META: Fields = {
    "name": READ,
    "generateName": READ,
    "labels": READ,
    "namespace": Unused("the engine decides where the job is; `--set tenant=` sets its tenant"),
    "annotations": READ,
    "creationTimestamp": Unused("it says nothing about the job"),
}
QUEUES = ("allotment.io/queue", "kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name")
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
TENANT, PRIORITY = "allotment.io/tenant", "allotment.io/priority"
ALONE_IN_REGION = (
    "keeps other Jobs out of a region, which no job here can",
    "take it out; `within` and `groups` of a job file keep tasks together",
)
POLICY: Fields = {
    "activeDeadlineSeconds": READ,
    "backoffLimit": READ,
    "suspend": READ,
    "schedulingPolicy": READ,
    "cleanPodPolicy": Unused("a job that ends leaves nothing behind"),
    "ttlSecondsAfterFinished": Unused("`limits.keep_finished` says how long jobs are shown"),
    "managedBy": Refused("gives the job to another controller", "take it out"),
}
SCHEDULING: Fields = {
    "minAvailable": READ,
    "queue": READ,
    "minResources": Unused("a job starts when there is room for all of it"),
    "scheduleTimeoutSeconds": READ,
    "priorityClass": Refused(
        "names a class of the cluster", "write it as a number: --set priority=500"
    ),
}
REPLICA: Fields = {
    "replicas": READ,
    "restartPolicy": READ,
    "template": READ,
    "scale": Unused("a job keeps the number of its tasks"),
}
USUAL_RETRIES = 3
"""Of a job that is to be restarted, and does not say how often."""


class Role(msgspec.Struct):
    """So many alike tasks."""

    name: str
    count: int
    task: Task
    place: Place
    restarts: str = ""
    decides: bool = False
    """Whether the job has succeeded when all of these have, whatever others do."""
    enough: int = 0
    """How many of them have to succeed for that; 0 for all."""
    fails: int = 1
    """How many of them have to fail for the job to fail; -1 where none does it any harm."""
    retry: int | None = None
    """How often the job is tried again when one of these failed; None: as the job says."""
    ports: dict[str, int] = {}
    """Of each, by label: how many of its own it has."""


class JobDraft(msgspec.Struct):
    """A job in the making."""

    name: str = ""
    tenant: str = ""
    queue: str = ""
    priority: Plain = None
    labels: dict[str, str] = {}
    roles: list[Role] = []
    env: dict[str, str] = {}
    retry: int | None = None
    most_s: int | None = None
    queued_s: int | None = None
    is_held: bool = False
    opportunistic: bool = False
    pin: str = ""
    array: Map = {}


def begin(plain: Plain, told: Remarks) -> tuple[JobDraft, Map, Map]:
    """Read what an object says of itself; return a draft, and its spec."""
    found = told.map(plain, (), OBJECT)
    meta = told.map(found.get("metadata"), ("metadata",), META)
    name = told.text(meta.get("name"), ("metadata", "name"))
    name = name or told.text(meta.get("generateName"), ("metadata", "generateName")).rstrip("-")
    draft = JobDraft(name=name or "job")
    for where in ("labels", "annotations"):
        for key, value in told.map(meta.get(where), ("metadata", where)).items():
            # Annotations may be numbers in a file; those of labels come as they are written.
            is_number = type(value) in (int, float)
            text = str(value) if is_number else told.text(value, ("metadata", where, key))
            _label(draft, where, key, text, told)
    return draft, found, told.map(found.get("spec"), ("spec",))


def _label(draft: JobDraft, where: str, key: str, value: str, told: Remarks) -> None:
    if key == TENANT:
        draft.tenant = value
    elif key in QUEUES:
        draft.queue = value
    elif key == PRIORITY:
        draft.priority = int(value) if value.isdecimal() and len(value) < 9 else value
    elif key == EXCLUSIVE:
        told.refuse(("metadata", where, key), *ALONE_IN_REGION)
    elif where == "annotations":
        told.warn(("metadata", where, key), "is not used")
    elif "." not in key:
        draft.labels[key] = value
    else:
        told.warn(("metadata", where, key), "is not used: a label here has no `.` in its key")


def read_policy(draft: JobDraft, value: Plain, place: Place, told: Remarks) -> None:
    """Read how a job runs as a whole."""
    policy = told.map(value, place, POLICY)
    if (most := policy.get("activeDeadlineSeconds")) is not None:
        draft.most_s = told.number(most, (*place, "activeDeadlineSeconds"), 1, 1)
    if (tries := policy.get("backoffLimit")) is not None:
        draft.retry = told.number(tries, (*place, "backoffLimit"), 0)
    draft.is_held = told.truth(policy.get("suspend"), (*place, "suspend"))
    at = (*place, "schedulingPolicy")
    rule = told.map(policy.get("schedulingPolicy"), at, SCHEDULING)
    draft.queue = told.text(rule.get("queue"), (*at, "queue"), draft.queue)
    if (queued := rule.get("scheduleTimeoutSeconds")) is not None:
        draft.queued_s = told.number(queued, (*at, "scheduleTimeoutSeconds"), 1, 1)
    least, tasks = rule.get("minAvailable"), sum(role.count for role in draft.roles)
    if least is not None and least != tasks:
        told.refuse(
            (*at, "minAvailable"),
            f"is {least}, and all {tasks} tasks start together here",
            "take it out; a job file has `count: {min: 2, max: 8}`",
        )


def read_roles(
    value: Plain, place: Place, kinds: Sequence[str], told: Remarks, usual: tuple[str, ...] = ()
) -> list[Role]:
    """Read the replicas of each kind, in the order of `kinds`."""
    found = told.map(value, place, dict.fromkeys(kinds, READ))
    roles: list[Role] = []
    for kind in kinds:
        if kind not in found:
            continue
        at = (*place, kind)
        replica = told.map(found[kind], at, REPLICA)
        count = told.number(replica.get("replicas"), (*at, "replicas"), 1)
        if not count:
            continue
        task = read_template(replica.get("template"), (*at, "template"), told, usual)
        restarts = told.text(replica.get("restartPolicy"), (*at, "restartPolicy"))
        roles.append(Role(kind.lower(), count, task, at, restarts or "OnFailure"))
    if not roles:
        told.refuse(place, "asks for no task", f"add {kinds[0]}: {{replicas: 1, template: …}}")
    return roles


# ── to the native form ──────────────────────────────────────────────────────────────────


def finish(
    draft: JobDraft, dialect: Dialect, told: Remarks, tree: Tree | None, source: str
) -> JobFile:
    """Return the job of a draft. Raises BadInput with everything that is wrong."""
    from allotment.wire.job_native import read_native

    written = _written(draft, dialect, told)
    raise_all((problem_at(tree, *finding) for finding in told.problems), source)
    try:
        job = read_native(written, tree, source=source, environ=None, problems=())
    except BadInput as error:
        found = [_in_file(problem, draft.roles, tree) for problem in error.problems]
        raise BadInput(in_order(found), source) from None
    warnings = [problem_at(tree, *finding) for finding in told.warnings]
    return msgspec.structs.replace(
        job, warnings=in_order([*warnings, *job.warnings]), held=draft.is_held
    )


def _in_file(problem: Problem, roles: Sequence[Role], tree: Tree | None) -> Problem:
    """Return a problem of the native form, at the line of what that part was made of."""
    key, _, rest = problem.path.partition(".")
    place: Place = META_OF.get(key, ("spec",))
    for role in roles:
        if key == "roles" and rest.partition(".")[0] == role.name:
            place = (*role.place, *CONTAINER)
    return msgspec.structs.replace(problem, line=line_of(tree, place))


CONTAINER: Place = ("template", "spec", "containers", 0)
META_OF: dict[str, Place] = {
    "name": ("metadata", "name"),
    "labels": ("metadata", "labels"),
    **dict.fromkeys(("tenant", "queue", "priority"), ("metadata",)),
}


def _written(draft: JobDraft, dialect: Dialect, told: Remarks) -> Map:
    tasks = [role.task for role in draft.roles]
    image = _same("image", [(role, role.task.image) for role in draft.roles], told)
    folder = _same("workingDir", [(role, role.task.workdir) for role in draft.roles], told)
    _same("env", [(role, role.task.env) for role in draft.roles], told)
    limits = [most for most in (draft.most_s, *(task.most_s for task in tasks)) if most]
    grace = [task.grace_s for task in tasks if task.grace_s is not None]
    parts: dict[str, Any] = {
        "name": draft.name,
        "tenant": draft.tenant or None,
        "queue": draft.queue or None,
        "priority": draft.priority,
        "image": image or None,
        "env": {**draft.env, **(tasks[0].env if tasks else {})},
        "workdir": folder or None,
        "roles": {role.name: _role(role) for role in draft.roles},
        "retry": _retries(draft, told),
        "max_run_time": f"{min(limits)}s" if limits else None,
        "max_queue_time": f"{draft.queued_s}s" if draft.queued_s else None,
        "checkpoint": {"signal": "TERM", "grace": f"{max(grace)}s"} if grace else None,
        "labels": draft.labels or None,
        "opportunistic": draft.opportunistic or None,
        "pin": draft.pin or None,
        "array": draft.array or None,
        "dialect": dialect.value,
    }
    return {key: cast("Plain", part) for key, part in parts.items() if part is not None}


def _same(what: str, found: list[tuple[Role, Any]], told: Remarks) -> Any:
    """Return what is the same for all tasks of a job; refuse it where it is not."""
    for role, value in found[1:]:
        if value != found[0][1]:
            place = (*role.place, *CONTAINER, what)
            told.refuse(
                place, f"differs from that of {found[0][0].name}, and a job has one {what}",
                "make them alike; what differs can be set in the command: env NAME=VALUE …",
            )  # fmt: skip
    return found[0][1] if found else None


def _role(role: Role) -> Map:
    parts: Map = {"count": role.count}
    if role.task.command:
        parts["command"] = list(role.task.command)
    if role.task.resources:
        parts["resources"] = role.task.resources
    if role.task.arch:
        parts["arch"] = role.task.arch
    ends: Map = {}
    if role.decides:
        ends["min_succeeded"] = role.enough or role.count
    if role.fails != 1:
        ends["min_failed"] = "never" if role.fails < 0 else role.fails
    if ends:
        parts["completion"] = ends
    if role.retry is not None:
        parts["retry"] = role.retry
    if role.ports:
        parts["ports"] = dict[str, Plain](role.ports)
    return parts


def _retries(draft: JobDraft, told: Remarks) -> int:
    """Return how often a job is tried again: all of it, as its tasks need each other."""
    if all(role.restarts == "Never" for role in draft.roles):
        return 0
    for role in draft.roles:
        at = (*role.place, "restartPolicy")
        if role.restarts == "Always":
            told.warn(at, "restarts what has failed, and nothing that has succeeded")
        elif role.restarts not in ("OnFailure", "ExitCode", "Never"):
            told.refuse(at, "must be Always, OnFailure, ExitCode or Never")
    return USUAL_RETRIES if draft.retry is None else draft.retry
