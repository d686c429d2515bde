"""A pod as Kubernetes shows it → a report on its task. Pure.

That a pod is not there, or that its node is silent, is no news of a task's end.
"""

from signal import SIGTERM

import msgspec

from allotment.backends.kubernetes.disruption import disruption, is_beyond_disk, was_deleted
from allotment.backends.kubernetes.objects import (
    ContainerState,
    KubeNode,
    Pod,
    Terminated,
    Waiting,
)
from allotment.backends.kubernetes.request import CONTAINER
from allotment.backends.kubernetes.runner import UNGUARDED, UNHEARD
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport

NO_PROGRAM = ("executable file not found", "no such file or directory")
START_CODE = 127

REFUSED_LOGIN = ("unauthorized", "forbidden", "authorization failed", "authentication required")
"""What a registry says to a node that has no login for it, or a wrong one."""
NO_LOGIN = "no basic auth credentials"
"""What containerd 1.7 says of a login that it lacks, behind "pull access denied"."""
NO_IMAGE = (
    "not found",
    "does not exist",
    "denied",
    "invalid reference",
    "manifest unknown",
    "couldn't parse image",
)
"""What a registry says of an image that will not be there next time either."""
IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
     "RegistryUnavailable", "ImageInspectError"}
)  # fmt: skip
NOT_MADE = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
     "CrashLoopBackOff"}
)  # fmt: skip

IMAGE_MISSING = Diagnosis(
    "image_missing",
    "Its image cannot be pulled.",
    Owner.USER,
    RetryClass.NEVER,
    "Check the name of the image, and that the cluster may pull it (imagePullSecrets of the "
    "service account that pods use).",
)
IMAGE_DENIED = Diagnosis(
    "image_denied",
    "The cluster has no login for the registry of its image, or a wrong one.",
    Owner.PLATFORM,
    RetryClass.NEVER,
    "Check the name of the image. If it is private, an administrator gives the service account "
    "`default` of the pods' namespace a login (`imagePullSecrets`); then submit the job again.",
)
IMAGE_PULL = Diagnosis(
    "image_pull",
    "Its image could not be pulled in time.",
    Owner.PLATFORM,
    RetryClass.PLATFORM,
    "It is tried again by itself. An administrator looks whether the nodes reach the registry.",
)


AWAY = "The registry of its image did not answer its node."
NO_ANSWER = (
    "connection refused", "connection reset", "no such host", "no route to host",
    "network is unreachable", "timeout", "deadline exceeded", "server misbehaving",
)  # fmt: skip
"""What a node says of a registry that it does not reach."""

NOT_GUARDED = Exit(signal=SIGTERM, pids_limit_hit=True)
TOO_MANY = Diagnosis(
    "pids_limit",
    "It started more processes and threads than its node lets a pod have.",
    Owner.USER,
    RetryClass.NEVER,
    "Start fewer loader workers and threads (OMP_NUM_THREADS), or look for an endless fork. "
    "Nothing was left for what guards the task (`fence_after`), so it was ended.",
)


class Told(msgspec.Struct, frozen=True):
    """What we did to a pod: it says what an end is to be put down to."""

    is_stopped: bool = False
    boot: str = ""
    """Which start of its node it was put on."""
    is_held: bool = False
    """It waits for the rest of its gang."""
    ends_itself: bool = False
    """It does where it hears nothing of us."""


def report(key: TaskKey, pod: Pod, told: Told, node: KubeNode | None) -> TaskReport | None:
    """Return how a task is; None while nothing of it is known that would be news."""
    state = _state(pod)
    if pod.is_over or state.terminated is not None:
        exit_, why = _end(pod, told, node)
        pid = int(state.terminated is not None and not _never_ran(state.terminated))
        pid *= not told.is_held
        name = pod.metadata.name
        return TaskReport(key, Seen.ENDED, pid, exit=exit_, diagnosis=why, engine_job=name)
    if state.running is not None and told.is_held:
        return TaskReport(key, Seen.READY, engine_job=pod.metadata.name)
    if state.running is not None:
        return TaskReport(key, Seen.RUNNING, pid=1, engine_job=pod.metadata.name)
    return None


