"""A JobSet: Jobs of several kinds that need each other. A gang; each replicated job is a role.

Its pods find each other by host names, such as `NAME-workers-0-3.NAME`. There is no such name
service here, so where one stands in a command or a variable, a task gets the node's address.
"""

import re
from collections.abc import Sequence

import msgspec

from allotment.model.later import later
from allotment.model.spec import SET_JOBS, Dialect
from allotment.wire.foreign import batch_job
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.foreign.job import ALONE_IN_REGION, EXCLUSIVE, Role, begin, finish
from allotment.wire.foreign.pod import FIELDS, INDEX, Task, Texts, read_template
from allotment.wire.job_file import JobFile
from allotment.wire.problems import nearest
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain, Tree

OWN = "jobset.sigs.k8s.io"
CONTROLLER = f"{OWN}/jobset-controller"
SPEC: Fields = {
    "replicatedJobs": READ,
    "network": READ,
    "successPolicy": READ,
    "failurePolicy": READ,
    "startupPolicy": READ,
    "coordinator": READ,
    "suspend": READ,
    "managedBy": READ,
    "ttlSecondsAfterFinished": Unused("`limits.keep_finished` says how long jobs are shown"),
    "volumeClaimPolicies": Refused(
        "makes volumes in a cluster",
        "take it out; an administrator names disks under engines, `volumes`",
    ),
}
PART: Fields = {
    "name": READ,
    "replicas": READ,
    "template": READ,
    "dependsOn": READ,
    "groupName": Unused("groups have no meaning but in labels"),
}
TEMPLATE: Fields = {"metadata": READ, "spec": READ}
META: Fields = {
    "labels": Unused("they are of Jobs, and a job has its own"),
    "annotations": READ,
    "name": Unused("tasks are named by their role"),
    "namespace": Unused("the engine decides where jobs are"),
    "creationTimestamp": Unused("it says nothing about the job"),
}
JOB: Fields = {
    **batch_job.SPEC,
    "suspend": Unused("`spec.suspend` says whether the job is held"),
    "ttlSecondsAfterFinished": Unused("a job that ends leaves nothing behind"),
    "backoffLimitPerIndex": Refused("is about some of its pods", "write backoffLimit"),
    "podFailurePolicy": Refused(
        "is about some of its pods", "take it out; `allot why` names the cause of a failure"
    ),
}
NETWORK: Fields = {
    "enableDNSHostnames": READ,
    "subdomain": READ,
    "publishNotReadyAddresses": Unused("addresses are known before a task starts"),
}
SUCCESS: Fields = {"operator": READ, "targetReplicatedJobs": READ}
FAILURE: Fields = {
    "maxRestarts": READ,
    "rules": READ,
    "restartStrategy": Unused("a job that is tried again starts when all its tasks have ended"),
}
RULE: Fields = {
    "name": READ,
    "action": READ,
    "targetReplicatedJobs": READ,
    "onJobFailureReasons": Refused(
        "tells failures apart by what the Job controller calls them",
        "take it out; `allot why` names the cause of a failure",
    ),
    "onJobFailureMessagePatterns": Refused(
        "tells failures apart by what the Job controller says of them",
        "take it out; `allot why` names the cause of a failure",
    ),
}
STARTUP: Fields = {"startupPolicyOrder": READ}
DEPENDS: Fields = {"name": READ, "status": READ}
COORDINATOR: Fields = {"replicatedJob": READ, "jobIndex": READ, "podIndex": READ}
PARTS: Place = ("spec", "replicatedJobs")
TARGETS = "targetReplicatedJobs"


class _Part(msgspec.Struct):
    """A replicated job: so many Jobs of so many pods each."""

    name: str
    jobs: int
    place: Place
    template: Plain
    pods: int = 1
    tries: int = 1
    """How often one of its pods is tried while its Job goes on."""
    most_s: int | None = None


