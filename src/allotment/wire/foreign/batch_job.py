"""A Job of Kubernetes itself: pods that do not need each other, each a job of an array."""

from allotment.model.spec import Dialect
from allotment.wire.foreign.fields import READ, Fields, Refused, Remarks, Unused
from allotment.wire.foreign.job import Role, begin, finish
from allotment.wire.foreign.pod import INDEXED, read_template
from allotment.wire.job_file import JobFile
from allotment.wire.tree import Plain, Tree

EACH = "is about some of its pods; each is a job of its own here"
SPEC: Fields = {
    "template": READ,
    "parallelism": READ,
    "completions": READ,
    "completionMode": READ,
    "backoffLimit": READ,
    "activeDeadlineSeconds": READ,
    "suspend": READ,
    "ttlSecondsAfterFinished": Unused("`limits.keep_finished` says how long jobs are shown"),
    "podReplacementPolicy": Unused("what has failed is tried again once it has ended"),
    "backoffLimitPerIndex": READ,
    "selector": Refused("chooses pods of others", "take it out"),
    "manualSelector": Refused("chooses pods of others", "take it out"),
    "podFailurePolicy": Refused(EACH, "take it out; `allot why` names the cause of a failure"),
    "maxFailedIndexes": Refused(EACH, "take it out"),
    "successPolicy": Refused(EACH, "take it out"),
    "managedBy": Refused("gives the job to another controller", "take it out"),
}
USUAL_LIMIT = 6
"""How often Kubernetes tries again."""


def read_batch_job(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read a Job. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    task = read_template(spec.get("template"), ("spec", "template"), told, fields=INDEXED)
    role = Role("main", 1, task, ("spec",), task.restarts or "Never")
    draft.roles = [role]
    role.restarts = "OnFailure"  # a failed pod is made anew, whatever its kubelet does
    side_by_side = told.number(spec.get("parallelism"), ("spec", "parallelism"), 1)
    wanted = told.number(spec.get("completions"), ("spec", "completions"), side_by_side)
    if spec.get("completionMode") not in (None, "Indexed", "NonIndexed"):
        told.refuse(("spec", "completionMode"), "must be Indexed or NonIndexed")
    if not side_by_side or not wanted:
        told.refuse(("spec", "parallelism"), "asks for no pod", "write 1 or more")
    elif wanted > 1:
        draft.array = {"count": wanted, "max_running": min(side_by_side, wanted)}
    limit = spec.get("backoffLimitPerIndex", spec.get("backoffLimit"))
    draft.retry = told.number(limit, ("spec", "backoffLimit"), USUAL_LIMIT)
    if (most := spec.get("activeDeadlineSeconds")) is not None:
        draft.most_s = told.number(most, ("spec", "activeDeadlineSeconds"), 1, 1)
    draft.is_held = told.truth(spec.get("suspend"), ("spec", "suspend"))
    return finish(draft, Dialect.BATCH_JOB, told, tree, source)