def _cut_off(pod: Pod, told: Told) -> Exit | None:
    """Return the end of a task that heard nothing of us; None of one that ended otherwise.

    However it ended when its guard told it to: one that saved in time says 0, and is not done.
    """
    ended = _state(pod).terminated
    if ended is None or not _says(pod, told, UNHEARD):
        return None
    return Exit(code=ended.exit_code, lost=True, platform_error=UNHEARD_WHY)


def _says(pod: Pod, told: Told, words: str) -> bool:
    """Whether a guard said that it ended a task, and why. A job can say it itself: it only
    has its own end taken for another."""
    ended = _state(pod).terminated
    return ended is not None and told.ends_itself and ended.message.startswith(words)


UNHEARD_WHY = (
    "it heard nothing from the service for its `fence_after`, and ended itself: its node was "
    "cut "
    "off, or the service was away"
)


def _end(pod: Pod, told: Told, node: KubeNode | None) -> tuple[Exit, Diagnosis | None]:
    """Return how a pod ended, whose doing that was, and what is to be said of it where that
    does not follow."""
    if (cut := _cut_off(pod, told)) is not None:
        return cut, None
    if _says(pod, told, UNGUARDED):
        return NOT_GUARDED, TOO_MANY
    ended = _state(pod).terminated
    is_cut = was_deleted(pod) and not told.is_stopped  # it may have saved, and is not done
    if ended is not None and ended.exit_code == 0 and not (pod.status.reason or is_cut):
        return Exit(code=0), None
    if is_beyond_disk(pod):
        return Exit(disk_limit_hit=True), None
    others = disruption(pod, node, is_stopped=told.is_stopped, boot=told.boot)
    if others is not None:
        code = ended.exit_code if ended else None
        return Exit(code=code, lost=True, platform_error=others.why), others.diagnosis
    return _own_end(pod, told), None


def _own_end(pod: Pod, told: Told) -> Exit:
    """Return how a pod ended that nobody else ended."""
    ended = _state(pod).terminated
    if ended is None and told.is_stopped:
        return Exit(signal=SIGTERM)
    if ended is None:
        why = pod.status.message or "no reason given"
        return Exit(lost=True, platform_error=f"Kubernetes ended its pod: {why}")
    if ended.reason == "OOMKilled":
        return Exit(signal=9, oom=True)
    if _never_ran(ended) and any(words in ended.message.lower() for words in NO_PROGRAM):
        return Exit(code=START_CODE)
    if _never_ran(ended):
        return Exit(platform_error=f"its container did not start: {ended.message}")
    return Exit(code=ended.exit_code) if not ended.signal else Exit(signal=ended.signal)


def words_of(pod: Pod) -> str:
    """Return what Kubernetes says of an end that the task's own output does not."""
    ended = _state(pod).terminated
    if ended is None or ended.reason in ("", "Completed", "Error"):
        return ""
    return f"{ended.reason}: {ended.message}" if ended.message else ""


def is_over(pod: Pod) -> bool:
    """Whether a pod will run nothing any more, and has told how it ended."""
    return pod.is_over or _state(pod).terminated is not None


def runs_on(pod: Pod) -> bool:
    """Whether the containers of a pod that began may run on, though it counts as over.

    Kubelets before 1.22 say that a pod failed as they begin to end it, for lack of memory for
    example, and no more of it. What it wrote can then only be followed until it has ended.
    """
    return pod.is_over and bool(pod.status.reason) and not pod.status.container_statuses


def is_running(pod: Pod) -> bool:
    """Whether its container runs."""
    return _state(pod).running is not None


