"""A pod that others made for us to place → what it claims: its gang, for whom, how much. Pure.

A pod says of itself what its maker likes. So what it says chooses among what the administrator
allows its namespace, is bounded, and where it cannot be granted the answer is a flaw, in words.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from allotment.backends.kubernetes.discover import ARCHS, TYPES, type_of
from allotment.backends.kubernetes.objects import Pod, Words, whole
from allotment.backends.kubernetes.usage import DEVICES, uncounted, use_of
from allotment.model.errors import BadInput
from allotment.model.quantity import DEVICE, SECOND, Millis, Resources
from allotment.model.spec import Arch, JobSpec, Priority

SIZE, GANG = "allotment.io/gang-size", "allotment.io/gang"
TENANT, QUEUE = "allotment.io/tenant", "allotment.io/queue"
PRIORITY, OPPORTUNISTIC = "allotment.io/priority", "allotment.io/opportunistic"
INDEX = "batch.kubernetes.io/job-completion-index"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
KUEUE_GROUP, KUEUE_COUNT = (
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/pod-group-total-count",
)
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
COSCHEDULING = "scheduling.x-k8s.io/pod-group"
OLD_COSCHEDULING = "pod-group.scheduling.sigs.k8s.io/name"
OLD_LEAST = "pod-group.scheduling.sigs.k8s.io/min-available"
VOLCANO, VOLCANO_LEAST = (
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-min-member",
)
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
GROUPS = {
    COSCHEDULING: "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups/{}",
    VOLCANO: "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/{}",
}
"""Where the objects are that say how large a gang is, where its pods do not."""
JOB_SET, JOB_SET_UID, JOB_SET_TRY, JOB_SET_INDEX = (
    f"jobset.sigs.k8s.io/{key}"
    for key in ("jobset-name", "jobset-uid", "restart-attempt", "job-global-index")
)
"""What JobSet's controller writes on its pods, and so on those of a TrainJob."""
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/{}"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha1/namespaces/{}/workloads/{}"
VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of the Workload API's PodGroups: those of 1.37 and of 1.36."""
POD_GROUPS = "/apis/scheduling.k8s.io/*/namespaces/{}/podgroups/{}"
"""With `*` for the version that the server has."""

MOST_PODS = 10_000
"""Of one gang."""
MOST_CONTAINERS = 250
"""Of one pod: each is read, whenever the pod changes."""
MOST_GRACE_S = 3600
LONGEST_WORD = 253
LONGEST_SPEC = 4096
ARCH_LABEL, OS_LABEL = "kubernetes.io/arch", "kubernetes.io/os"


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a pod claims, as far as it is granted."""

    name: str
    """NAMESPACE/POD."""
    uid: str
    made: str
    gang: str
    """NAMESPACE/NAME; '' where the pod stands alone."""
    size: int
    """Of the gang; 0 where its object at `source` says."""
    tenant: str
    queue: str
    need: Resources
    source: str = ""
    may_exceed: bool = False
    """Whether more pods than `size` may belong to the gang, which then are placed by themselves
    while it runs."""
    priority: int = Priority.NORMAL
    opportunistic: bool = False
    preemptible: bool = True
    pin: str = ""
    device: str = ""
    """What its devices are called in Kubernetes; '' for none, or whichever a node has."""
    types: tuple[str, ...] = ()
    arch: Arch = Arch.ANY
    grace_ms: Millis = Millis(0)
    image: str = ""
    index: int = 0

    @property
    def terms(self) -> tuple[object, ...]:
        """Return what all pods of a gang have to agree on."""
        return (
            self.size, self.source, self.tenant, self.queue, self.priority,
            self.opportunistic, self.preemptible, self.pin,
        )  # fmt: skip


class Flaw(Exception):
    """Why a pod is not placed as it is. `reason` is one word, for programs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Wanted(msgspec.Struct, frozen=True):
    """What a pod asks for by its resource claims."""

    devices: int = 0
    types: tuple[str, ...] = ()


ReadClaims = Callable[[Pod], Wanted]
"""Reads the claims that a pod names. Raises Flaw."""
ReadHived = Callable[[bytes, str], tuple[JobSpec, int]]
"""Reads HiveD's annotation: a job of all pods of the group, and the devices of this one. The
name is that of a pod without a group. Raises BadInput."""