def read_job_set(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read a JobSet. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    parts = _parts(spec.get("replicatedJobs"), told)
    subdomain, has_hosts = _network(spec.get("network"), draft.name, told)
    fields = _fields(spec, draft.name, subdomain, parts, told)
    hosts = _host_names(draft.name, subdomain, parts) if has_hosts else None
    for part in parts:
        task = read_template(part.template, (*part.place, "template"), told, fields=fields)
        if hosts is not None:
            task = _with_addresses(task, hosts, parts, part.place, told)
        draft.roles.append(
            Role(part.name, part.jobs * part.pods, task, part.place, "OnFailure")
        )
    _read_success(spec.get("successPolicy"), parts, draft.roles, told)
    _read_failure(spec.get("failurePolicy"), parts, draft.roles, told)
    _read_order(spec.get("startupPolicy"), told)
    limits = [part.most_s for part in parts if part.most_s is not None]
    draft.most_s = min(limits, default=None)
    draft.retry = max((role.retry or 0 for role in draft.roles), default=0)
    draft.is_held = told.truth(spec.get("suspend"), ("spec", "suspend"))
    if spec.get("managedBy") not in (None, CONTROLLER):
        told.refuse(("spec", "managedBy"), "gives the job to another controller", "take it out")
    draft.env = {SET_JOBS: ",".join(f"{part.name}={part.jobs}" for part in parts)}
    return finish(draft, Dialect.JOB_SET, told, tree, source)


# ── its replicated jobs ─────────────────────────────────────────────────────────────────


def _parts(value: Plain, told: Remarks) -> list[_Part]:
    parts: list[_Part] = []
    names: set[str] = set()
    for number, each in enumerate(told.items(value, PARTS)):
        at = (*PARTS, number)
        found = told.map(each, at, PART)
        name = told.text(found.get("name"), (*at, "name"))
        if not name or name in names:
            told.refuse(at, f"is called {shown(name)} like another" if name else "has no name")
            continue
        names.add(name)
        _read_dependencies(found.get("dependsOn"), (*at, "dependsOn"), told)
        jobs = told.number(found.get("replicas"), (*at, "replicas"), 1)
        template = told.map(found.get("template"), (*at, "template"), TEMPLATE)
        _check_meta(template.get("metadata"), (*at, "template", "metadata"), told)
        part = _Part(name, jobs, (*at, "template", "spec"), None)
        _read_job(part, told.map(template.get("spec"), part.place, JOB), told)
        if jobs:
            parts.append(part)
    if not parts:
        told.refuse(PARTS, "asks for no task", "add one: [{name: workers, template: …}]")
    return parts


def _read_job(part: _Part, job: Map, told: Remarks) -> None:
    """Read the Job that a replicated job makes copies of."""
    at = part.place
    side_by_side = told.number(job.get("parallelism"), (*at, "parallelism"), 1, 1)
    wanted = told.number(job.get("completions"), (*at, "completions"), side_by_side, 1)
    if wanted > side_by_side:
        told.refuse(
            (*at, "completions"),
            f"is {wanted}, of which {side_by_side} run at a time; all tasks start together",
            f"write parallelism: {wanted}",
        )
    if job.get("completionMode") not in (None, "Indexed", "NonIndexed"):
        told.refuse((*at, "completionMode"), "must be Indexed or NonIndexed")
    limit = told.number(job.get("backoffLimit"), (*at, "backoffLimit"), batch_job.USUAL_LIMIT)
    part.pods, part.tries, part.template = wanted, limit + 1, job.get("template")
    if (most := job.get("activeDeadlineSeconds")) is not None:
        part.most_s = told.number(most, (*at, "activeDeadlineSeconds"), 1, 1)


def _check_meta(value: Plain, place: Place, told: Remarks) -> None:
    meta = told.map(value, place, META)
    at = (*place, "annotations")
    for key in told.map(meta.get("annotations"), at):
        if key == EXCLUSIVE:
            told.refuse((*at, key), *ALONE_IN_REGION)
        else:
            told.warn((*at, key), "is not used")


def _read_dependencies(value: Plain, place: Place, told: Remarks) -> None:
    for number, each in enumerate(told.items(value, place)):
        at = (*place, number)
        found = told.map(each, at, DEPENDS)
        if found.get("status") == "Ready":
            told.warn(at, "is not used: all tasks start together")
        else:
            told.refuse(
                at,
                "waits for the end of another, and all tasks of a job start together",
                "make two jobs, and give the later one `depends_on`",
            )


def _read_order(value: Plain, told: Remarks) -> None:
    at = ("spec", "startupPolicy")
    order = told.map(value, at, STARTUP).get("startupPolicyOrder")
    if order == "InOrder":
        told.warn((*at, "startupPolicyOrder"), "is not used: all tasks start together")
    elif order not in (None, "AnyOrder"):
        told.refuse((*at, "startupPolicyOrder"), "must be AnyOrder or InOrder")


# ── its end ─────────────────────────────────────────────────────────────────────────────


def _targets(value: Plain, place: Place, roles: Sequence[Role], told: Remarks) -> list[Role]:
    """Return the roles that a rule names; all where it names none."""
    named = [told.text(each, (*place, n)) for n, each in enumerate(told.items(value, place))]
    names = [role.name for role in roles]
    for number, name in enumerate(named):
        if name not in names:
            told.refuse(
                (*place, number), f"{shown(name)} is not a replicated job", nearest(name, names)
            )
    return [role for role in roles if role.name in named or not named]


def _read_success(
    value: Plain, parts: Sequence[_Part], roles: Sequence[Role], told: Remarks
) -> None:
    at = ("spec", "successPolicy")
    rule = told.map(value, at, SUCCESS)
    chosen = _targets(rule.get(TARGETS), (*at, TARGETS), roles, told)
    pods = {part.name: part.pods for part in parts}
    if rule.get("operator") == "Any":
        for role in chosen:
            role.decides, role.enough = True, pods[role.name]
            if 1 < pods[role.name] < role.count:
                told.refuse(
                    (*at, "operator"),
                    f"waits for all pods of any one Job of {role.name}",
                    "write All, or make each a Job of one pod",
                )
    elif rule.get("operator") not in (None, "All"):
        told.refuse((*at, "operator"), "must be All or Any")
    elif len(chosen) < len(roles):
        for role in chosen:
            role.decides = True
        if len(chosen) > 1:
            told.refuse(
                (*at, TARGETS),
                "names some of the replicated jobs, and one or all can decide",
                "name the one that ends last, or none",
            )


def _read_failure(
    value: Plain, parts: Sequence[_Part], roles: Sequence[Role], told: Remarks
) -> None:
    """Set how often the gang is tried again: as often as a pod of a role may fail."""
    at = ("spec", "failurePolicy")
    policy = told.map(value, at, FAILURE)
    restarts = told.number(policy.get("maxRestarts"), (*at, "maxRestarts"), 0)
    ruled: set[str] = set()
    fails: set[str] = set()
    for number, each in enumerate(told.items(policy.get("rules"), (*at, "rules"))):
        place = (*at, "rules", number)
        rule = told.map(each, place, RULE)
        action = rule.get("action")
        chosen = {
            role.name for role in _targets(rule.get(TARGETS), (*place, TARGETS), roles, told)
        }
        if action == "FailJobSet":
            fails |= chosen - ruled
        elif action == "RestartJob":
            told.warn(
                (*place, "action"), "has the whole job tried again: its tasks need each other"
            )
        elif action in ("RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts"):
            told.refuse(
                (*place, "action"),
                "lets it be tried again without a limit",
                "write RestartJobSet",
            )
        elif action != "RestartJobSet":
            told.refuse((*place, "action"), "must be FailJobSet, RestartJobSet or RestartJob")
        ruled |= chosen
    for part, role in zip(parts, roles, strict=True):
        times = 1 if role.name in fails else restarts + 1
        role.retry = times * part.tries - 1


# ── what its pods know of each other ────────────────────────────────────────────────────


def _network(value: Plain, name: str, told: Remarks) -> tuple[str, bool]:
    """Return the domain of its host names, and whether it has any."""
    at = ("spec", "network")
    network = told.map(value, at, NETWORK)
    named = network.get("enableDNSHostnames")
    has_hosts = named is None or told.truth(named, (*at, "enableDNSHostnames"))
    return told.text(network.get("subdomain"), (*at, "subdomain")) or name, has_hosts


def _fields(
    spec: Map, name: str, subdomain: str, parts: Sequence[_Part], told: Remarks
) -> Texts:
    """Return what a variable of a pod may be by `fieldRef`."""
    role, job = later("task.role"), later("task.job-index")
    index = later("task.completion-index")
    total = str(sum(part.jobs for part in parts))
    labels = {
        INDEX: index,
        "batch.kubernetes.io/job-name": f"{name}-{role}-{job}",
        "job-name": f"{name}-{role}-{job}",
        f"{OWN}/jobset-name": name,
        f"{OWN}/replicatedjob-name": role,
        f"{OWN}/replicatedjob-replicas": later("task.replicas"),
        f"{OWN}/global-replicas": total,
        f"{OWN}/job-index": job,
        f"{OWN}/job-global-index": later("task.job-global-index"),
        f"{OWN}/restart-attempt": later("task.restart"),
    }
    if coordinator := _coordinator(spec.get("coordinator"), parts, told):
        labels[f"{OWN}/coordinator"] = f"{name}-{coordinator}.{subdomain}"
    fields = FIELDS | {"metadata.name": f"{name}-{role}-{job}-{index}"}
    for where in ("labels", "annotations"):
        fields |= {f"metadata.{where}['{key}']": text for key, text in labels.items()}
    return fields


def _coordinator(value: Plain, parts: Sequence[_Part], told: Remarks) -> str:
    """Return which pod is the coordinator, as in its host name; '' where none is named."""
    at = ("spec", "coordinator")
    found = told.map(value, at, COORDINATOR)
    if not found:
        return ""
    name = told.text(found.get("replicatedJob"), (*at, "replicatedJob"))
    job = told.number(found.get("jobIndex"), (*at, "jobIndex"), 0)
    pod = told.number(found.get("podIndex"), (*at, "podIndex"), 0)
    for part in parts:
        if part.name == name and job < part.jobs and pod < part.pods:
            return f"{name}-{job}-{pod}"
    told.refuse(at, f"names pod {pod} of Job {job} of {shown(name)}, which there is not")
    return ""


def _host_names(name: str, subdomain: str, parts: Sequence[_Part]) -> re.Pattern[str]:
    """Return what matches the host names of pods, wherever they stand in a text."""
    kinds = "|".join(re.escape(part.name) for part in parts)
    return re.compile(
        rf"(?<![A-Za-z0-9.-]){re.escape(name)}-({kinds})-([0-9]{{1,7}})-([0-9]{{1,7}})"
        rf"\.{re.escape(subdomain)}(?:\.[a-z0-9-]{{1,63}}\.svc(?:\.cluster\.local)?)?"
        r"(?![A-Za-z0-9-]|\.[A-Za-z0-9])"
    )


def _with_addresses(
    task: Task, hosts: re.Pattern[str], parts: Sequence[_Part], place: Place, told: Remarks
) -> Task:
    """Return a task in whose texts addresses stand for the names of hosts."""
    kinds = {part.name: part for part in parts}
    at = (*place, "template", "spec", "containers", 0)

    def put(text: str, place: Place) -> str:
        def address(found: re.Match[str]) -> str:
            part, job, pod = kinds[found[1]], int(found[2]), int(found[3])
            if job < part.jobs and pod < part.pods:
                return later(f"host.{part.name}.{job * part.pods + pod}")
            told.warn(place, f"names {found[0]}, and there is no such pod")
            return found[0]

        return hosts.sub(address, text)

    return msgspec.structs.replace(
        task,
        command=tuple(put(word, (*at, "command")) for word in task.command),
        env={name: put(text, (*at, "env")) for name, text in task.env.items()},
    )
