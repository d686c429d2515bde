"""Which rights the service needs in a cluster, and for what. Pure."""

import msgspec

from allotment.backends.kubernetes.device_objects import GROUP

SPACED = ("pods", "resourceclaims", "resourceclaims/binding")
"""What is looked at everywhere, and is in namespaces."""


class Right(msgspec.Struct, frozen=True):
    """One verb on one kind of objects."""

    verb: str
    resource: str
    """With its sub-resource: `pods/log`."""
    everywhere: bool
    """In all namespaces, or of objects that are in none."""
    use: str
    """What does not work without."""
    is_needed: bool = True
    group: str = ""

    def __str__(self) -> str:
        where = " in all namespaces" if self.everywhere and self.resource in SPACED else ""
        return f"{self.verb} {self.resource}{where}"


RIGHTS = (
    Right("list", "nodes", True, "finding nodes"),
    Right("watch", "nodes", True, "noticing that a node is lost or closed"),
    Right("get", "nodes", True, "`allot drain` closes a node here only", is_needed=False),
    Right("patch", "nodes", True, "`allot drain` closes a node here only", is_needed=False),
    Right("get", "namespaces", True, "telling that a namespace is missing", is_needed=False),
    Right("list", "pods", True, "what others use is not counted", is_needed=False),
    Right("watch", "pods", True, "what others use is not counted", is_needed=False),
    Right("list", "pods", False, "finding the pods of tasks"),
    Right("watch", "pods", False, "hearing how tasks are"),
    Right("get", "pods", False, "finding a pod whose making was not answered"),
    Right("create", "pods", False, "starting tasks"),
    Right("delete", "pods", False, "stopping tasks"),
    Right("create", "pods/binding", False, "putting tasks on their nodes"),
    Right("get", "pods/log", False, "reading what tasks write"),
    Right("create", "secrets", False, "giving tasks their environment"),
    Right(
        "list",
        "events",
        False,
        "who deleted a pod, and what its node prepares, is not told",
        is_needed=False,
    ),
    Right(
        "create", "configmaps", False, "tasks that end with the service: `fence_after`", False
    ),
    Right(
        "patch", "configmaps", False, "tasks that end with the service: `fence_after`", False
    ),
    Right("patch", "pods", False, "a gang that waits in its pods, with `fence_after`", False),
    Right("create", "pods/exec", False, "`allot exec`, and signals other than TERM", False),
    Right("get", "pods/exec", False, "`allot exec`, and signals other than TERM", False),
)

_MARKED = "devices that are out of use here are marked by their nodes"
_SEEN = "devices with names (DRA) are not seen"
_GIVEN = "devices with names (DRA) are not given to tasks"

NAMED = (
    *(
        Right(verb, resource, True, _SEEN, is_needed=False, group=GROUP)
        for resource in ("resourceslices", "deviceclasses", "resourceclaims")
        for verb in ("list", "watch")
    ),
    *(
        Right(verb, resource, False, _GIVEN, is_needed=False, group=GROUP)
        for verb, resource in (
            ("create", "resourceclaims"),
            ("get", "resourceclaims"),
            ("delete", "resourceclaims"),
            ("patch", "resourceclaims/status"),
        )
    ),
    *(
        Right(verb, "devicetaintrules", True, _MARKED, is_needed=False, group=GROUP)
        for verb in ("list", "create", "delete")
    ),
    # The API server looks for it in the whole cluster, whichever namespace a claim is in. It
    # gives nothing where one may not write `resourceclaims/status` as well.
    Right("patch", "resourceclaims/binding", True, _GIVEN, is_needed=False, group=GROUP),
)
"""Where the API server has resource.k8s.io/v1. It asks for the last from 1.36 on."""

FOREIGN = (
    Right("get", "pods", False, "finding a pod whose binding was not answered"),
    Right("create", "pods/binding", False, "putting pods of others on nodes"),
    Right("create", "pods/eviction", False, "ending pods of others that have to make way"),
    Right("delete", "pods", False, "ending pods that a disruption budget keeps too long"),
    Right("patch", "pods/status", False, "a pod does not say why it waits", is_needed=False),
    Right("create", "events", False, "a pod does not say why it waits", is_needed=False),
)
"""In each namespace whose pods are placed."""

FOREIGN_NAMED = tuple(
    Right(
        verb, resource, False, "pods of others get no devices with names (DRA)",
        is_needed=False, group=GROUP,
    )
    for verb, resource in (
        ("get", "resourceclaims"),
        ("patch", "resourceclaims"),
        ("patch", "resourceclaims/status"),
    )
)  # fmt: skip
"""There, where the API server has resource.k8s.io/v1."""
