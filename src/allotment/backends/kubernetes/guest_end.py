"""How a pod ended that others made, and that nothing is to be tried again of here. Pure."""

from signal import SIGTERM

from allotment.backends.kubernetes.disruption import is_beyond_disk, target_of
from allotment.backends.kubernetes.objects import Pod
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass

ADVICE = "The pod's owner may make a new one, which waits again. See `kubectl describe pod`."
DELETED = Diagnosis(
    "pod_deleted", "Its pod was deleted in Kubernetes.", Owner.USER, RetryClass.NEVER, ADVICE
)
TAKEN = Diagnosis(
    "pod_taken", "Its pod was put on a node by others.", Owner.USER, RetryClass.NEVER, ADVICE
)


def end_of(pod: Pod, *, is_stopped: bool) -> tuple[Exit, Diagnosis | None]:
    """Return how a pod ended that will run nothing any more, and whose doing that was."""
    if pod.status.phase == "Succeeded":
        return Exit(code=0), None
    told = target_of(pod)
    if told is not None and not is_stopped:
        return lost(told.message or told.reason)
    if is_beyond_disk(pod):
        why = (
            f"Its pod wrote more to its node's disk than its limit: {pod.status.message[:500]}"
        )
        beyond = Diagnosis("disk_limit", why.strip(), Owner.USER, RetryClass.NEVER, ADVICE)
        return Exit(disk_limit_hit=True), beyond
    if pod.status.reason:  # OutOfcpu, Evicted, UnexpectedAdmissionError, Shutdown …
        words = f"{pod.status.reason}: {pod.status.message}".rstrip(": ")
        return lost(words[:500])
    if is_stopped:
        return Exit(signal=SIGTERM), None
    for status in pod.status.container_statuses or ():
        ended = status.state.terminated
        if ended is None or ended.exit_code == 0:
            continue
        is_oom = ended.reason == "OOMKilled"
        how = "was out of memory" if is_oom else f"ended with exit code {ended.exit_code}"
        code = "out_of_memory" if is_oom else "exit_code"
        cause = f"Container {status.name} of its pod {how}."
        exit_ = Exit(signal=9, oom=True) if is_oom else Exit(code=ended.exit_code)
        return exit_, Diagnosis(code, cause, Owner.USER, RetryClass.NEVER, ADVICE)
    return lost(pod.status.message[:500] or "Kubernetes does not say how it ended")


def lost(why: str) -> tuple[Exit, Diagnosis]:
    """Return the end of a pod that was neither its own doing nor ours."""
    found = Diagnosis(
        "pod_ended", f"Its pod was ended or refused: {why}", Owner.PLATFORM, RetryClass.NEVER,
        ADVICE,
    )  # fmt: skip
    return Exit(lost=True, platform_error=why), found
