"""Questions that the whole event log answers, or the state weighed as a whole."""

import asyncio
from collections.abc import Callable

import msgspec

from allotment.engine.state import State
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant, WallTime
from allotment.model.spec import Dependency
from allotment.service.archive import Archive
from allotment.service.budget_read import budgets_now
from allotment.service.committer import Committer
from allotment.service.estimate_view import Accuracy
from allotment.service.fairness import ask, weigh
from allotment.service.fairness_view import FairnessReport
from allotment.service.finding import Finding
from allotment.service.history import Historian
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.ports import Store
from allotment.service.statistics_view import Statistics
from allotment.service.usage import by_of
from allotment.service.usage_view import UsageReport
from allotment.service.wait_view import WaitHistory, waited_for
from allotment.service.why import why


class Reports:
    """Makes them, each beside the work of the service."""

    def __init__(
        self,
        state: State,
        store: Store,
        committer: Committer,
        finding: Finding,
        archive: Archive,
        now: Callable[[], Instant],
    ) -> None:
        self._state = state
        self._committer = committer
        self._finding = finding
        self._archive = archive
        self._now = now
        self._historian = Historian(store)
        self._weighing = asyncio.Lock()

    async def waits(self, job: JobId) -> WaitHistory:
        """Return for what a job waited so far, live or archived. Raises Rejected."""
        record, now = self._finding.record(job), self._now()
        if not self._committer.trouble:  # Otherwise what is on disk has to do.
            await self._committer.wait(self._state.seq)
        found = tuple(await self._historian.stretches(job, self._end_of, now))
        sums, live = waited_for(found), self._state.jobs.get(job)
        return WaitHistory(
            job=job,
            name=record.spec.name,
            state=record.state,
            why=why(self._state, live, now) if live else None,
            waited_ms=sum(sums.values()),
            waited_for=sums,
            stretches=found,
        )

    def _end_of(self, need: Dependency) -> Instant | None:
        """Return when a job was over that another waits for; None while it is not.

        Of several of which one is enough, only when it ended as is needed.
        """
        job = self._state.jobs.get(need.job) or self._archive.job(need.job)
        if job is None:
            return Instant(0)
        wrong = need.any_of and not need.met_by(job.state is JobState.SUCCEEDED)
        return job.finished_at if job.state.finished and not wrong else None

    async def accuracy(self, since: int) -> Accuracy:
        """Return how good the start estimates were that were given since an instant."""
        await self._committer.wait(self._state.seq)
        return await self._historian.accuracy(self._of_date(since))

    async def statistics(self, since: int, until: int | None = None) -> Statistics:
        """Sum up a stretch of the history, up to now when `until` is None. Raises Rejected."""
        next_job, last = await self._on_disk(until)
        return await self._historian.statistics(self._of_date(since), last, next_job)

    async def usage(
        self, since: int, until: int | None = None, by: str = "tenant"
    ) -> UsageReport:
        """Sum up what was held in a stretch, up to now when `until` is None.

        `by` names what a row is about, separated by commas. Raises Rejected.
        """
        rows = by_of(by)
        next_job, last = await self._on_disk(until)
        found = await self._historian.usage(self._of_date(since), last, next_job, rows)
        budgets = budgets_now(self._state, self._now())
        return msgspec.structs.replace(found, budgets=budgets)

    async def objectives(self, since: int, until: int | None = None) -> ObjectivesReport:
        """Return whether objectives were met, until now if `until` is None.

        Raises Rejected.
        """
        next_job, last = await self._on_disk(until)
        return await self._historian.objectives(self._of_date(since), last, next_job)

    async def _on_disk(self, until: int | None) -> tuple[JobId, int]:
        """Wait until all that happened so far can be read; return the next id and the end."""
        next_job, newest = self._state.next_job, self._state.seq
        now = self._now()
        # Its own writes are in it: what happened before the question is on disk.
        await self._committer.wait(newest)
        return next_job, now if until is None else min(self._of_date(until), now)

    def _of_date(self, date: int) -> int:
        """Return the engine's time of a date that people wrote; 0 stays the beginning."""
        return max(0, self._state.instant(WallTime(date))) if date else 0

    async def fairness(self) -> FairnessReport:
        """Return what each tenant deserves now, and has."""
        asked = ask(self._state, self._now())
        async with self._weighing:
            return await asyncio.to_thread(weigh, asked)
