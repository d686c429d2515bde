"""Archived jobs ⇄ rows of their table."""

from typing import Any, NamedTuple

from allotment.model.errors import StoreError
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob
from allotment.store.chain import archived_digest


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
    digest: int


def archived_row(job: ArchivedJob) -> ArchivedRow:
    """Write an archived job as a row."""
    columns = (
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
    return ArchivedRow(*columns, archived_digest(columns))


def archived_job(row: Any) -> ArchivedJob:
    """Read a row: a tuple in the order of the columns. Raises StoreError, naming the job."""
    found = ArchivedRow(*row)
    if archived_digest(found[:-1]) != found.digest:
        raise StoreError(
            f"the archived job {found.id} is damaged: its checksum does not match; `allot "
            "doctor` says what else is, and a backup has it whole"
        )
    state = archived_state(found.id, found.state)
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


def archived_state(job: int, word: str) -> JobState:
    """Read how an archived job ended. Raises StoreError, naming the job."""
    try:
        return JobState(word)
    except ValueError as error:
        raise StoreError(
            f"the archived job {job} cannot be read: {error}; a newer Allotment wrote it "
            "(run that one), or it is damaged (restore a backup)"
        ) from error
