"""Finished jobs that left memory, on disk or still on their way there.

A job leaves the state the moment its `JobArchived` is applied; its row is readable only
after the commit. Whoever looks in between must find it too: else a finished job is not
there for some milliseconds, and its idempotency key would make a second one.
"""

from collections.abc import Mapping
from heapq import merge
from itertools import islice

from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.service.ports import ArchivedJob, JobFilter, Store


class Archive:
    """What the store keeps of finished jobs, and what the committer is about to give it.

    The jobs on their way are looked at first: they leave `leaving` after their commit, so
    a job can be found in both places but never in none.
    """

    def __init__(self, store: Store, leaving: Mapping[JobId, ArchivedJob]) -> None:
        self._store = store
        self._leaving = leaving

    def job(self, job: JobId) -> ArchivedJob | None:
        """Return one archived job; None when it is not in the archive."""
        return self._leaving.get(job) or self._store.archived(job)

    def by_key(self, user: str, key: str) -> ArchivedJob | None:
        """Return the archived job that an idempotency key of this user made; None if none."""
        for job in tuple(self._leaving.values()):
            if key and (job.user, job.key) == (user, key):
                return job
        return self._store.archived_by_key(user, key)

    def page(self, which: JobFilter, limit: int) -> list[ArchivedJob]:
        """Return the newest jobs that match, at most `limit`. May be called in any thread."""
        going = [job for job in tuple(self._leaving.values()) if which.matches(job)]
        going.sort(key=lambda job: -job.id)
        out = {job.id for job in going}
        kept = [job for job in self._store.archived_page(which, limit) if job.id not in out]
        return list(islice(merge(going, kept, key=lambda job: -job.id), limit))

    def states(self, first: JobId, last: JobId) -> dict[JobId, JobState]:
        """Return how the archived jobs ended whose ids are in a range."""
        found = dict(self._store.archived_states(first, last))
        going = tuple(self._leaving.values())
        return found | {job.id: job.state for job in going if first <= job.id <= last}
