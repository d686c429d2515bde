"""How many pods a gang has, as its object says: a PodGroup, or a Workload. Pure."""

import msgspec

from allotment.backends.kubernetes.gangs import Size


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int | None = None


class _PodGroup(msgspec.Struct, frozen=True):
    spec: _Group = _Group()


class _Gang(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int = 1


class _Policy(msgspec.Struct, frozen=True):
    gang: _Gang | None = None


class _Part(msgspec.Struct, frozen=True):
    name: str = ""
    policy: _Policy = _Policy()


class _Parts(msgspec.Struct, frozen=True, rename="camel"):
    pod_groups: tuple[_Part, ...] = ()


class _Workload(msgspec.Struct, frozen=True):
    spec: _Parts = _Parts()


def size_in(said: bytes | None, part: str, name: str) -> Size:
    """Return the size in an object, or why there is none. `part` is that of a Workload."""
    if said is None:
        return f"there is no {name}, which says how many pods its gang has"
    try:
        if not part:
            size = msgspec.json.decode(said, type=_PodGroup).spec.min_member
            return size if size is not None and size > 0 else f"{name} has no minMember"
        for each in msgspec.json.decode(said, type=_Workload).spec.pod_groups:
            if each.name == part:
                return each.policy.gang.min_count if each.policy.gang is not None else 1
    except msgspec.DecodeError as error:
        return f"{name} is not understood: {error}"
    return f"{name} has no pod group {part}"
