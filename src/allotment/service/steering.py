"""Verbs on many jobs: one request, one group of events, one answer."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState, ended_how
from allotment.model.spec import JobSpec
from allotment.service.access import is_admin, may_change
from allotment.service.finding import Finding
from allotment.service.pipeline import Pipeline
from allotment.service.references import read_reference
from allotment.service.selecting import Selecting, by_state, is_single
from allotment.service.selector import (
    FITS,
    MOST_SHOWN,
    Refusal,
    Selector,
    Steered,
    Verb,
    Wish,
    ranges_of,
)
from allotment.service.views import JobView
from allotment.service.withheld import check_release

COMMANDS: dict[Verb, Callable[[JobId], c.AnyCommand]] = {
    Verb.CANCEL: c.CancelJob,
    Verb.HOLD: c.HoldJob,
    Verb.RELEASE: c.ReleaseJob,
    Verb.SUSPEND: c.SuspendJob,
    Verb.RESUME: c.ResumeJob,
}

MOST_NAMED = 5
MOST_REFUSALS = 20

View = Callable[[JobId, Actor], JobView]
Prepare = Callable[[JobSpec, Actor], Awaitable[JobSpec]]


class Steering:
    """Does one thing to all jobs that a selector chooses."""

    def __init__(
        self,
        pipeline: Pipeline,
        finding: Finding,
        selecting: Selecting,
        view: View,
        prepare: Prepare,
    ) -> None:
        self._pipeline = pipeline
        self._finding = finding
        self._selecting = selecting
        self._view = view
        self._prepare = prepare

    async def steer(self, verb: Verb, wish: Wish, actor: Actor) -> Steered:
        """Carry out a verb on many jobs; durable on return.

        Jobs that the verb is not for are left alone and counted. Raises Rejected, and then
        nothing was done.
        """
        chosen = self._selecting.chosen(wish.jobs, actor)
        single = is_single(wish.jobs, chosen)
        fits = fitting(verb, wish.jobs)
        ready = [each.id for each in chosen if single or each.state in fits]
        left = {} if single else by_state(chosen, fits)
        if not ready:
            raise _nothing(verb, left)
        if not single:
            self._may_change_all(ready, actor)
        if wish.only_count:
            return Steered(verb, len(ready), ranges_of(ready), left)
        if verb is Verb.RETRY:
            made = await self._again(ready, actor)
            return Steered(verb, len(ready), ranges_of(ready), left, made=ranges_of(made))
        refused = await self._each(COMMANDS[verb], ready, actor)
        return self._told(verb, actor, ready, left, refused)

    async def _each(
        self, command: Callable[[JobId], c.AnyCommand], jobs: Sequence[JobId], actor: Actor
    ) -> dict[JobId, Rejected]:
        refused: dict[JobId, Rejected] = {}

        def work() -> None:
            for job in jobs:
                try:
                    wish, record = command(job), self._finding.live(job)
                    may_change(actor, record)
                    check_release(wish, record)
                    self._pipeline.apply(wish, actor)
                except Rejected as no:
                    refused[job] = no

        await self._pipeline.together(work)
        return refused

    async def _again(self, jobs: Sequence[JobId], actor: Actor) -> list[JobId]:
        """Submit jobs again as they are. Only their owner may: they run as who submits."""
        records = [self._finding.record(job) for job in jobs]
        for record in records:
            _check_again(record, actor)
        records.sort(
            key=lambda job: (job.spec.array.parent if job.spec.array else job.id, job.id)
        )
        ready: dict[JobSpec, JobSpec] = {}
        for spec in {_prepared_of(record.spec): None for record in records}:
            ready[spec] = await self._prepare(spec, actor)
        specs = tuple(
            _like(record.spec, ready[_prepared_of(record.spec)]) for record in records
        )
        made = await self._pipeline.command(c.SubmitAgain(specs), actor)
        return [each.event.job for each in made if isinstance(each.event, e.JobSubmitted)]

    def _told(
        self,
        verb: Verb,
        actor: Actor,
        ready: Sequence[JobId],
        left: dict[str, int],
        refused: dict[JobId, Rejected],
    ) -> Steered:
        done = [job for job in ready if job not in refused]
        return Steered(
            verb,
            len(done),
            ranges_of(done),
            left,
            tuple(
                Refusal(job, no.code.value, no.message, no.hint)
                for job, no in list(refused.items())[:MOST_REFUSALS]
            ),
            tuple(self._view(job, actor) for job in done) if len(done) <= MOST_SHOWN else (),
        )

    def _may_change_all(self, jobs: Sequence[JobId], actor: Actor) -> None:
        """Raise Rejected where one of many belongs to somebody else."""
        if is_admin(actor):
            return
        owners = [self._finding.record(job).owner for job in jobs]
        others = [owner for owner in owners if owner.uid != actor.uid]
        if others:
            names = sorted({owner.user for owner in others})
            raise Rejected(
                Code.FORBIDDEN,
                f"{len(others)} of these {len(jobs)} jobs belong to others "
                f"({', '.join(names[:MOST_NAMED])}); you are {actor.user}. Nothing was done.",
                "Choose your own with --mine, or ask the administrator.",
            )


def fitting(verb: Verb, selector: Selector) -> frozenset[JobState]:
    """Return the states of jobs that a verb is for.

    Cancelled jobs are retried only if that state was chosen.
    """
    if verb is Verb.RETRY and JobState.CANCELLED in _asked_for(selector):
        return FITS[verb] | {JobState.CANCELLED}
    return FITS[verb]


def _asked_for(selector: Selector) -> set[JobState]:
    return set(selector.states).union(*(read_reference(ref).states for ref in selector.refs))


def _check_again(job: JobRecord, actor: Actor) -> None:
    """Raise Rejected unless a job is over, did not succeed, and is the caller's own."""
    if actor.uid != job.owner.uid:
        raise Rejected(
            Code.FORBIDDEN,
            f"Job {job.id} belongs to {job.owner.user}; again it would run as you, "
            f"{actor.user}.",
            f"Ask its owner, or make it yours: `allot clone {job.id}`.",
        )
    if not job.state.finished or job.state is JobState.SUCCEEDED:
        raise Rejected(
            Code.WRONG_STATE,
            f"Job {job.id} {_stands(job.state)}; only a job that failed, timed out or was "
            "cancelled can be retried.",
            f"To run it once more: `allot clone {job.id}`.",
        )


def _stands(state: JobState) -> str:
    return ended_how(state) if state.finished else f"is {state.value}"


def _prepared_of(spec: JobSpec) -> JobSpec:
    """Leave out what need not be prepared, so that alike elements are prepared once."""
    return msgspec.structs.replace(spec, name="", roles=(), env=(), secrets=(), array=None)


def _like(spec: JobSpec, prepared: JobSpec) -> JobSpec:
    return msgspec.structs.replace(
        prepared,
        name=spec.name,
        roles=spec.roles,
        env=spec.env,
        secrets=spec.secrets,
        array=spec.array,
    )


def _nothing(verb: Verb, left: dict[str, int]) -> Rejected:
    if not left:
        return Rejected(
            Code.NO_SUCH_JOB, "No job fits these options.", "See `allot ps` for a list of jobs."
        )
    states = ", ".join(f"{number} {state}" for state, number in sorted(left.items()))
    return Rejected(
        Code.WRONG_STATE,
        f"None of the chosen jobs is one to {verb}: {states}.",
        f"It is for jobs that are {', '.join(sorted(FITS[verb]))}.",
    )
