"""How many pods a gang has, as its object says: a PodGroup, a Workload, a JobSet. Pure."""

import msgspec

from allotment.backends.kubernetes.gangs import Size


class _Gang(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int = 1


class _Policy(msgspec.Struct, frozen=True):
    gang: _Gang | None = None

    @property
    def size(self) -> int:
        return self.gang.min_count if self.gang is not None else 1


class _Topology(msgspec.Struct, frozen=True):
    key: str = ""


class _Constraints(msgspec.Struct, frozen=True):
    topology: tuple[_Topology, ...] = ()


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int | None = None
    """As scheduler-plugins and Volcano have it."""
    scheduling_policy: _Policy | None = None
    """As the Workload API has it, and what follows."""
    scheduling_constraints: _Constraints | None = None
    parent_composite_pod_group_name: str | None = None


class _PodGroup(msgspec.Struct, frozen=True):
    spec: _Group = _Group()


class _Part(msgspec.Struct, frozen=True):
    name: str = ""
    policy: _Policy = _Policy()


class _Parts(msgspec.Struct, frozen=True, rename="camel"):
    pod_groups: tuple[_Part, ...] = ()


class _Workload(msgspec.Struct, frozen=True):
    spec: _Parts = _Parts()


class _Job(msgspec.Struct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None

    @property
    def pods(self) -> int:
        """Return how many of its pods run at a time."""
        most = 1 if self.parallelism is None else self.parallelism
        return max(0, most if self.completions is None else min(most, self.completions))


class _Jobs(msgspec.Struct, frozen=True):
    spec: _Job = _Job()


class _Replicated(msgspec.Struct, frozen=True, rename="camel"):
    replicas: int = 1
    template: _Jobs = _Jobs()
    depends_on: tuple[msgspec.Raw, ...] = ()


class _Startup(msgspec.Struct, frozen=True, rename="camel"):
    startup_policy_order: str = ""


class _Set(msgspec.Struct, frozen=True, rename="camel"):
    replicated_jobs: tuple[_Replicated, ...] = ()
    startup_policy: _Startup | None = None

    @property
    def pods(self) -> int:
        """Return how many there are at once. One, where Jobs are made after others are ready:
        no pod would be placed if it had to wait for those."""
        order = self.startup_policy.startup_policy_order if self.startup_policy else ""
        if order == "InOrder" or any(each.depends_on for each in self.replicated_jobs):
            return 1
        return sum(each.replicas * each.template.spec.pods for each in self.replicated_jobs)


class _JobSet(msgspec.Struct, frozen=True):
    spec: _Set = _Set()


def size_in(said: bytes | None, part: str, kind: str, name: str) -> Size:
    """Return the size in an object of a kind, as paths name it, or why there is none. `part`
    is that of a Workload."""
    what = f"{kind} {name}"
    if said is None:
        return f"there is no {what}, which says how many pods its gang has"
    try:
        if kind == "jobsets":
            pods = msgspec.json.decode(said, type=_JobSet).spec.pods
            return pods if pods > 0 else f"{what} has no pods"
        if not part:
            return _size_of(msgspec.json.decode(said, type=_PodGroup).spec, what)
        for each in msgspec.json.decode(said, type=_Workload).spec.pod_groups:
            if each.name == part:
                return _positive(each.policy.size, what, "minCount")
    except msgspec.DecodeError as error:
        return f"{what} is not understood: {error}"
    return f"{what} has no pod group {part}"


def _size_of(group: _Group, what: str) -> Size:
    if group.scheduling_policy is None:
        return _positive(group.min_member or 0, what, "minMember")
    if group.parent_composite_pod_group_name:
        return f"{what} is a part of a composite pod group, and Allotment places none"
    if group.scheduling_constraints is not None and group.scheduling_constraints.topology:
        key = group.scheduling_constraints.topology[0].key[:100]
        return f"{what} requires nodes that are alike in {key}, which Allotment does not keep"
    return _positive(group.scheduling_policy.size, what, "minCount")


def _positive(size: int, what: str, field: str) -> Size:
    return size if size > 0 else f"{what} has no {field}"