class Rules(msgspec.Struct, frozen=True):
    """What is granted, and how it is read."""

    engine: str
    namespaces: Mapping[str, Sequence[str]]
    """Whose pods are taken, and for whom: TENANT or TENANT/QUEUE, the usual first."""
    read_hived: ReadHived | None = None
    read_claims: ReadClaims | None = None


def claim_of(pod: Pod, rules: Rules) -> Claim:
    """Return what a pod claims. Raises Flaw."""
    meta = pod.metadata
    allowed = rules.namespaces.get(meta.namespace)
    if not allowed:
        raise Flaw(
            "NamespaceNotTaken",
            f"Allotment takes no pods of namespace {meta.namespace}: its administrator names "
            "those that it does, and for whom, under engines, `namespaces`",
        )
    _check_size(pod)
    _check_gates(pod)
    _check_rules(pod)
    words = {**(meta.labels or {}), **(meta.annotations or {})}
    claim = _hived(pod, words, rules) if HIVED in words else _plain(pod, words)
    claim = _with_claims(claim, pod, rules)
    tenant, queue = _for_whom(claim.tenant, claim.queue, allowed, meta.namespace)
    if claim.size > MOST_PODS:
        raise Flaw(
            "GangTooLarge",
            f"it claims to be one of {claim.size:,} pods, and a gang has {MOST_PODS:,} at most",
        )
    return msgspec.structs.replace(claim, tenant=tenant, queue=queue)


def is_hived(pod: Pod) -> bool:
    """Whether a pod has HiveD's document, which takes time to read."""
    return HIVED in (pod.metadata.annotations or {}) or HIVED in (pod.metadata.labels or {})


# ── for whom ────────────────────────────────────────────────────────────────────────────


def _for_whom(
    tenant: str, queue: str, allowed: Sequence[str], namespace: str
) -> tuple[str, str]:
    """Choose among what a namespace is allowed, as a pod asks for. Raises Flaw."""
    for word in allowed:
        owner, _, only = word.partition("/")
        if tenant in ("", owner) and (not queue or not only or _is_same(queue, only)):
            return owner, only or queue
    asked = " and ".join(
        f"{what} {name}" for what, name in (("tenant", tenant), ("queue", queue)) if name
    )
    raise Flaw(
        "NotAllowed",
        f"it asks for {asked}, and pods of namespace {namespace} may be for "
        f"{', '.join(allowed[:8])}",
    )


def _is_same(asked: str, allowed: str) -> bool:
    return asked == allowed or allowed.endswith(f".{asked}")


# ── of which gang ───────────────────────────────────────────────────────────────────────


def _plain(pod: Pod, words: Words) -> Claim:
    """Return what a pod claims that is not HiveD's. Raises Flaw."""
    gang, size, source, may_exceed = _gang(pod, words)
    selector = pod.spec.node_selector or {}
    queue = words.get(QUEUE) or words.get(KUEUE_QUEUE) or words.get(VOLCANO_QUEUE) or ""
    if queue == words.get(VOLCANO_QUEUE) == "default":
        queue = ""  # Volcano writes it where nobody chose
    return msgspec.structs.replace(
        _base(pod),
        gang=f"{pod.metadata.namespace}/{gang}" if gang else "",
        size=size,
        source=source,
        may_exceed=may_exceed,
        tenant=_short(words, TENANT),
        queue=_checked(queue, QUEUE),
        priority=_number(words, PRIORITY, Priority.HIGHEST) or Priority.NORMAL,
        opportunistic=words.get(OPPORTUNISTIC) == "true",
        types=tuple(type_of(selector[label]) for label in TYPES if label in selector),
        index=_rank(words, JOB_SET_INDEX) * MOST_PODS + _rank(words, INDEX),
    )


def _rank(words: Words, key: str) -> int:
    """Return a number that only orders pods; 0 where there is none."""
    text = words.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def _gang(pod: Pod, words: Words) -> tuple[str, int, str, bool]:
    """Return of which gang a pod is, and of how many, or where that is written. Raises Flaw."""
    namespace = pod.metadata.namespace
    if SIZE in words:
        name = _short(words, GANG) or _controller(pod)
        if not name:
            raise Flaw(
                "GangUnnamed",
                f"it has {SIZE} and no {GANG}, and no controller whose name could be its "
                "gang's",
            )
        return name, _count(words, SIZE), "", False
    if KUEUE_GROUP in words:
        return _short(words, KUEUE_GROUP), _count(words, KUEUE_COUNT), "", False
    if OLD_COSCHEDULING in words:
        return _short(words, OLD_COSCHEDULING), _count(words, OLD_LEAST), "", True
    if VOLCANO in words and VOLCANO_LEAST in words:
        return _short(words, VOLCANO), _count(words, VOLCANO_LEAST), "", True
    for key, where in GROUPS.items():
        if key in words:
            name = _object_name(words, key)
            return name, 0, where.format(namespace, name), True
    if (found := _in_workload(pod)) is not None:
        return *found, True
    if JOB_SET in words:
        name = _object_name(words, JOB_SET)
        which = f"{_short(words, JOB_SET_UID)[:8]}.{_short(words, JOB_SET_TRY)}"
        return f"{name}.{which}", 0, JOB_SETS.format(namespace, name), True
    return "", 1, "", False


