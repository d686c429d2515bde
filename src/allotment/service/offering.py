"""Work that others made on an engine: each gang of it is a job, as long as it is there.

The engine finds it, and the core places it like every other job. It was made elsewhere, so it
is neither made nor ended here: a job whose work is gone before it has a place is cancelled.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec
import structlog

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.events import Outcome
from allotment.model.ids import Actor, JobId, TaskKey
from allotment.model.lifecycle import JobState, ended_how
from allotment.model.spec import JobSpec, Offered
from allotment.service.finding import Finding
from allotment.service.in_turns import in_turns
from allotment.service.offer_pace import Pace
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Backend, Offer, Offers
from allotment.service.why import why

log = structlog.get_logger("allot.service")

LOOK_EVERY_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
MOST_REFUSED = 10_000
"""Refused offers of one owner that are kept, to be tried again."""
RUNS = "runs"
ENDED_THERE = "pod_ended"
"""The diagnosis of what its node refused or ended."""
UNSCHEDULABLE = "unschedulable"
"""The reason of what more nodes would help: autoscalers look for just this word."""
MOST_AGAIN = 128
"""Of them that are tried together: owners take turns."""


class _Refused(msgspec.Struct, frozen=True):
    """An offer that is no job yet, and when it is tried again."""

    offer: Offer
    at: float
    pause_s: float


class Offering:
    """Makes jobs of offers, and says on them why they wait."""

    def __init__(
        self,
        pipeline: Pipeline,
        backend: Backend,
        finding: Finding,
        would_nodes_help: Callable[[JobId], bool],
    ) -> None:
        self._pipeline, self._finding = pipeline, finding
        self._would_nodes_help = would_nodes_help
        self._backend = backend if isinstance(backend, Offers) else None
        self._refused: dict[str, _Refused] = {}
        self._refused_of: Counter[Actor] = Counter()
        self._pace = Pace()
        self._jobs: dict[JobId, str] = {}
        """Jobs that are not over, and what was last said of why they wait."""

    def resume(self) -> None:
        """Name to the engines which of the work there is ours, before they start."""
        if self._backend is None:
            return
        tasks: dict[str, dict[TaskKey, Offered]] = {}
        for job in self._pipeline.state.jobs.values():
            if not job.spec.offered:
                continue
            if not job.state.finished:
                self._jobs[job.id] = ""
            mine = tasks.setdefault(job.spec.engine, {})
            mine |= {key: job.spec.offered[key.index] for key in job.task_keys()}
        self._backend.resume(tasks)

    # ── taking ──────────────────────────────────────────────────────────────────────────

    async def follow(self) -> None:
        """Make jobs of the offers that come next."""
        if self._backend is None:
            await asyncio.Event().wait()
            return
        await self._take(
            [(offer, FIRST_PAUSE_S) for offer in await self._backend.next_offers()]
        )

    async def _take(self, offers: Sequence[tuple[Offer, float]]) -> None:
        """Make jobs of offers, all in one group of events."""

        def work() -> None:
            for offer, pause_s in offers:
                try:
                    self._accept(offer)
                except Rejected as no:
                    self._refuse(offer, pause_s, no.code.value, str(no))
                except Exception as error:  # of one offer, and others do not wait for it
                    log.exception("an offer is not understood", name=offer.spec.name)
                    self._refuse(offer, LONGEST_PAUSE_S, "not_understood", repr(error))

        try:
            self._pipeline.committer.refuse_in_trouble()
            await self._pipeline.together(work)
        except Rejected as trouble:
            for offer, pause_s in offers:
                self._refuse(offer, pause_s, trouble.code.value, str(trouble))

    def _accept(self, offer: Offer) -> None:
        """Make a job of an offer, unless it is one. Raises Rejected."""
        known = self._finding.known(offer.owner, offer.key)
        record = self._pipeline.state.jobs.get(known.id) if known is not None else None
        if known is None or (record is not None and _lost_its_place(record)):
            self._check_pace(offer)
            before = self._pipeline.state.next_job
            self._pipeline.apply(c.SubmitJob(offer.spec, offer.key), offer.owner)
            self._jobs[before] = ""
        elif known.state.finished:
            how = f"Job {known.id}, which this pod was, {ended_how(known.state)}."
            self._say(offer.spec, "job_over", f"{how} Delete it, or make it again.")
            self._end(offer.key)

    def _check_pace(self, offer: Offer) -> None:
        """Refuse for a while what its nodes refuse each time. Raises Rejected."""
        now = monotonic()
        if not self._pace.may_take(offer.owner, now):
            raise Rejected(
                Code.UNAVAILABLE,
                f"The last pods of {offer.owner} were refused by their nodes, one after the "
                "other: "
                "the next is tried in a while.",
                "Their ends say why: `allot ps --all`.",
            )
        self._pace.took(offer.owner, now)

    def _note_pace(self, record: JobRecord) -> None:
        ran = any(attempt.started_at for attempt in record.attempts)
        if ran or record.state is JobState.SUCCEEDED:
            self._pace.ran(record.owner)
        elif record.diagnosis is not None and record.diagnosis.code == ENDED_THERE:
            self._pace.refused(record.owner)

    def _refuse(self, offer: Offer, pause_s: float, reason: str, message: str) -> None:
        self._say(offer.spec, reason, message)
        if self._refused_of[offer.owner] < MOST_REFUSED:
            self._forget(offer)
            again = min(2 * pause_s, LONGEST_PAUSE_S)
            self._refused[offer.key] = _Refused(offer, monotonic() + pause_s, again)
            self._refused_of[offer.owner] += 1

    def _forget(self, offer: Offer) -> None:
        if self._refused.pop(offer.key, None) is not None:
            self._refused_of[offer.owner] -= 1

    # ── looking ─────────────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Cancel jobs whose work is gone, say why others wait, and try offers again."""
        if self._backend is None:
            return
        gone: list[JobRecord] = []
        anew: list[tuple[Offer, float]] = []
        for job in list(self._jobs):
            record = self._pipeline.state.jobs.get(job)
            if record is not None and self._waits_on(record):
                del self._jobs[job]
                anew.append((Offer(record.key, record.owner, record.spec), FIRST_PAUSE_S))
            elif record is None or record.state.finished:
                self._over(job, record)
            elif record.state.waiting and self._backend.is_offered(record.key) is False:
                gone.append(record)
            elif record.state.waiting:
                self._explain(record)
            elif record.state is JobState.RUNNING and self._jobs[job] != RUNS:
                self._jobs[job] = RUNS
                self._pace.ran(record.owner)
        if gone and not self._pipeline.committer.trouble:
            await self._pipeline.together(lambda: self._cancel(gone))
        if again := [*anew, *self._due(self._backend)]:
            await self._take(again)

    def _due(self, backend: Offers) -> list[tuple[Offer, float]]:
        """Return the refused offers that are to be tried again."""
        now = monotonic()
        due = in_turns(
            (each for each in self._refused.values() if each.at <= now),
            lambda each: each.offer.owner.user,
        )[:MOST_AGAIN]
        for each in due:
            self._forget(each.offer)
        asked = backend.is_offered
        return [(d.offer, d.pause_s) for d in due if asked(d.offer.key) is not False]

    def _waits_on(self, record: JobRecord) -> bool:
        """Whether a job lost its place before any of its work was put there: that waits on, and
        nobody makes it anew."""
        is_there = self._backend is not None and self._backend.is_offered(record.key) is True
        return is_there and _lost_its_place(record)

    def _cancel(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            self._pipeline.apply(c.CancelJob(job.id), job.owner)

    def _over(self, job: JobId, record: JobRecord | None) -> None:
        """Let the engine know that a job is over; what is left of its work is told so."""
        del self._jobs[job]
        if record is None:
            return
        self._note_pace(record)
        if self._backend is not None and self._backend.is_offered(record.key):
            why_so = f": {record.diagnosis.cause}" if record.diagnosis else "."
            how = f"Job {job} {ended_how(record.state)}{why_so}"
            self._say(record.spec, "job_over", f"{how} Delete it, or make it again.")
        self._end(record.key)

    def _end(self, key: str) -> None:
        if self._backend is not None:
            self._backend.end_offer(key)

    def _explain(self, job: JobRecord) -> None:
        """Publish why a job waits, once that is another reason than before."""
        at = self._pipeline.clock.now()
        backs_off = job.not_before > at
        helps = self._would_nodes_help(job.id)
        now = f"{job.state.value}/{job.waits_for}/{backs_off}/{helps}"
        if self._jobs[job.id] == now:
            return
        if not (job.waits_for or backs_off or job.state is JobState.HELD):
            return
        blocked = why(self._pipeline.state, job, at)
        if blocked is not None:
            self._jobs[job.id] = now
            reason = UNSCHEDULABLE if helps else blocked.reason.value
            self._say(job.spec, reason, f"Job {job.id}: {blocked.message}")

    def _say(self, spec: JobSpec, reason: str, message: str) -> None:
        if self._backend is not None:
            word = "".join(part.capitalize() for part in reason.split("_"))
            self._backend.say(spec.engine, spec.offered, word, message)

    # ── finding ─────────────────────────────────────────────────────────────────────────

    def job_of(self, name: str) -> JobId | None:
        """Return the newest job that has something of that name. O(jobs of others)."""
        found = [job for job in self._jobs if self._is_in(job, name)]
        return max(found, default=None)

    def _is_in(self, job: JobId, name: str) -> bool:
        record = self._pipeline.state.jobs.get(job)
        return record is not None and any(each.name == name for each in record.spec.offered)

    def why_not(self, name: str) -> str:
        """Return why something of that name is no job; '' where nothing is known of it."""
        return self._backend.why_not_offered(name) if self._backend is not None else ""


def _lost_its_place(record: JobRecord) -> bool:
    """Whether a job is over since another needed its place."""
    last = record.attempts[-1] if record.attempts else None
    return record.state.finished and last is not None and last.outcome is Outcome.EVICTED
