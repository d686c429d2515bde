"""What was done to a pod of ours by others than its user and ourselves, and why. Pure."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from allotment.backends.kubernetes.events import Said
from allotment.backends.kubernetes.objects import Condition, KubeNode, Pod
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

NODE_EVICTED = Diagnosis(
    "node_evicted",
    "Its node was short of {}, and evicted it.",
    Owner.PLATFORM,
    RetryClass.PLATFORM,
    "It is tried again by itself, there only once the node has room again. An administrator "
    "looks what fills the node: kubectl describe node.",
)
PREEMPTED = Diagnosis(
    "pod_preempted",
    "Kubernetes ended its pod to make room for a pod of others with a higher priority.",
    Owner.PLATFORM,
    RetryClass.PLATFORM,
    "It is tried again by itself. To prevent it, an administrator keeps other schedulers off "
    "its nodes by a taint, or gives the pods of jobs a default priority.",
)
SHORTAGES = {
    "memory": "memory", "MemoryPressure": "memory",
    "ephemeral-storage": "disk space", "inodes": "disk space", "DiskPressure": "disk space",
    "pids": "process numbers", "PIDPressure": "process numbers",
}  # fmt: skip
"""By what a kubelet calls them, in its words to a pod and as conditions of its node."""
EVICTED = "Evicted"
LOW, UNDER = "low on resource: ", "had condition: ["
"""What a kubelet says of its node, before what that is short of; else it is the pod that is
beyond a limit of its own."""
PREEMPTORS = ("PreemptionByScheduler", "PreemptionByKubeScheduler")
DELETED = "its pod was deleted in Kubernetes (kubectl delete, or a drain), not by Allotment"


class Disruption(msgspec.Struct, frozen=True):
    """What ended a pod. `diagnosis` is None where `why` says all that is known."""

    why: str
    diagnosis: Diagnosis | None = None


def disruption(
    pod: Pod, node: KubeNode | None, *, is_stopped: bool, boot: str
) -> Disruption | None:
    """Return what others did that ended a pod; None for nothing. `boot` is the start of its
    node that it was put on."""
    told = target_of(pod)
    now = node.status.node_info.boot_id if node is not None else ""
    if boot and now and boot != now:
        return Disruption("its node was restarted")
    if pod.status.reason:  # OutOfcpu, Evicted, UnexpectedAdmissionError, NodeLost, Shutdown …
        more = f": {pod.status.message}" if pod.status.message else ""
        why = f"its node refused or ended it ({pod.status.reason}{more})"
        short = shortage(pod)
        return Disruption(
            why, _told(NODE_EVICTED, pod.status.message, short) if short else None
        )
    if told is not None and not is_stopped:
        words = told.message or told.reason
        is_preempted = told.reason in PREEMPTORS
        return Disruption(
            f"Kubernetes ended its pod: {words}",
            _told(PREEMPTED, words) if is_preempted else None,
        )
    if pod.metadata.deletion_timestamp and not is_stopped:
        return Disruption(DELETED)
    return None


def deletion(said: Sequence[Said]) -> Disruption | None:
    """Return why Kubernetes itself deleted a pod, by what it said of that; None where it did
    not, or did not say it."""
    for each in reversed(said):
        if each.reason == "Preempted":
            why = f"Kubernetes ended its pod: {each.message}"
            return Disruption(why, _told(PREEMPTED, each.message))
        if each.reason == "TaintManagerEviction":
            return Disruption("Kubernetes ended its pod: its node was tainted NoExecute")
    return None


def was_deleted(pod: Pod) -> bool:
    """Whether a pod ended since somebody deleted it, however well it took that."""
    meta = pod.metadata
    if not meta.deletion_timestamp or pod.status.reason:
        return False
    gone_at = _seconds(meta.deletion_timestamp)
    told_at = gone_at - (meta.deletion_grace_period_seconds or 0) if gone_at else 0.0
    ends = [
        _seconds(status.state.terminated.finished_at)
        for status in pod.status.container_statuses or ()
        if status.state.terminated is not None
    ]
    return max(ends, default=told_at) >= told_at


def _seconds(text: str | None) -> float:
    """Return a time in seconds; 0 where it is not one."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return 0.0


def shortage(pod: Pod) -> str:
    """Return what its node is short of that evicted a pod, or does not take it; '' where
    it ended otherwise."""
    if pod.status.reason != EVICTED:
        return ""
    for words in (LOW, UNDER):
        _, found, rest = pod.status.message.partition(words)
        if found:
            return next(
                (SHORTAGES[name] for name in SHORTAGES if rest.startswith(name)), "room"
            )
    return ""


def is_beyond_disk(pod: Pod) -> bool:
    """Whether a pod wrote more to its node's disk than its own limit."""
    said = pod.status.message
    return pod.status.reason == EVICTED and "limit" in said and not shortage(pod)


def _told(diagnosis: Diagnosis, evidence: str, *parts: str) -> Diagnosis:
    return msgspec.structs.replace(
        diagnosis, cause=diagnosis.cause.format(*parts), evidence=evidence.strip()[:500]
    )


def target_of(pod: Pod) -> Condition | None:
    """Return what Kubernetes said as it chose a pod to be ended; None where it did not."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return condition
    return None
