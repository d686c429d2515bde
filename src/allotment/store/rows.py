"""Archived jobs ⇄ rows of their table."""

from typing import Any, NamedTuple

from allotment.model.errors import StoreError
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob


class ArchivedRow(NamedTuple):
    """In the order of the columns."""

    id: JobId
    name: str
    tenant: str
    user: str
    state: str
    submitted_at: Instant
    finished_at: Instant
    key: str
    document: bytes


def archived_row(job: ArchivedJob) -> ArchivedRow:
    """Write an archived job as a row."""
    return ArchivedRow(
        job.id,
        job.name,
        job.tenant,
        job.user,
        job.state.value,
        job.submitted_at,
        job.finished_at,
        job.key,
        job.document,
    )


def archived_job(row: Any) -> ArchivedJob:
    """Read a row: a tuple in the order of the columns. Raises StoreError, naming the job."""
    found = ArchivedRow(*row)
    try:
        state = JobState(found.state)
    except ValueError as error:
        raise StoreError(
            f"the archived job {found.id} cannot be read: {error}; a newer Allotment wrote it "
            "(run that one), or it is damaged (restore a backup)"
        ) from error
    return ArchivedJob(
        id=found.id,
        name=found.name,
        tenant=found.tenant,
        user=found.user,
        state=state,
        submitted_at=found.submitted_at,
        finished_at=found.finished_at,
        key=found.key,
        document=found.document,
    )
