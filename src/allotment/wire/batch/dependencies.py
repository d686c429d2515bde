"""What a job of a batch system waits for, into ours."""

import re

from allotment.model.ids import JobId
from allotment.model.spec import Dependency, EndKind
from allotment.wire.amiss import Amiss, not_a

ENDS = {"afterok": EndKind.SUCCESS, "afterany": EndKind.ANY}
CANNOT = {
    "after": "waits for the start of a job, and only ends can be waited for",
    "afternotok": "waits for a failure, which a job cannot do here",
    "aftercorr": "waits for the same index of another array, which a job cannot do here",
    "afterburstbuffer": "waits for a burst buffer, and there are none here",
    "singleton": "waits for all jobs of its name, which a job cannot do here",
    "expand": "makes another job larger, which no job can here",
}
JOB = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,9}))?")
HINT = "write afterok:12 or afterany:12:13; or depend on an end: afterany"


def read_dependencies(value: str) -> tuple[Dependency, ...]:
    """Read `afterok:12:13,afterany:14`; with `?` in place of `,` one is enough."""
    either = "?" in value
    if either and "," in value:
        raise Amiss("has both `,` and `?`, and only one of them may be used", HINT)
    parts = value.split("?" if either else ",")
    return tuple(need for part in parts if part for need in _one_kind(part, any_of=int(either)))


def _one_kind(part: str, any_of: int) -> list[Dependency]:
    kind, colon, jobs = part.partition(":")
    if JOB.fullmatch(kind) and not colon:
        kind, jobs = "afterany", kind
    if kind in CANNOT:
        raise Amiss(f"{kind} {CANNOT[kind]}", HINT)
    if kind not in ENDS or not jobs:
        raise not_a("a dependency", part, HINT)
    return [_on(job, ENDS[kind], any_of) for job in jobs.split(":")]


def _on(job: str, end: EndKind, any_of: int) -> Dependency:
    found = JOB.fullmatch(job)
    if found is None or not int(found[1]):
        raise not_a("the number of a job", job, "`allot ps` lists them")
    if found[2] is not None:
        return Dependency(JobId(0), end, any_of, f"{found[1]}[{found[2]}]")
    return Dependency(JobId(int(found[1])), end, any_of, str(int(found[1])))