def may_run(pod: Pod) -> bool:
    """Whether a pod that is gone, last seen so, may run on until its kubelet hears of it.

    A kubelet that ends a pod says that its containers have ended, and then lets it go. One that
    was taken away with no grace was never told to end.
    """
    states = (status.state for status in pod.status.container_statuses or ())
    is_told = pod.metadata.deletion_timestamp is not None
    return not pod.is_over and (
        not is_told or any(state.running is not None for state in states)
    )


def waits_for(pod: Pod) -> str:
    """Return in Kubernetes' words what a container that does not run yet waits for."""
    waiting = _state(pod).waiting
    return f"{waiting.reason}: {waiting.message}".strip(": ") if waiting is not None else ""


def is_pull_refused(pod: Pod) -> bool:
    """Whether a node could not pull a pod's image, and tries it again."""
    waiting = _state(pod).waiting
    return waiting is not None and waiting.reason in IMAGE


def pull_error(pod: Pod) -> str:
    """Return why a node could not pull a pod's image; '' where it could, or does not say."""
    waiting = _state(pod).waiting
    if waiting is None or waiting.reason != "ErrImagePull":
        return ""
    return waiting.message.partition(" desc = ")[2] or waiting.message


def hindrance(pod: Pod, waited_s: float, refused: str = "") -> tuple[str, Diagnosis | None]:
    """Return why a pod that waits for so long is not waited for any longer; '' to go on.
    `refused` is what its node said before of why it could not pull the image."""
    waiting = _state(pod).waiting
    if waiting is None:
        return (
            (f"its node did not start it in {waited_s:.0f} s", None)
            if waited_s >= UNTOUCHED_S
            else ("", None)
        )
    if waited_s >= PREPARED_S and not _has_surroundings(pod):
        what = "prepare its devices" if pod.spec.resource_claims else "mount its folders"
        return f"its node did not {what} in {waited_s / 60:.0f} min", None
    text = waits_for(pod)
    if waiting.reason in IMAGE:
        why = refused if waiting.reason == "ImagePullBackOff" else ""
        if found := _image_trouble(waiting, why, waited_s):
            text = why or text
            return text, msgspec.structs.replace(found, evidence=text[:500])
    elif waiting.reason in NOT_MADE and waited_s >= MADE_S:
        return f"its container cannot be made: {text}", None
    elif waited_s >= PULL_S:
        return f"it did not begin in {waited_s / 60:.0f} min: {text}", None
    return "", None


def _image_trouble(waiting: Waiting, refused: str, waited_s: float) -> Diagnosis | None:
    """Return why an image is not waited for any longer; None to go on."""
    said = (refused or waiting.message).lower()
    is_final = waiting.reason in ("InvalidImageName", "ErrImageNeverPull")
    if NO_LOGIN in said:
        return IMAGE_DENIED
    if is_final or any(word in said for word in NO_IMAGE):
        return IMAGE_MISSING
    if any(word in said for word in REFUSED_LOGIN):
        return IMAGE_DENIED
    if waited_s < IMAGE_S:
        return None
    is_away = any(word in said for word in NO_ANSWER)
    return msgspec.structs.replace(IMAGE_PULL, cause=AWAY) if is_away else IMAGE_PULL


def _has_surroundings(pod: Pod) -> bool:
    """Whether a pod came as far as to pull images: before that, its driver prepares devices and
    its kubelet mounts folders. Kubernetes tells it since 1.29."""
    return not any(
        each.type == "PodReadyToStartContainers" and each.status == "False"
        for each in pod.status.conditions or ()
    )


UNTOUCHED_S = 120.0
PREPARED_S = 300.0
IMAGE_S = 180.0
MADE_S = 60.0
PULL_S = 3600.0
"""For as long as an image may take that is being pulled."""


def _never_ran(ended: Terminated) -> bool:
    return ended.reason in ("StartError", "ContainerCannotRun")


def _state(pod: Pod) -> ContainerState:
    for status in pod.status.container_statuses or ():
        if status.name == CONTAINER:
            return status.state
    return ContainerState()
