"""The objects that give the service its rights in a cluster, made of the list of them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from allotment.backends.kubernetes.rights import FOREIGN, FOREIGN_NAMED, NAMED, RIGHTS, Right

ACCOUNT = "allotment"
USUAL = "allotment"
"""The namespace where tasks are, unless another is named."""
GUESTS = "allotment-foreign-pods"
"""The ClusterRole for namespaces whose pods are placed."""
RBAC = "rbac.authorization.k8s.io/v1"
GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.k8s.io")
"""Whose objects say how many pods a gang has."""

Manifest = dict[str, Any]


def manifests(
    namespace: str = USUAL, placed: Sequence[str] = (), of_tenants: Sequence[str] = ()
) -> list[Manifest]:
    """Return what has to be there for a service that has its tasks in a namespace.

    `placed` are the namespaces whose pods it places, which are there already; `of_tenants`
    further ones for tasks.
    """
    own = [right for right in (*RIGHTS, *NAMED) if not right.everywhere]
    everywhere = [right for right in (*RIGHTS, *NAMED) if right.everywhere]
    sizes = [
        {"apiGroups": [*GROUPS], "resources": ["podgroups", "workloads"], "verbs": ["get"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get"]},
    ]
    guests = rules((*FOREIGN, *FOREIGN_NAMED))
    # The binding of another service of the same cluster is not taken from it.
    wide = ACCOUNT if namespace == USUAL else f"{ACCOUNT}-{namespace}"
    return [
        _object("v1", "Namespace", namespace, labels={PRIVILEGED: "privileged"}),
        _object("v1", "ServiceAccount", ACCOUNT, namespace),
        _object(RBAC, "Role", ACCOUNT, namespace) | {"rules": rules(own)},
        _binding("Role", ACCOUNT, ACCOUNT, namespace, namespace),
        _object(RBAC, "ClusterRole", ACCOUNT) | {"rules": rules(everywhere)},
        _binding("ClusterRole", ACCOUNT, wide, "", namespace),
        _object(RBAC, "ClusterRole", GUESTS) | {"rules": [*guests, *sizes]},
        *(_binding("ClusterRole", GUESTS, wide, space, namespace) for space in placed),
        *(each for space in of_tenants for each in _for_tenant(space, own, wide, namespace)),
    ]


def _for_tenant(space: str, own: Sequence[Right], name: str, home: str) -> list[Manifest]:
    """Return a namespace for tasks of some tenants, and the rights of the service there."""
    return [
        _object("v1", "Namespace", space, labels={PRIVILEGED: "privileged"}),
        _object(RBAC, "Role", name, space) | {"rules": rules(own)},
        _binding("Role", name, name, space, home),
    ]


PRIVILEGED = "pod-security.kubernetes.io/enforce"
"""Pods of gangs are on the network of their nodes."""


def rules(rights: Sequence[Right]) -> list[Manifest]:
    """Return rules that allow these rights, and no others."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), []).append(right.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs[group, resource]}
        for group, resource in verbs
    ]


def _object(
    version: str,
    kind: str,
    name: str,
    namespace: str = "",
    labels: Mapping[str, str] = {},
) -> Manifest:
    where = {"namespace": namespace} if namespace else {}
    told = {"labels": dict(labels)} if labels else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **where, **told}}


def _binding(kind: str, role: str, name: str, namespace: str, home: str) -> Manifest:
    """Return what gives the service's account a role: in a namespace, or '' for everywhere."""
    bound = _object(RBAC, "RoleBinding" if namespace else "ClusterRoleBinding", name, namespace)
    return bound | {
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}],
    }
