"""Jobs whose secrets were left out of the backup that the books were restored from."""

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected
from allotment.model.reasons import Blocked, Reason


def held_for_secrets(job: JobRecord) -> Blocked:
    """Return why a job is held whose secrets were left out of the backup."""
    give = f"{_given(job, 'edit')}, then `allot release {job.id}`."
    return Blocked(Reason.HELD, f"It is held: {_missing(job)}", hint=f"Give it again: {give}")


def check_release(command: c.AnyCommand, job: JobRecord) -> None:
    """Raise Rejected where a job is released whose secrets are missing."""
    if not isinstance(command, c.ReleaseJob) or not job.spec.withheld:
        return
    raise Rejected(
        Code.WRONG_STATE,
        f"Job {job.id} cannot run: {_missing(job)}",
        f"Give it again first: {_given(job, 'edit')}.",
    )


def failed_for_secrets(job: JobRecord) -> Diagnosis:
    """Return why a job is not started again whose secrets are missing."""
    return Diagnosis(
        "secret_withheld",
        f"It cannot run: {_missing(job)}",
        Owner.USER,
        RetryClass.NEVER,
        f"Give it again: {_given(job, 'clone')}.",
    )


def _missing(job: JobRecord) -> str:
    names = ", ".join(job.spec.withheld)
    return f"a backup without secrets was restored, and it needs {names}."


def _given(job: JobRecord, verb: str) -> str:
    given = " ".join(f"--set secrets.{name}=VALUE" for name in job.spec.withheld)
    return f"`allot {verb} {job.id} {given}`"
