"""A task → the pod that runs it, and what goes with it. Pure."""

import base64
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

import msgspec

from allotment.backends.kubernetes import runner
from allotment.backends.kubernetes.mpi import files_of
from allotment.backends.kubernetes.parts import Mounts, Sight, above
from allotment.backends.kubernetes.usage import DEVICES
from allotment.backends.kubernetes.visible import NONE, NOTE, VARIABLE
from allotment.model.ids import TaskKey
from allotment.model.quantity import DEVICE
from allotment.service.ports import GangLaunch, TaskLaunch

SCHEDULER = "allotment"
"""Who places our pods: no other scheduler touches one that names it."""
OURS = "allotment.io/"
SERVICE = "allotment.io/service"
"""A label: of which service a pod is."""
LAUNCH = "allotment.io/launch"
"""A label: what nobody could know before the pod was there."""
TASK = "allotment.io/task"
CONTAINER = "task"
CLAIM = "devices"
"""What a pod calls its claim."""
VISIBLE = frozenset(
    {"CUDA_VISIBLE_DEVICES", VARIABLE, "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
)
"""Which devices a task has the kubelet says, which picks them; or we do, never its job."""
OF_IMAGE = frozenset({"PATH", "HOME", "SHELL", "LANG"})
"""Variables that speak of a machine's software: where the job does not name them, the image
does, or its runtime."""
NO_NOTES: Mapping[str, str] = {}


def name_of(prefix: str, key: TaskKey) -> str:
    """Return the name of a task's pod: by it a repeat finds what was made before."""
    return f"{prefix}-{key.job}-{key.attempt}-{key.index}"


MOST_OPEN = 8192
"""Letters: an environment that is longer would make each word about its pod long."""
MOST_SHARED = 100
"""Pods with one Secret: it names each, to go with the last of them."""


class Variables(NamedTuple):
    """The environment of a task: what its pod shows, and what is in a Secret."""

    shown: Mapping[str, str]
    hidden: Mapping[str, str]


def variables_of(gang: GangLaunch, task: TaskLaunch) -> Variables:
    """Return the variables of a task. Hidden are those that its user named, and all where the
    rest is long."""
    env = _env(gang, task)
    shown = {name: value for name, value in env.items() if name not in gang.named}
    if sum(len(name) + len(value) for name, value in shown.items()) > MOST_OPEN:
        return Variables({}, env)
    return Variables(shown, {name: env[name] for name in env if name in gang.named})


def secrets_of(prefix: str, gang: GangLaunch, token: str) -> dict[TaskKey, str]:
    """Return the name of a new Secret for each task that needs one. Those with the same
    variables in it share one, as all of a gang do as a rule. No other has this `token`."""
    alike: dict[tuple[tuple[str, str], ...], list[TaskKey]] = {}
    for task in gang.tasks:
        if hidden := variables_of(gang, task).hidden:
            alike.setdefault(tuple(hidden.items()), []).append(task.key)
    found: dict[TaskKey, str] = {}
    for keys in alike.values():
        for start in range(0, len(keys), MOST_SHARED):
            some = keys[start : start + MOST_SHARED]
            found |= dict.fromkeys(some, f"{name_of(prefix, some[0])}-{token}")
    return found


def secret_of(
    name: str, hidden: Mapping[str, str], pods: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Return the Secret with hidden variables. It goes when the last of its pods goes, which
    are given by name and uid."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid} for pod, uid in pods]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "ownerReferences": owners},
        "type": "Opaque",
        "immutable": True,  # so no kubelet has to watch it
        "data": {
            name: base64.b64encode(value.encode()).decode() for name, value in hidden.items()
        },
    }


def begun_on(node: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod that begins as soon as it is made: on its node."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def _env(gang: GangLaunch, task: TaskLaunch) -> dict[str, str]:
    """Return the variables of a task: what an image says better is left to it."""
    hidden = VISIBLE | (OF_IMAGE - gang.named)
    return {name: value for name, value in task.env if name not in hidden}


def missing_paths(gang: GangLaunch, key: TaskKey, sight: Sight) -> list[str]:
    """Return the folders that a task reads and its pod would not see.

    That with its attempt's host file, which the service makes, is not missed.
    """
    own = f"/attempts/{key.job}/{key.attempt}"
    code = [gang.code] if gang.code else []
    shown = [*gang.kept, *code, *(mount.source for mount in gang.data)]
    read = [path for path in gang.read_only if path not in shown and not path.endswith(own)]
    return [
        *(path for path in read if not above(path, sight.volumes)),
        *(path for path in shown if not sight.claim_of(path)[0]),
    ]


class Place(msgspec.Struct, frozen=True):
    """What a pod gets of the engine and of its node."""

    service: str
    """Whose pod it is."""
    image: str
    device: str
    """The resource that its node's devices are; '' where it has none."""
    sight: Sight = Sight()
    beats: str = ""
    """The ConfigMap that says that the service is there."""
    fence_s: int = 0
    """For how long its task goes on without; 0: for ever."""
    is_held: bool = False
    """Whether it waits for the rest of its gang."""
    keep_s: int = 0
    """For how long it is kept where its task fails."""
    has_names: bool = False
    """Whether its devices have names: it gets them by a claim of its own name."""
    visible: str | None = None
    """Which devices its container runtime gives it, '' for none; None: its kubelet picks."""


class Names(NamedTuple):
    """What is made for a task, and by what it is known as ours."""

    pod: str
    token: str
    secret: str = ""
    """Where the variables are that its pod does not show; '' for none."""


def pod_of(gang: GangLaunch, task: TaskLaunch, names: Names, place: Place) -> dict[str, Any]:
    """Return the pod of a task.

    It names no node: one is bound to it when the task is to begin.
    """
    shown = variables_of(gang, task).shown
    env = [{"name": name, "value": _escaped(value)} for name, value in shown.items()]
    hidden = [{"secretRef": {"name": names.secret}}] if names.secret else []
    mounts, places = _mounts(gang, place.sight)
    argv = list(task.argv)
    if place.fence_s or place.keep_s:
        argv = runner.led(
            argv, task.binding.node, place.fence_s,
            is_held=place.is_held, keep_s=place.keep_s, token=names.token,
        )  # fmt: skip
    files = files_of(gang)
    mounts += files.mounts
    places += files.volumes
    if place.fence_s:
        mounts += runner.mounts()
        places += runner.volumes(place.beats)
    devices = len(task.binding.devices) or ceil(task.resources.gpu_milli / DEVICE)
    told = _devices_told(place, devices)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": place.image,
        **({"command": [_escaped(word) for word in argv]} if argv else {}),
        **({"envFrom": hidden} if hidden else {}),
        "env": [*env, *told],
        "workingDir": gang.workdir,
        "resources": _resources(task, place, devices),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        **({"lifecycle": {"preStop": runner.TELL_ALL}} if place.keep_s else {}),
    }
    is_counted = not place.has_names and place.visible is None
    claimed = {"name": CLAIM, "resourceClaimName": names.pod}
    notes = files.notes | ({NOTE: place.visible} if place.visible else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod,
            "labels": {
                **{f"{OURS}{name}": _label(value) for name, value in gang.labels},
                SERVICE: place.service,
                TASK: _label(task.name),
                LAUNCH: names.token,
            },
            **({"annotations": notes} if notes else {}),
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            # Addresses and ports of a gang are those of its nodes.
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            # Its first process is then no init, which signals would pass by.
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": _security(gang),
            "tolerations": [
                # What becomes of tasks on a silent node the service decides, not the cluster.
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
                *(
                    {"key": key, "operator": "Exists"}
                    for key in (*((place.device,) if is_counted else DEVICES), SCHEDULER)
                    if key
                ),
            ],
            "containers": [container],
            "volumes": places,
            **({"resourceClaims": [claimed]} if place.has_names else {}),
        },
    }


