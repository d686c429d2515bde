"""Jobs by what people call them, wherever they are: in memory or in the archive."""

import re
from collections.abc import Callable, Sequence

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import AllotmentError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR, Instant
from allotment.service import views as v
from allotment.service.archive import Archive
from allotment.service.ports import ArchivedJob, JobFilter
from allotment.service.queries import job_row


class Finding:
    """Finds jobs, one by one or by the page."""

    def __init__(self, state: State, archive: Archive, now: Callable[[], Instant]) -> None:
        self._state = state
        self._archive = archive
        self._now = now

    def resolve(self, ref: str, actor: Actor) -> JobId:
        """Find the job that an id, `last`, a name or a unique prefix means. Raises Rejected."""
        if ref.isdecimal() and len(ref) < 19:
            job_id = JobId(int(ref))
            if job_id in self._state.jobs or self._archive.job(job_id) is not None:
                return job_id
        if ref == "last":
            return self._last(actor)
        named = [job.id for job in self._state.jobs.values() if job.spec.name == ref]
        if named:
            return max(named)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", ref):
            raise Rejected(Code.NO_SUCH_JOB, f"{ref[:60]!r} cannot be the name of a job.")
        starting = [
            job.id
            for job in self._state.jobs.values()
            if job.spec.name.startswith(ref) or str(job.id).startswith(ref)
        ]
        if len(starting) > 1:
            some = ", ".join(
                f"{job} ({self._state.jobs[job].spec.name})" for job in starting[:6]
            )
            raise Rejected(
                Code.AMBIGUOUS_JOB,
                f"Several jobs begin with {ref}: {some}.",
                "Give more of it.",
            )
        if starting:
            return starting[0]
        old = self._archive.page(JobFilter(name=ref), 1)
        if old:
            return old[0].id
        raise Rejected(
            Code.NO_SUCH_JOB,
            f"There is no job {ref}.",
            "See `allot ps --all` for all there are.",
        )

    def _last(self, actor: Actor) -> JobId:
        mine = [job.id for job in self._state.jobs.values() if job.owner.user == actor.user]
        if mine:
            return max(mine)
        old = self._archive.page(JobFilter(user=actor.user), 1)
        if old:
            return old[0].id
        raise Rejected(Code.NO_SUCH_JOB, f"User {actor.user} has submitted no job yet.")

    def record(self, job: JobId) -> JobRecord:
        """Give a job's record, live or archived. Raises Rejected."""
        live = self._state.jobs.get(job)
        if live is not None:
            return live
        old = self._archive.job(job)
        if old is None:
            raise Rejected(Code.NO_SUCH_JOB, f"There is no job {job}.", "See `allot ps --all`.")
        return _unpack(old)

    def live(self, job: JobId) -> JobRecord:
        """Give the record of a job that has not left memory. Raises Rejected."""
        live = self._state.jobs.get(job)
        if live is None:
            self.record(job)
            raise Rejected(Code.WRONG_STATE, f"Job {job} finished long ago.")
        return live

    def known(self, actor: Actor, key: str) -> v.Submitted | None:
        """Find what an idempotency key of this user made before."""
        job_id = self._state.keys.get((actor.user, key))
        if job_id is not None:
            job = self._state.jobs[job_id]
            ids = _array(job)
            return v.Submitted(
                job.id, ids, job.spec.name, job.state, job.warnings, repeated=True
            )
        old = self._archive.by_key(actor.user, key)
        if old is None:
            return None
        ids = _array(_unpack(old))
        return v.Submitted(old.id, ids, old.name, old.state, repeated=True)

    def page(  # noqa: PLR0913 - one argument a filter, all by name
        self,
        *,
        tenant: str = "",
        user: str = "",
        name: str = "",
        states: Sequence[JobState] = (),
        finished: bool = False,
        limit: int = 100,
        before: JobId | None = None,
    ) -> tuple[list[v.JobRow], JobId | None]:
        """List jobs, newest first: the live ones, with `finished` also the archived."""
        now = self._now()
        rows: list[v.JobRow] = []

        def wanted(job: JobRecord) -> bool:
            return (
                (before is None or job.id < before)
                and (not tenant or job.spec.tenant == tenant)
                and (not user or job.owner.user == user)
                and (not name or job.spec.name.startswith(name))
                and (not states or job.state in states)
                and (finished or not job.state.finished or now - job.finished_at < HOUR)
            )

        for job_id in sorted(self._state.jobs, reverse=True):
            job = self._state.jobs[job_id]
            if wanted(job):
                rows.append(job_row(self._state, job, now, explain=True))
                if len(rows) > limit:
                    break
        if finished:
            # A job that runs for long is older than many that are over and gone.
            which = JobFilter(tenant, user, "", tuple(states), before, name)
            rows += self._old_rows({row.id for row in rows}, which, limit + 1)
            rows.sort(key=lambda row: -row.id)
        more = rows[limit - 1].id if len(rows) > limit else None
        return rows[:limit], more

    def _old_rows(self, seen: set[JobId], which: JobFilter, limit: int) -> list[v.JobRow]:
        return [
            job_row(self._state, _unpack(job), self._now())
            for job in self._archive.page(which, limit)
            if job.id not in seen
        ]


def _array(job: JobRecord) -> tuple[JobId, ...]:
    size = job.spec.array.size if job.spec.array else 1
    return tuple(JobId(job.id + index) for index in range(size))


def _unpack(old: ArchivedJob) -> JobRecord:
    try:
        return msgspec.msgpack.decode(old.document, type=JobRecord)
    except msgspec.DecodeError as error:
        raise AllotmentError(f"the archive of job {old.id} cannot be read: {error}") from error
