"""A pod template: the one container of a task, and what of its pod has a meaning here."""

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

import msgspec

from allotment.model.later import later
from allotment.wire.foreign.fields import READ, Fields, Map, Refused, Remarks, Unused
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain

Texts = dict[str, str]
SHARED = "put its content on a disk that an administrator names under engines, `volumes`"
ALONE = Refused("adds to the one container that a task is", "keep one container")
TOOLS = Refused(
    "is supported by no engine here", "take it out; exit codes and limits end a task"
)
DEVICES = Refused(
    "asks for devices in a way that no engine here supports",
    "take it out; `resources.limits` asks for them by number",
)
OTHERS = Unused("the configuration of the cluster says who may use which nodes")
WHO = Unused("a job runs as the user who submits it")
ACCOUNT = Refused("gives it an account of the cluster, which jobs do not get", "take it out")
NODES = Refused(
    "chooses nodes; a job here names its needs instead",
    "take it out; `within` and `resources.gpu_type` of a job file choose nodes",
)

TEMPLATE: Fields = {"metadata": READ, "spec": READ}
META: Fields = {
    "name": Unused("tasks are named by their job"),
    "namespace": Unused("the engine decides where jobs are"),
    "labels": Unused("they are of the pod, and a job's own count"),
    "annotations": READ,
    "creationTimestamp": Unused("it says nothing about the job"),
}
POD: Fields = {
    "containers": READ,
    "nodeSelector": READ,
    "volumes": READ,
    "restartPolicy": READ,
    "terminationGracePeriodSeconds": READ,
    "activeDeadlineSeconds": READ,
    "schedulerName": Unused("Allotment places it"),
    "hostNetwork": Unused("tasks are on the network of their nodes anyway"),
    "dnsPolicy": Unused("tasks are on the network of their nodes"),
    "enableServiceLinks": Unused("tasks get no variables of services"),
    "automountServiceAccountToken": Unused("jobs get no account of the cluster"),
    "tolerations": OTHERS,
    "securityContext": WHO,
    "imagePullSecrets": Unused(
        "images are pulled as the engine may; `allot image login` is for others"
    ),
    "shareProcessNamespace": Unused("a task has one container"),
    "schedulingGroup": Unused("all tasks of a job start together"),
    "subdomain": Unused("tasks find each other by MASTER_ADDR and the host file"),
    "hostname": Unused("tasks find each other by MASTER_ADDR and the host file"),
    "initContainers": ALONE,
    "ephemeralContainers": ALONE,
    "affinity": NODES,
    "topologySpreadConstraints": NODES,
    "nodeName": NODES,
    "serviceAccountName": ACCOUNT,
    "serviceAccount": ACCOUNT,
    "priorityClassName": Refused(
        "names a class of the cluster", "write it as a number: --set priority=500"
    ),
    "priority": Refused(
        "is that of a class of the cluster", "--set priority=500 sets the job's own"
    ),
    "runtimeClassName": Refused("names a class of the cluster", "take it out"),
    "resourceClaims": DEVICES,
    "hostIPC": Refused("opens the node's own namespace", "take it out"),
    "hostPID": Refused("opens the node's own namespace", "take it out"),
}
CONTAINER: Fields = {
    "name": READ,
    "image": READ,
    "command": READ,
    "args": READ,
    "env": READ,
    "workingDir": READ,
    "resources": READ,
    "volumeMounts": READ,
    "imagePullPolicy": Unused("an engine pulls what it does not have"),
    "ports": Unused("tasks are on the network of their nodes; MASTER_PORT is a free port"),
    "securityContext": WHO,
    "terminationMessagePath": Unused("logs tell why a task ended"),
    "terminationMessagePolicy": Unused("logs tell why a task ended"),
    "stdin": Unused("tasks have no input"),
    "tty": Unused("tasks have no terminal; `allot exec` opens one"),
    "envFrom": Refused(
        "is an object of a cluster", "write the variables under env; secrets by --set"
    ),
    "livenessProbe": TOOLS,
    "readinessProbe": TOOLS,
    "startupProbe": TOOLS,
    "lifecycle": TOOLS,
    "volumeDevices": Refused("mounts something that does not exist here", SHARED),
    "restartPolicy": ALONE,
}
RESOURCES: Fields = {
    "limits": READ,
    "requests": READ,
    "claims": DEVICES,
}
VARIABLE: Fields = {"name": READ, "value": READ, "valueFrom": READ}
VOLUME: Fields = {"name": READ, "emptyDir": READ}
EMPTY: Fields = {
    "medium": READ,
    "sizeLimit": Unused("the memory of a task bounds it"),
}
MOUNT: Fields = {"name": READ, "mountPath": READ}
GPUS = frozenset({
    "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe",
    "habana.ai/gaudi", "huawei.com/Ascend910", "aws.amazon.com/neuron", "google.com/tpu",
})  # fmt: skip
HIVED_ENABLED = "hivedscheduler.microsoft.com/pod-scheduling-enable"
AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk"}
ARCH, SYSTEM, PRODUCT = "kubernetes.io/arch", "kubernetes.io/os", "nvidia.com/gpu.product"
AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
UNITS = {
    "m": Decimal("0.001"), "": Decimal(1), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "P": 10**15, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
}  # fmt: skip
NAMED = re.compile(r"\$(\$)?\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
LATER = re.compile(
    "RANK|WORLD_SIZE|LOCAL_RANK|MASTER_(?:ADDR|PORT)|PET_[A-Z_]+|JAX_[A-Z_]+|DMLC_[A-Z_]+|"
    "K_MPI_JOB_ROLE|JOB_COMPLETION_INDEX"
)
"""Variables that an operator sets: they are put in when a task starts."""
LONG_LATER = "TF_CONFIG"
"""The one that is too long to be put anywhere, any number of times."""
INDEX = "batch.kubernetes.io/job-completion-index"
FIELDS: Texts = {
    "spec.nodeName": later("task.node"),
    "status.hostIP": later("task.address"),
    "status.podIP": later("task.address"),
}
"""What `fieldRef` may name, and what stands for it: these in every kind."""
INDEXED: Texts = FIELDS | {
    f"metadata.{where}['{INDEX}']": later("JOB_COMPLETION_INDEX")
    for where in ("annotations", "labels")
}
"""Of pods that have an index."""
FIELD: Fields = {"fieldRef": READ}
FIELD_PATH: Fields = {"fieldPath": READ, "apiVersion": Unused("fields are those of v1")}
MOST_FILLED = 1 << 20
"""Characters of the variables of a task, or of its command; Kubernetes keeps little more. Each
`$(NAME)` can be as long as all before it."""


class Task(msgspec.Struct, frozen=True):
    """What a pod template says of a task."""

    image: str = ""
    command: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Its `command` and `args` as they are written, no variable filled in."""
    env: dict[str, str] = {}
    workdir: str = ""
    resources: Map = {}
    arch: str = ""
    restarts: str = ""
    grace_s: int | None = None
    most_s: int | None = None


def read_template(
    template: Plain,
    place: Place,
    told: Remarks,
    usual: tuple[str, ...] | None = (),
    fields: Texts = FIELDS,
) -> Task:
    """Read a pod template. `usual` is the command of a container that names none, None where it
    need not have one, and `fields` are those of the pod that a variable may be."""
    both = told.map(template, place, TEMPLATE)
    meta = told.map(both.get("metadata"), (*place, "metadata"), META)
    fields = fields | _own_words(both.get("metadata"))
    for name in told.map(meta.get("annotations"), (*place, "metadata", "annotations")):
        if name != "sidecar.istio.io/inject":  # says that there is to be none
            told.warn((*place, "metadata", "annotations", name), "is not used")
    at = (*place, "spec")
    spec = told.map(both.get("spec"), at, POD)
    mounted = _volumes(spec.get("volumes"), (*at, "volumes"), told)
    containers = told.items(spec.get("containers"), (*at, "containers"))
    if len(containers) != 1:
        told.refuse((*at, "containers"), "must be one: that is what a task runs")
        return Task()
    inside = (*at, "containers", 0)
    container = told.map(containers[0], inside, CONTAINER)
    _check_mounts(container.get(MOUNTS), (*inside, MOUNTS), told, mounted)
    task = read_container(container, inside, told, fields)
    if usual and not task.command:
        task = msgspec.structs.replace(task, command=usual)
    elif usual is not None:
        need_command(task, inside, told)
    return with_pod(task, spec, at, told)


def need_command(task: Task, place: Place, told: Remarks) -> None:
    """Refuse a container that names no command, and no image that may have one."""
    if not (task.words or task.arguments or task.image):
        told.refuse(place, "names no command", "write it: command: [python, train.py]")


def with_pod(task: Task, spec: Map, at: Place, told: Remarks) -> Task:
    """Return a task with what its pod says of it."""
    chosen, arch = _chosen(spec.get("nodeSelector"), (*at, "nodeSelector"), told)
    grace, most = spec.get("terminationGracePeriodSeconds"), spec.get("activeDeadlineSeconds")
    return msgspec.structs.replace(
        task,
        arch=arch or task.arch,
        resources={**task.resources, **chosen},
        restarts=told.text(spec.get("restartPolicy"), (*at, "restartPolicy"), task.restarts),
        grace_s=task.grace_s if grace is None else told.number(grace, (*at, GRACE), 30),
        most_s=task.most_s
        if most is None
        else told.number(most, (*at, "activeDeadlineSeconds"), 1, 1),
    )


def _own_words(meta: Plain) -> dict[str, str]:
    """Return the labels and annotations that a template gives its pods, as fields."""
    return {
        f"metadata.{where}['{key}']": value
        for where in ("labels", "annotations")
        if isinstance(meta, dict) and isinstance(words := meta.get(where), dict)
        for key, value in words.items()
        if isinstance(value, str) and "$" not in value
    }


GRACE = "terminationGracePeriodSeconds"


def _volumes(value: Plain, place: Place, told: Remarks) -> frozenset[str]:
    """Return the volumes that a task has anyway: memory for `/dev/shm`. Others are refused."""
    there: set[str] = set()
    for number, each in enumerate(told.items(value, place)):
        at = (*place, number)
        if not isinstance(each, dict) or not isinstance(each.get("emptyDir"), dict):
            told.refuse(at, "is a volume of a cluster", SHARED)
            continue
        volume = told.map(each, at, VOLUME)
        empty = told.map(volume.get("emptyDir"), (*at, "emptyDir"), EMPTY)
        if empty.get("medium") not in (None, "", "Memory"):
            told.refuse((*at, "emptyDir", "medium"), "must be Memory")
        there.add(told.text(volume.get("name"), (*at, "name")))
    return frozenset(there)


def read_container(
    found: Map,
    place: Place,
    told: Remarks,
    fields: Texts,
    resources: str = "resources",
    before: Mapping[str, str] = MappingProxyType({}),
) -> Task:
    """Read a container, which may name no command. `resources` is the key of what it needs;
    `before` are variables that it has besides, unless it sets them itself."""
    env = _env(found.get("env"), (*place, "env"), told, fields, before)
    words = _words(found.get("command"), (*place, "command"), told)
    more = _words(found.get("args"), (*place, "args"), told)
    if more and not words:
        told.refuse(
            (*place, "args"),
            "are for the command of the image, which is not known before it is pulled",
            "write its command, too",
        )
    return Task(
        image=told.text(found.get("image"), (*place, "image")),
        command=_command(words, more, env, place, told),
        words=tuple(words),
        arguments=tuple(more),
        env=env,
        workdir=told.text(found.get("workingDir"), (*place, "workingDir")),
        resources=_resources(found.get(resources), (*place, resources), told),
    )


def _check_mounts(value: Plain, place: Place, told: Remarks, volumes: frozenset[str]) -> None:
    for number, each in enumerate(told.items(value, place)):
        mount = told.map(each, (*place, number), MOUNT)
        if mount.get("name") not in volumes or mount.get("mountPath") != "/dev/shm":
            told.refuse((*place, number), "mounts something that does not exist here", SHARED)


MOUNTS = "volumeMounts"


def _words(value: Plain, place: Place, told: Remarks) -> list[str]:
    words = told.items(value, place)
    for number, word in enumerate(words):
        if not isinstance(word, (str, int, float)):
            told.refuse((*place, number), f"must be a word, not {shown(word)}")
    return [str(word) for word in words]


def _command(
    words: list[str], more: list[str], env: dict[str, str], place: Place, told: Remarks
) -> tuple[str, ...]:
    """Return a command and its arguments, variables filled in."""
    if sum(_length(word, env) for word in (*words, *more)) > MOST_FILLED:
        told.refuse((*place, "command"), *TOO_LONG)
        return ()
    return (
        *(_filled(word, env, (*place, "command", at), told) for at, word in enumerate(words)),
        *(_filled(word, env, (*place, "args", at), told) for at, word in enumerate(more)),
    )


TOO_LONG = (f"is longer than {MOST_FILLED:,} characters", "each `$(NAME)` counts as its value")


def _length(word: str, env: dict[str, str]) -> int:
    """Return how long a word is at most once variables are put into it."""
    return len(word) + sum(len(env.get(found[2], "")) for found in NAMED.finditer(word))


def _filled(word: str, env: dict[str, str], place: Place, told: Remarks) -> str:
    """Put variables where a word says `$(NAME)`; what is none stays, and `$$(` means `$(`.

    For one that an operator sets stands what is filled in when a task starts.
    """

    def put(found: re.Match[str]) -> str:
        name = found[2]
        if found[1]:
            return f"$({name})"
        if name not in env and LATER.fullmatch(name):
            return later(name)
        if name not in env and name == LONG_LATER:
            told.refuse(
                place, f"names $({name}), which is known only when a task starts",
                f"have a shell read it: [sh, -c, 'exec train.py ${name}']",
            )  # fmt: skip
        return env.get(name, found[0])

    return NAMED.sub(put, word)


def _env(
    value: Plain, place: Place, told: Remarks, fields: Texts, before: Mapping[str, str]
) -> dict[str, str]:
    env = dict(before)
    length = 0
    for number, each in enumerate(told.items(value, place)):
        at = (*place, number)
        found = told.map(each, at, VARIABLE)
        name = told.text(found.get("name"), (*at, "name"))
        if not name:
            told.refuse(at, "names no variable")
        elif (source := found.get("valueFrom")) is not None:
            env[name] = _field(name, source, (*at, "valueFrom"), told, fields)
        else:
            text = told.text(found.get("value"), (*at, "value"))
            length += _length(text, env)
            if length > MOST_FILLED:
                told.refuse(at, *TOO_LONG)
                break
            env[name] = _filled(text, env, (*at, "value"), told)
    return env


def _field(name: str, source: Plain, place: Place, told: Remarks, fields: Texts) -> str:
    """Return what stands for a field of the pod that a variable is to have."""
    if not isinstance(source, dict) or "fieldRef" not in source:
        told.refuse(
            place,
            f"{name} is of an object of a cluster, which is not read",
            f"write its value; or pass a secret on: --set secrets.{name}=…",
        )
        return ""
    at = (*place, "fieldRef")
    reference = told.map(told.map(source, place, FIELD).get("fieldRef"), at, FIELD_PATH)
    path = told.text(reference.get("fieldPath"), (*at, "fieldPath")).replace('"', "'")
    if path not in fields:
        told.refuse(
            (*at, "fieldPath"), f"names {shown(path)}, which a task here does not have",
            f"write the value of {name}",
        )  # fmt: skip
    return fields.get(path, "")


# ── how much ────────────────────────────────────────────────────────────────────────────


def _resources(value: Plain, place: Place, told: Remarks) -> Map:
    """Return the amounts in our words. A task gets its limit, and may use no more."""
    both = told.map(value, place, RESOURCES)
    limits = told.map(both.get("limits"), (*place, "limits"))
    asked = told.map(both.get("requests"), (*place, "requests"))
    found: Map = {}
    for name in dict.fromkeys((*limits, *asked)):
        key = "limits" if name in limits else "requests"
        at, wanted = (*place, key, name), limits.get(name, asked.get(name))
        if name in limits and amount_of(asked.get(name, wanted)) != amount_of(wanted):
            told.warn(
                (*place, "requests", name), f"is not used: a task gets its limit, {wanted}"
            )
        amount = amount_of(wanted)
        if name == HIVED_ENABLED:
            continue  # says that HiveD places it
        if amount is None:
            told.refuse(at, f"must be an amount, not {shown(wanted)}", "such as 500m or 16Gi")
        elif name in GPUS and (amount != int(amount) or "gpu" in found):
            told.refuse(at, "must be a whole number of devices of one kind")
        elif name in GPUS:
            found["gpu"] = str(int(amount))
        elif name == "cpu":
            found["cpu"] = f"{amount:f}"
        elif name in AMOUNTS:
            found[AMOUNTS[name]] = f"{int(amount)}B"
        else:
            told.refuse(at, "is a resource that is not counted here", "take it out")
    return found


def amount_of(value: Plain) -> Decimal | None:
    """Return an amount such as `16Gi` or `500m`; None where it is none."""
    found = AMOUNT.fullmatch(str(value)) if isinstance(value, (str, int, float)) else None
    return Decimal(found[1]) * UNITS[found[2] or ""] if found else None


def _chosen(value: Plain, place: Place, told: Remarks) -> tuple[Map, str]:
    """Return the type of devices and the architecture that a pod's nodes must have."""
    found: Map = {}
    arch = ""
    for label, wanted in told.map(value, place).items():
        at = (*place, label)
        if label == ARCH:
            arch = told.text(wanted, at)
        elif label == PRODUCT:
            found["gpu_type"] = [told.text(wanted, at)]
        elif label != SYSTEM or wanted != "linux":
            told.refuse(at, *NODE_LABEL)
    return found, arch


NODE_LABEL = (NODES.why, NODES.hint)