def _in_workload(pod: Pod) -> tuple[str, int, str] | None:
    """Return of which gang of the Workload API a pod is, and where that is written; None for
    none. Raises Flaw."""
    namespace, group, ref = (
        pod.metadata.namespace,
        pod.spec.scheduling_group,
        pod.spec.workload_ref,
    )
    if group is not None and group.pod_group_name:
        name = _object_name({"schedulingGroup": group.pod_group_name}, "schedulingGroup")
        return name, 0, POD_GROUPS.format(namespace, name)
    if ref is not None and ref.name:
        inner = ".".join(each for each in (ref.pod_group, ref.pod_group_replica_key) if each)
        source = WORKLOADS.format(namespace, _object_name({"": ref.name}, ""))
        return f"{ref.name}.{inner}", 0, f"{source}#{ref.pod_group}"
    return None


def _controller(pod: Pod) -> str:
    """Return what made a pod, each time it is made anew another: `Job-train-5f3a`."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return f"{owner.name}.{owner.uid[:8]}"
    return ""


def _hived(pod: Pod, words: Words, rules: Rules) -> Claim:
    """Return what HiveD's annotation says; CPU and memory say the containers. Raises Flaw."""
    if rules.read_hived is None:
        raise Flaw("HiveDNotRead", "HiveD's annotation is not read here")
    name = pod.metadata.name
    if len(words[HIVED]) > LONGEST_SPEC:  # whoever changes it often has it read as often
        raise Flaw("HiveDSpec", f"its annotation {HIVED} is longer than {LONGEST_SPEC:,}")
    try:
        spec, leaves = rules.read_hived(words[HIVED].encode(), name)
    except BadInput as error:
        raise Flaw("HiveDSpec", f"its annotation {HIVED}: {error}") from None
    count, need = spec.task_count, _need(pod)
    if need.gpu_milli == 0:
        need = msgspec.structs.replace(need, gpu_milli=leaves * DEVICE)
    return msgspec.structs.replace(
        _base(pod),
        gang=f"{pod.metadata.namespace}/{spec.name}" if count > 1 else "",
        size=count,
        tenant=spec.tenant,
        queue=_short(words, QUEUE),
        need=need,
        priority=spec.priority,
        opportunistic=spec.opportunistic,
        preemptible=spec.preemptible,
        pin=spec.pin,
        types=spec.roles[0].gpu_types,
    )


# ── how much ────────────────────────────────────────────────────────────────────────────


def _base(pod: Pod) -> Claim:
    """Return the parts of a claim that are read alike of every pod. Raises Flaw."""
    meta, spec = pod.metadata, pod.spec
    grace_s = spec.termination_grace_period_seconds
    grace_s = 30 if grace_s is None else min(max(0, grace_s), MOST_GRACE_S)
    arch = (spec.node_selector or {}).get(ARCH_LABEL)
    return Claim(
        name=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        made=meta.creation_timestamp or "",
        gang="",
        size=1,
        tenant="",
        queue="",
        need=_need(pod),
        device=next((name for name in DEVICES if _asks(pod, name)), ""),
        arch=ARCHS.get(arch or "", Arch.ANY),
        grace_ms=Millis(grace_s * SECOND),
        image=spec.containers[0].image[:512] if spec.containers else "",
    )


def _asks(pod: Pod, device: str) -> bool:
    return any(
        whole(amounts[device])
        for each in (*pod.spec.containers, *(pod.spec.init_containers or ()))
        for amounts in (each.resources.limits or {}, each.resources.requests or {})
        if device in amounts
    )


