"""Jobs by the page, newest first: one row a job, or one an array."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TypeVar

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR, NOTHING, Instant
from allotment.model.spec import ArraySlice
from allotment.service.access import is_own
from allotment.service.archive import Archive
from allotment.service.finding import Finding
from allotment.service.ports import JobFilter
from allotment.service.queries import job_row
from allotment.service.selecting import WILD, fits_of
from allotment.service.selector import Selector
from allotment.service.silences import Silences
from allotment.service.turns import Turns
from allotment.service.views import ArrayPlace, JobRow

T = TypeVar("T")

PIECE = 500
"""Archived jobs read at once."""
MOST_READ = 5_000
"""Archived jobs looked through for one page; the page after it goes on from there."""

FIRST_SHOWN = (
    JobState.RUNNING, JobState.STOPPING, JobState.STARTING, JobState.SUSPENDED,
    JobState.QUEUED, JobState.HELD, JobState.FAILED, JobState.TIMED_OUT,
    JobState.CANCELLED, JobState.SUCCEEDED,
)  # fmt: skip
"""An array is in the first of these states that one of its jobs is in."""


class Which(msgspec.Struct, frozen=True):
    """What of the jobs a page shows."""

    jobs: Selector
    beginning: str = ""
    """How their names begin."""
    finished: bool = False
    """Those too that finished more than an hour ago."""
    as_arrays: bool = False
    limit: int = 100
    before: JobId | None = None


class Listing:
    """Makes pages of jobs."""

    def __init__(
        self,
        state: State,
        finding: Finding,
        archive: Archive,
        now: Callable[[], Instant],
        turns: Turns,
        silences: Silences,
    ) -> None:
        self._turns = turns
        self._silences = silences
        self._state = state
        self._finding = finding
        self._archive = archive
        self._now = now

    async def page(self, which: Which, actor: Actor) -> tuple[list[JobRow], JobId | None]:
        """Return the rows, and before which job the next page begins. Raises Rejected.

        The reason of a waiting job takes a while to find, so rows are made in turns.
        """
        now = self._now()
        if which.jobs.names_jobs:
            return self._named(which, actor, now)
        jobs, read_to = await self._turns.once(
            lambda: self._jobs(which, actor, now), actor.user
        )
        if which.as_arrays:
            units = self._by_unit(jobs)
            rows = await self._made(
                units, lambda unit: self._of_unit(unit, which, actor, now), actor
            )
            rows.sort(key=lambda row: -row.id)
        else:
            most = which.limit + 1
            rows = await self._made(jobs[:most], lambda job: self._row(job, actor, now), actor)
        more = rows[which.limit - 1].id if len(rows) > which.limit else read_to
        return rows[: which.limit], more

    async def _made(
        self, items: Iterable[T], make: Callable[[T], JobRow], actor: Actor
    ) -> list[JobRow]:
        rows: list[JobRow] = []
        async for some in self._turns.over(items, make, actor.user):
            rows += some
        return rows

    def _row(self, job: JobRecord, actor: Actor, now: Instant) -> JobRow:
        live, inside = job.id in self._state.jobs, is_own(actor, job)
        row = job_row(self._state, job, now, explain=live, inside=inside)
        return self._silences.on_row(row)

    def _named(
        self, which: Which, actor: Actor, now: Instant
    ) -> tuple[list[JobRow], JobId | None]:
        fits = fits_of(which.jobs, actor)
        ids = {each.id for ref in which.jobs.refs for each in self._finding.unit(ref, actor)}
        rows: list[JobRow] = []
        for job in sorted(ids, reverse=True):
            if which.before is None or job < which.before:
                record = self._finding.record(job)
                if fits(record):
                    rows.append(self._row(record, actor, now))
            if len(rows) > which.limit:
                return rows[: which.limit], rows[which.limit - 1].id
        return rows, None

    # ── which jobs ──────────────────────────────────────────────────────────────────────

    def _jobs(
        self, which: Which, actor: Actor, now: Instant
    ) -> tuple[list[JobRecord], JobId | None]:
        """Return a page of jobs and one more; and where the search broke off, if it did."""
        everybody = msgspec.structs.replace(which.jobs, all=not which.jobs.mine)
        fits = fits_of(everybody, actor)

        def wanted(job: JobRecord) -> bool:
            unit = job.spec.array.parent if which.as_arrays and job.spec.array else job.id
            return (
                (which.before is None or unit < which.before)
                and job.spec.name.startswith(which.beginning)
                and (which.finished or not job.state.finished or now - job.finished_at < HOUR)
                and fits(job)
            )

        live = reversed(self._state.jobs.values())  # They came in the order of their ids.
        most = which.limit + 1
        found = list(_first(filter(wanted, live), most, which.as_arrays))
        if not which.finished:
            return found, None
        # A job that runs for long is older than many that are over and gone.
        seen = {job.id for job in found}
        old, read_to = self._old(which, actor, most, wanted)
        found += [job for job in old if job.id not in seen]
        found = [job for job in found if read_to is None or job.id >= read_to]
        found.sort(key=lambda job: -job.id)
        return list(_first(found, most, which.as_arrays)), read_to

    def _old(
        self, which: Which, actor: Actor, most: int, wanted: Callable[[JobRecord], bool]
    ) -> tuple[list[JobRecord], JobId | None]:
        """Look through the archive; of an array one job is enough where arrays are shown."""
        found: list[JobRecord] = []
        before, read = which.before, 0
        while len(found) < most and read < MOST_READ:
            asked = self._filter(which, actor, before)
            piece = list(self._finding.old(asked, min(PIECE, most)))
            if not piece:
                return found, None
            read += len(piece)
            for job in piece:
                array = job.spec.array if which.as_arrays else None
                if before is not None and job.id >= before:
                    continue  # Of an array that was shown already.
                before = array.parent if array else job.id
                if wanted(job):
                    found.append(job)
        return found[:most], before if len(found) < most else None

    def _filter(self, which: Which, actor: Actor, before: JobId | None) -> JobFilter:
        jobs = which.jobs
        literal = "".join(takewhile(lambda letter: letter not in WILD, jobs.name))
        return JobFilter(
            jobs.tenant,
            actor.user if jobs.mine else jobs.user,
            "",
            jobs.states,
            before,
            which.beginning or literal,
        )

    # ── arrays ──────────────────────────────────────────────────────────────────────────

    def _by_unit(self, jobs: Iterable[JobRecord]) -> list[list[JobRecord]]:
        units: dict[JobId, list[JobRecord]] = {}
        for job in jobs:
            parent = job.spec.array.parent if job.spec.array else job.id
            units.setdefault(parent, []).append(job)
        return list(units.values())

    def _of_unit(
        self, members: list[JobRecord], which: Which, actor: Actor, now: Instant
    ) -> JobRow:
        """Return the row of an array, or of a job that is in none."""
        if members[0].spec.array:
            return self._unit(members, which, now)
        return self._row(members[0], actor, now)

    def _unit(self, shown: list[JobRecord], which: Which, now: Instant) -> JobRow:
        """Return row of an array: all its jobs, or those in the states that are asked for."""
        some = shown[-1]
        array = some.spec.array
        assert array is not None
        states = self._states(array)
        if which.jobs.states:
            states = {job: how for job, how in states.items() if how in which.jobs.states}
        counts = Counter(states.values())
        gangs = self._state.cluster.gangs
        return msgspec.structs.replace(
            job_row(self._state, some, now),
            id=array.parent,
            name=some.spec.family,
            state=next((each for each in FIRST_SHOWN if counts[each]), some.state),
            total=sum((gangs[job].held() for job in states if job in gangs), NOTHING),
            started_at=0,
            finished_at=0,
            ran_ms=0,
            reason="",
            entitlement=None,
            nodes=(),
            array=ArrayPlace(array.parent, -1, array.jobs),
            counts={state.value: number for state, number in sorted(counts.items())},
        )

    def _states(self, array: ArraySlice) -> dict[JobId, JobState]:
        """Return how each job of an array stands, wherever it is kept."""
        last = JobId(array.parent + array.jobs - 1)
        live = self._state.jobs
        ids = (JobId(job) for job in range(array.parent, last + 1))
        states = {job: live[job].state for job in ids if job in live}
        if len(states) < array.jobs:
            states = self._archive.states(array.parent, last) | states
        return states


def _first(jobs: Iterable[JobRecord], most: int, as_arrays: bool) -> Iterator[JobRecord]:
    """Return the first so many jobs; an array counts once."""
    seen: set[JobId] = set()
    for job in jobs:
        seen.add(job.spec.array.parent if as_arrays and job.spec.array else job.id)
        if len(seen) > most:
            return
        yield job
