"""HiveD's pod scheduling spec, the annotation of a pod, into a job of ours.

A pod names the group it is scheduled with, so any one pod of a group says all: the group
becomes a job, its members roles, a pod a task. What the pod runs, and how much CPU and
memory it has, stands elsewhere in Kubernetes, and is given by the caller.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, cast

import msgspec
from pydantic import BeforeValidator, Field, PlainValidator, ValidationError

from allotment.model.errors import Problem
from allotment.model.quantity import DEVICE, Resources
from allotment.model.spec import JobSpec, Priority, TaskRole
from allotment.wire import amounts
from allotment.wire.amiss import not_a
from allotment.wire.fields import Word
from allotment.wire.hived_names import Names
from allotment.wire.hived_nodes import Share
from allotment.wire.hived_shape import Flag, Lenient, Text
from allotment.wire.parse import tree_of
from allotment.wire.problems import Finding, in_order, problem_at, problems_of, raise_all
from allotment.wire.text import text_of
from allotment.wire.tree import Plain, Tree, plain_of

OPPORTUNISTIC = -1
OLD_NAMES = {"gpuType": "leafCellType", "gpuNumber": "leafCellNumber"}
"""Keys of earlier versions, which HiveD still reads."""
MOST_MEMBERS = 10_000


def read_least(value: object, least: int, most: int) -> int:
    """Read a number that is still text."""
    text = value if isinstance(value, str) else ""
    if not text.removeprefix("-").isdecimal() or len(text) > 10:
        raise not_a("a whole number", value)
    return amounts.read_whole(int(text), least, most)


Some = Annotated[int, PlainValidator(lambda v: read_least(v, 1, amounts.MOST_TASKS))]
PodPriority = Annotated[
    int, PlainValidator(lambda v: read_least(v, OPPORTUNISTIC, Priority.HIGHEST))
]


class Member(Lenient):
    """So many alike pods of a group."""

    pods: Some = Field(alias="podNumber")
    leaves: Some = Field(alias="leafCellNumber")


class Group(Lenient):
    """Pods that start together."""

    name: Word = Field(alias="name")
    members: list[Member] = Field(alias="members", max_length=MOST_MEMBERS)


class PodSpec(Lenient):
    """The annotation."""

    tenant: Word = Field(alias="virtualCluster")
    priority: PodPriority = 0
    pin: Text = Field("", alias="pinnedCellId")
    leaf: Text = Field("", alias="leafCellType")
    leaves: Some = Field(alias="leafCellNumber")
    gang_release: Flag = Field(False, alias="gangReleaseEnable")
    lazy: Flag = Field(False, alias="lazyPreemptionEnable")
    any_node: Flag = Field(True, alias="ignoreK8sSuggestedNodes")
    group: Annotated[Group | None, BeforeValidator(lambda v: v or None)] = Field(
        None, alias="affinityGroup"
    )


class HivedJob(msgspec.Struct, frozen=True):
    """A group as a job, and what a job's spec has no word for."""

    spec: JobSpec
    warnings: tuple[Problem, ...] = ()
    lazy: bool = False
    """Others of its tenant may take its guarantee; it runs on as a borrower if it can.

    Here that is its tenant's to say: `preempt: demote`.
    """
    leaves: int = 0
    """The leaf cells of the pod whose annotation it was."""


def read_pod_spec(
    data: bytes,
    *,
    source: str,
    name: str,
    command: str | tuple[str, ...],
    image: str = "",
    share: Share | None = None,
) -> HivedJob:
    """Read the annotation of a pod. `name` is that of the job if the pod has no group.

    `share` is the CPU and memory that go with each device. Raises BadInput with everything
    that is wrong, each with its line.
    """
    tree, problems = tree_of(text_of(data, source), source)
    try:
        pod = PodSpec.model_validate(_renamed(plain_of(tree, "env")))
    except ValidationError as error:
        raise_all([*problems, *problems_of(error, PodSpec, tree)], source)
        raise
    _raise(_faults(pod), problems, tree, source)
    told: list[Finding] = [*_ignored(pod)]
    names = Names(told)
    spec = JobSpec(
        name=names.of("job", pod.group.name if pod.group else name, ("affinityGroup", "name")),
        tenant=names.of("tenant", pod.tenant, ("virtualCluster",)),
        roles=tuple(_roles(pod, command, share or Share())),
        priority=max(pod.priority, Priority.LOWEST),
        image=image,
        preemptible=pod.priority == OPPORTUNISTIC,
        pin=names.of("pin", pod.pin, ("pinnedCellId",)) if pod.pin else "",
        opportunistic=pod.priority == OPPORTUNISTIC,
    )
    warnings = in_order(problem_at(tree, *finding) for finding in told)
    return HivedJob(spec, warnings, pod.lazy, pod.leaves)


def _raise(
    found: Iterator[Finding], problems: tuple[Problem, ...], tree: Tree, source: str
) -> None:
    raise_all([*problems, *(problem_at(tree, *finding) for finding in found)], source)


def _renamed(value: Plain) -> Plain:
    """Return old keys their new names, at every depth."""
    if isinstance(value, dict):
        inner = cast("Mapping[str, Plain]", value)
        return {OLD_NAMES.get(key, key): _renamed(item) for key, item in inner.items()}
    return [_renamed(item) for item in value] if isinstance(value, list) else value


def _faults(pod: PodSpec) -> Iterator[Finding]:
    """Find what HiveD refuses too."""
    if pod.pin and pod.priority == OPPORTUNISTIC:
        message = "an opportunistic pod has no pinned cell"
        yield ("pinnedCellId",), message, "take it out, or give a priority of 0 or more"
    if pod.group and all(member.leaves != pod.leaves for member in pod.group.members):
        message = f"has no member of {pod.leaves} leaf cells, as this pod has"
        yield ("affinityGroup", "members"), message, "list the pod itself among them"


def _roles(pod: PodSpec, command: str | tuple[str, ...], share: Share) -> Iterator[TaskRole]:
    """Make a role of all members with as many leaf cells; they are interchangeable."""
    counts: dict[int, int] = {}
    for member in pod.group.members if pod.group else ():
        counts[member.leaves] = counts.get(member.leaves, 0) + member.pods
    for leaves, count in (counts or {pod.leaves: 1}).items():
        yield TaskRole(
            name=f"pods-{leaves}",
            count=count,
            command=command,
            resources=Resources(
                gpu_milli=leaves * DEVICE,
                cpu_milli=leaves * share.cpu_milli,
                memory=leaves * share.memory,
            ),
            gpu_types=(pod.leaf,) if pod.leaf else (),
        )


def _ignored(pod: PodSpec) -> Iterator[Finding]:
    """Return what has no effect here, and why."""
    if pod.gang_release:
        message = "is ignored, as it is by HiveD: a gang's devices are freed together"
        yield ("gangReleaseEnable",), message, ""
    if not pod.any_node:
        message = "is ignored: no other scheduler suggests nodes"
        yield ("ignoreK8sSuggestedNodes",), message, ""
    for key in pod.model_extra or {}:
        yield (key,), "is ignored: HiveD has no such key", ""