def _need(pod: Pod) -> Resources:
    """Return what a pod needs. Raises Flaw where it is devices of two kinds."""
    if sum(_asks(pod, name) for name in DEVICES) > 1:
        raise Flaw("TwoKindsOfDevices", "it asks for devices of two makers")
    use = use_of(pod)
    return Resources(gpu_milli=use.devices * DEVICE, cpu_milli=use.cpu_milli, memory=use.memory)


def _with_claims(claim: Claim, pod: Pod, rules: Rules) -> Claim:
    """Return a claim with the devices that a pod asks for by resource claims. Raises Flaw."""
    if not pod.spec.resource_claims:
        return claim
    if rules.read_claims is None:
        raise Flaw("ResourceClaims", "it has resourceClaims, which are not read here")
    wanted = rules.read_claims(pod)
    if not wanted.devices:
        return claim
    if claim.need.gpu_milli:
        raise Flaw("TwoKindsOfDevices", "it asks for devices by number, and by resourceClaims")
    types = tuple(each for each in wanted.types if not claim.types or each in claim.types)
    if not types:
        raise Flaw(
            "NodeSelector",
            f"its nodeSelector is for {', '.join(claim.types)}, and its resourceClaims are for "
            f"{', '.join(wanted.types)}",
        )
    need = msgspec.structs.replace(claim.need, gpu_milli=wanted.devices * DEVICE)
    return msgspec.structs.replace(claim, need=need, types=types)


# ── what cannot be granted ──────────────────────────────────────────────────────────────


def _check_size(pod: Pod) -> None:
    parts = len(pod.spec.containers) + len(pod.spec.init_containers or ())
    if parts > MOST_CONTAINERS:
        raise Flaw("TooLarge", f"it has {parts:,} containers: {MOST_CONTAINERS} are the most")


def _check_gates(pod: Pod) -> None:
    if gates := pod.spec.scheduling_gates:
        names = ", ".join(gate.name[:60] for gate in gates[:5])
        raise Flaw("SchedulingGated", f"it has scheduling gates that others lift: {names}")


def _check_rules(pod: Pod) -> None:
    """Refuse what would have a node refuse the pod, or would silently not hold. Raises Flaw."""
    for key, value in (pod.spec.node_selector or {}).items():
        known = key in TYPES or (key == ARCH_LABEL and value in ARCHS)
        if not known and (key, value) != (OS_LABEL, "linux"):
            raise Flaw(
                "NodeSelector",
                f"its nodeSelector names {key[:100]}, and Allotment chooses nodes by device "
                f"type ({TYPES[0]}) and {ARCH_LABEL} only",
            )
    if name := uncounted(pod):
        raise Flaw("Devices", f"it asks for {name[:100]}, and Allotment counts whole devices")
    rules = pod.spec.affinity
    for what, found in (
        ("nodeAffinity", rules and rules.node_affinity),
        ("podAffinity", rules and rules.pod_affinity),
        ("podAntiAffinity", rules and rules.pod_anti_affinity),
    ):
        if found and found.required:
            raise Flaw("Affinity", f"it requires a {what}, which Allotment does not keep")
    spread = pod.spec.topology_spread_constraints or ()
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in spread):
        raise Flaw("TopologySpread", "it requires to be spread, which Allotment does not keep")


# ── words ───────────────────────────────────────────────────────────────────────────────


def _short(words: Words, key: str) -> str:
    return _checked(words.get(key, ""), key)


def _checked(word: str, key: str) -> str:
    """Return a word that is no longer than a name. Raises Flaw."""
    if len(word) > LONGEST_WORD or not word.isprintable():
        raise Flaw("BadName", f"its {key} cannot be a name")
    return word


def _object_name(words: Words, key: str) -> str:
    """Return the name of an object, which becomes part of a path. Raises Flaw."""
    name = _short(words, key)
    if not name or not all(
        each.isascii() and (each.isalnum() or each in "-.") for each in name
    ):
        raise Flaw("BadName", f"its {key} cannot be the name of an object")
    return name


def _count(words: Words, key: str) -> int:
    """Return how many pods a gang has. Raises Flaw."""
    found = _number(words, key, 10**9)
    if not found:
        raise Flaw("GangSize", f"it does not say how many pods its gang has: {key}, 1 or more")
    return found


def _number(words: Words, key: str, most: int) -> int:
    """Return a number; 0 where there is none. Raises Flaw."""
    text = words.get(key, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) > most:
        raise Flaw("BadNumber", f"{key} is {text[:40]!r}, and must be a number up to {most:,}")
    return int(text)
