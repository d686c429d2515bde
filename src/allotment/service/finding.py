"""Jobs by what people call them, wherever they are: in memory or in the archive.

A reference means one job, or a unit: a job that stands alone, or a whole array.
"""

import re
from collections.abc import Iterable
from typing import Protocol

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import AllotmentError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.tenancy import Visibility
from allotment.service import views as v
from allotment.service.archive import Archive
from allotment.service.ports import ArchivedJob, JobFilter
from allotment.service.references import Reference, read_reference

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}|[a-z0-9-]{1,63}/[A-Za-z0-9._-]{1,300}")


class Foreign(Protocol):
    """What is known of work that others made."""

    def job_of(self, name: str) -> JobId | None:
        """Return the newest job that has something of that name."""
        ...

    def why_not(self, name: str) -> str:
        """Return why something of that name is no job; '' where nothing is known of it."""
        ...


class Member(msgspec.Struct, frozen=True):
    """A job of an array, or one that stands alone, and how it stands."""

    id: JobId
    state: JobState


class Finding:
    """Finds jobs, one by one or as units."""

    def __init__(self, state: State, archive: Archive) -> None:
        self._state = state
        self._archive = archive
        self.offered: Foreign | None = None

    # ── one job ─────────────────────────────────────────────────────────────────────────

    @property
    def visibility(self) -> Visibility:
        """Return what others than its owner may see of a job."""
        return self._state.config.visibility

    def resolve(self, ref: str, actor: Actor) -> JobId:
        """Return the id of the one job that a reference means. Raises Rejected."""
        reference = read_reference(ref)
        if reference.is_part:
            return self._only(ref, self._part(reference, actor))
        if (by_number := self._numbered(ref)) is not None:
            return by_number
        if ref == "last":
            return self._last(actor)
        named = [job.id for job in self._state.jobs.values() if job.spec.name == ref]
        if named:
            return max(named)
        unit = self._called(ref)
        self._only(ref, members := self.members(unit))
        return members[0].id

    def _only(self, ref: str, found: list[Member]) -> JobId:
        if len(found) == 1:
            return found[0].id
        first = self._first_index(found[0].id)
        raise Rejected(
            Code.AMBIGUOUS_JOB,
            f"{ref} means {len(found)} jobs of array {self._array_of(found[0].id)}.",
            f"Name one: {self._array_of(found[0].id)}[{first}].",
        )

    def _first_index(self, job: JobId) -> int:
        array = self.record(job).spec.array
        return array.index if array else 0

    def _array_of(self, job: JobId) -> JobId:
        array = self.record(job).spec.array
        return array.parent if array else job

    def _numbered(self, ref: str) -> JobId | None:
        if ref.isdecimal() and len(ref) < 19:
            job_id = JobId(int(ref))
            if job_id in self._state.jobs or self._archive.job(job_id) is not None:
                return job_id
        return None

    # ── units ───────────────────────────────────────────────────────────────────────────

    def unit(self, ref: str, actor: Actor) -> list[Member]:
        """Return all jobs that a reference means: one job, a whole array, or a part of it.

        Raises Rejected. `last` and the name of an array mean all of it, and so does the id of
        its first job, which is the array's own.
        """
        reference = read_reference(ref)
        if reference.is_part:
            return self._part(reference, actor)
        return self.members(self._unit(ref, actor))

    def for_dependency(self, ref: str, actor: Actor) -> list[Member]:
        """Return what a job is to wait for: by id, or the caller's newest job of that name.

        Raises Rejected. A name is meant whole, and never that of another user's job.
        """
        reference = read_reference(ref)
        base = reference.base
        if base == "last" or base.isdecimal():
            return self.unit(ref, actor)
        unit = self._own_newest(base, actor)
        whole = msgspec.structs.replace(reference, base=str(unit))
        return self._part(whole, actor) if reference.is_part else self.members(unit)

    def _own_newest(self, name: str, actor: Actor) -> JobId:
        live = (job for job in self._state.jobs.values() if job.owner.user == actor.user)
        named = [job for job in live if name in (job.spec.name, job.spec.family)]
        user = actor.user
        for which in (
            JobFilter(user=user, name=name),
            JobFilter(user=user, beginning=f"{name}."),
        ):
            old = [_unpack(job) for job in self._archive.page(which, 1)]
            named += [job for job in old if name in (job.spec.name, job.spec.family)]
        if not named:
            raise Rejected(
                Code.BAD_DEPENDENCY,
                f"It is to start after {name}, and you have no job of that name.",
                "Submit that one first, or give a number: `allot ps --mine`.",
            )
        newest = max(named, key=lambda job: job.id)
        return newest.id if newest.spec.name == name else _unit_of(newest)

    def _unit(self, ref: str, actor: Actor) -> JobId:
        """Find the job, or the first of the array, that is called so."""
        if (by_number := self._numbered(ref)) is not None:
            return by_number
        return self._array_of(self._last(actor)) if ref == "last" else self._called(ref)

    def _called(self, ref: str) -> JobId:
        """Find a unit by its name, or the only one whose name or id begins so."""
        if not NAME.fullmatch(ref):
            raise Rejected(
                Code.NO_SUCH_JOB,
                f"{ref[:60]!r} cannot be the name of a job.",
                "See `allot ps`.",
            )
        jobs = self._state.jobs.values()
        named = [job for job in jobs if ref in (job.spec.name, job.spec.family)]
        if named:
            newest = max(named, key=lambda job: job.id)
            return newest.id if newest.spec.name == ref else _unit_of(newest)
        if "/" in ref and self.offered is not None:
            return self._of_others(ref, self.offered)
        starting = {
            _unit_of(job): job.spec.family
            for job in jobs
            if job.spec.name.startswith(ref) or str(_unit_of(job)).startswith(ref)
        }
        if len(starting) > 1:
            some = ", ".join(f"{job} ({name})" for job, name in list(starting.items())[:6])
            raise Rejected(
                Code.AMBIGUOUS_JOB,
                f"Several jobs begin with {ref}: {some}.",
                "Write more of it.",
            )
        return next(iter(starting), None) or self._archived(ref)

    def _of_others(self, ref: str, offered: Foreign) -> JobId:
        """Find the job of something that others made, as its engine calls that."""
        if (job := offered.job_of(ref)) is not None:
            return job
        if why := offered.why_not(ref):
            raise Rejected(Code.NO_SUCH_JOB, f"{ref} is not a job yet: {why}.")
        return self._archived(ref)

    def _archived(self, ref: str) -> JobId:
        for which in (JobFilter(name=ref), JobFilter(beginning=f"{ref}.")):
            for old in self._archive.page(which, 1):
                job = _unpack(old)
                if ref in (job.spec.name, job.spec.family):
                    return job.id if job.spec.name == ref else _unit_of(job)
        raise Rejected(
            Code.NO_SUCH_JOB,
            f"There is no job {ref}.",
            "See `allot ps --all` for all there are.",
        )

    def members(self, unit: JobId) -> list[Member]:
        """Return the jobs of an array by the id of its first; or the job itself."""
        array = self.record(unit).spec.array
        if array is None or array.parent != unit:
            return [Member(unit, self.record(unit).state)]
        last = JobId(unit + array.jobs - 1)
        ids = [JobId(job) for job in range(unit, last + 1)]
        live = self._state.jobs
        states = {job: live[job].state for job in ids if job in live}
        if len(states) < len(ids):
            states = self._archive.states(unit, last) | states
        return [Member(job, states[job]) for job in ids if job in states]

    def _part(self, reference: Reference, actor: Actor) -> list[Member]:
        unit = self._unit(reference.base, actor)
        array = self.record(unit).spec.array
        if array is None or array.parent != unit:
            raise _no_array(unit, array.parent if array else None, array.index if array else 0)
        found = [
            member
            for member in self.members(unit)
            if reference.has(
                self._index(member.id, unit, sparse=bool(array.members)), member.state
            )
        ]
        if not found:
            what = ", ".join(
                [
                    *(f"{a}-{b}" if b > a else str(a) for a, b in reference.ranges),
                    *reference.states,
                ]
            )
            raise Rejected(
                Code.NO_SUCH_JOB,
                f"Array {unit} has no job that is {what}.",
                f"It has {array.jobs} jobs: `allot ps {unit}`.",
            )
        return found

    def _index(self, job: JobId, unit: JobId, *, sparse: bool) -> int:
        return self._first_index(job) if sparse else job - unit

    def _last(self, actor: Actor) -> JobId:
        mine = [job.id for job in self._state.jobs.values() if job.owner.user == actor.user]
        if mine:
            return max(mine)
        old = self._archive.page(JobFilter(user=actor.user), 1)
        if old:
            return old[0].id
        raise Rejected(
            Code.NO_SUCH_JOB,
            f"User {actor.user} has submitted no job yet.",
            "See `allot ps` for those of others.",
        )

    # ── their records ───────────────────────────────────────────────────────────────────

    def record(self, job: JobId) -> JobRecord:
        """Return a job's record, live or archived. Raises Rejected."""
        live = self._state.jobs.get(job)
        if live is not None:
            return live
        old = self._archive.job(job)
        if old is None:
            raise Rejected(Code.NO_SUCH_JOB, f"There is no job {job}.", "See `allot ps --all`.")
        return _unpack(old)

    def live(self, job: JobId) -> JobRecord:
        """Return the record of a job that has not left memory. Raises Rejected."""
        live = self._state.jobs.get(job)
        if live is None:
            self.record(job)
            raise Rejected(
                Code.WRONG_STATE, f"Job {job} finished long ago.", f"See `allot show {job}`."
            )
        return live

    def known(self, actor: Actor, key: str) -> v.Submitted | None:
        """Return the job that an idempotency key of this user made before."""
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

    def old(self, which: JobFilter, limit: int) -> Iterable[JobRecord]:
        """Return archived jobs, newest first."""
        return map(_unpack, self._archive.page(which, limit))


def _unit_of(job: JobRecord) -> JobId:
    return job.spec.array.parent if job.spec.array else job.id


def _array(job: JobRecord) -> tuple[JobId, ...]:
    size = job.spec.array.jobs if job.spec.array else 1
    return tuple(JobId(job.id + index) for index in range(size))


def _no_array(job: JobId, parent: JobId | None, index: int) -> Rejected:
    if parent is None:
        return Rejected(Code.NO_SUCH_JOB, f"Job {job} is not an array.", f"Write just {job}.")
    return Rejected(
        Code.NO_SUCH_JOB,
        f"Job {job} is number {index} of array {parent}, not an array.",
        f"Write {parent}[{index}].",
    )


def _unpack(old: ArchivedJob) -> JobRecord:
    try:
        return msgspec.msgpack.decode(old.document, type=JobRecord)
    except msgspec.DecodeError as error:
        raise AllotmentError(f"the archive of job {old.id} cannot be read: {error}") from error