def binding_of(
    name: str, uid: str, node: str, notes: Mapping[str, str] = NO_NOTES
) -> dict[str, Any]:
    """Return what puts a pod on a node, once, and writes annotations of ours over its own."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid, **({"annotations": notes} if notes else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion_of(uid: str, grace_s: int | None) -> dict[str, Any]:
    """Return how a pod is ended; with its own grace where none is named. With no grace at all
    the API would forget it at once."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        **({} if grace_s is None else {"gracePeriodSeconds": grace_s}),
        "preconditions": {"uid": uid},
    }


EVICTIONS = ("policy/v1", "policy/v1beta1")
"""The second is for servers before 1.22."""


def eviction_of(version: str, name: str, uid: str, grace_s: int) -> dict[str, Any]:
    """Return what ends a pod where its disruption budgets allow it."""
    return {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": deletion_of(uid, grace_s),
    }


def _devices_told(place: Place, devices: int) -> list[dict[str, str]]:
    """Return the variable by which a container runtime gives devices, where it is ours to say:
    an image may say `all`."""
    if place.visible:
        return [{"name": VARIABLE, "value": place.visible}]
    # Devices with names come by CDI.
    if devices and not place.has_names and place.visible is None:
        return []  # its kubelet says it
    return [{"name": VARIABLE, "value": NONE}]


def _resources(task: TaskLaunch, place: Place, devices: int) -> dict[str, Any]:
    is_counted = not place.has_names and place.visible is None
    need, device = task.resources, place.device if is_counted else ""
    amounts = {
        **({"cpu": f"{need.cpu_milli}m"} if need.cpu_milli else {}),
        **({"memory": str(need.memory)} if need.memory else {}),
        **({"ephemeral-storage": str(need.disk)} if need.disk else {}),
        **({device: str(devices)} if devices and device else {}),
    }
    claims = {"claims": [{"name": CLAIM}]} if place.has_names else {}
    return {"requests": amounts, "limits": amounts, **claims}


def _security(gang: GangLaunch) -> dict[str, Any]:
    who = gang.identity
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    if who is None:
        return profile
    groups = {"supplementalGroups": list(who.groups)} if who.groups else {}
    return {**profile, "runAsUser": who.uid, "runAsGroup": who.gid, **groups}


def _mounts(
    gang: GangLaunch, sight: Sight
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return where the pod sees what: the volumes, parts of what the service shares, and for
    the rest folders of its own."""
    seen = Mounts(sight.volumes)
    for part in sight.parts(gang):
        seen.show(part, *sight.claim_of(part.source))
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}, *seen.mounts]
    places: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    places += seen.places
    # Not where it works: that may be a folder of the image, with files in it.
    own = dict.fromkeys(
        path for path in gang.writable if path != gang.code and not above(path, sight.volumes)
    )
    for number, path in enumerate(own):
        places.append({"name": f"own{number}", "emptyDir": {}})
        mounts.append({"name": f"own{number}", "mountPath": path})
    return mounts, places


def _escaped(word: str) -> str:
    """Keep Kubernetes from putting a variable where a word says `$(NAME)`, and `$` for `$$`."""
    return word.replace("$", "$$")


MOST_LABEL = 63
"""Letters of a label's value."""


def _label(text: str) -> str:
    """Return a word as the value of a label may be: of ASCII alone, and at most 63 long. One
    that is shortened ends in a hash of the whole, so that two that begin alike stay two."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("-_.")
    if len(plain) <= MOST_LABEL and (plain or not text):
        return plain
    digest = sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{plain[: MOST_LABEL - 9]}-{digest}".strip("-_.")
