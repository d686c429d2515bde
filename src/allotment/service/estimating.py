"""Start estimates: the simulator is asked through its port, and its answer put in words."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from allotment.engine.decide import decide
from allotment.engine.foresee_waiting import keeps_out
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.engine.sweeps import awaits_proposal
from allotment.explain.caps import alone_too_large
from allotment.model import events as e
from allotment.model.commands import SubmitJob
from allotment.model.errors import Code, Rejected
from allotment.model.forecast import Answer, Counted, Ground, Question, RunOutcome
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.ledger import Slot
from allotment.model.lifecycle import JobState, ended_how
from allotment.model.quantity import DAY, MINUTE, Instant, Millis, show_millis
from allotment.model.reasons import Blocked, Reason, StopCause
from allotment.service.archive import Archive
from allotment.service.estimate_view import Outlook, Place, StartEstimate
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Forecast, JobFilter
from allotment.service.why import after_others, waits_for_nodes, why

HORIZON_MS = Millis(30 * DAY)
PATIENCE_MS = Millis(5_000)
"""Real time for each of three runs; what takes longer is told as far as it came."""
MOST_PAST = 2_000
"""Finished jobs of the archive that are looked at, the newest."""
MOST_ALIKE = 50
"""Those of the job's own user and name, however old."""
NOTED_EVERY_MS = MINUTE
"""An estimate of the same job within this is not noted again."""

NOT_SEEN = f"It does not start within {show_millis(HORIZON_MS)}."

NOTHING_TO_COME = "Nothing that is known of the future lets it start."
TO_BE_TOLD = " A start can be estimated if jobs have a max_run_time."
MOST_NAMED = 5
"""Jobs that a note lists."""

ASSUMPTIONS = (
    "Nobody submits, cancels or changes anything from now on.",
    "Nodes and devices stay as they are, and no job fails.",
    "Launching takes no time.",
)


RESERVED = "good: its place is reserved, and the jobs in it were told to leave"


class Estimating:
    """The use cases around `allot eta` and `allot submit --dry-run`."""

    def __init__(self, pipeline: Pipeline, archive: Archive, forecast: Forecast | None) -> None:
        self._pipeline = pipeline
        self._archive = archive
        self._forecast = forecast
        self._noted: dict[JobId, Instant] = {}

    @property
    def _state(self) -> State:
        return self._pipeline.state

    async def start_of(self, record: JobRecord) -> StartEstimate:
        """Return when a job starts. Raises Rejected."""
        now = self._pipeline.clock.now()
        if not record.state.finished and awaits_proposal(self._state, record):
            return StartEstimate(
                record.id, record.spec.name, Outlook.UNKNOWN, now,
                note="Its parameters are proposed when its turn comes.",
            )  # fmt: skip
        known = _without_running(record, now)
        if known is not None:
            return known
        found = await self._ask(
            now,
            record.spec.name,
            record.owner.user,
            lambda q: msgspec.structs.replace(q, job=record.id),
        )
        estimate = in_words(found, self._state, now, record, record.spec.name)
        self._note(estimate)
        told = self._state.foretelling.words(record)
        note = " ".join(part for part in (estimate.note, told) if part)
        return msgspec.structs.replace(estimate, note=note)

    async def dry_run(self, command: SubmitJob, actor: Actor) -> StartEstimate:
        """Return whether, where and when a job would start if it were submitted now.

        Of an array, its first job. Nothing is submitted. Raises Rejected as a submission does.
        """
        now = self._pipeline.clock.now()
        self._pipeline.refuse_unable(command)
        first = next(iter(decide(self._state, command, actor, now)))
        assert isinstance(first, e.JobSubmitted)
        if command.held:
            return StartEstimate(
                None, command.spec.name, Outlook.NEVER, now,
                note="It would be held: it starts some time after it is released.",
                warnings=first.warnings,
            )  # fmt: skip
        if command.sweep is not None and command.sweep.is_study:
            return StartEstimate(
                None, command.spec.name, Outlook.UNKNOWN, now,
                note="Each trial enters its queue when its parameters are proposed.",
                warnings=first.warnings,
            )  # fmt: skip
        found = await self._ask(
            now, command.spec.name, actor.user,
            lambda q: msgspec.structs.replace(q, submit=command, actor=actor),
        )  # fmt: skip
        if found.refusal:
            raise Rejected(Code.CONFLICT, found.refusal)
        after = after_others(self._state, first.spec)
        if after is None and found.expected.starts_at is None:
            after = waits_for_nodes(self._state, first.spec, found.expected.blocked)
        estimate = in_words(found, self._state, now, None, command.spec.name, after)
        return msgspec.structs.replace(estimate, warnings=first.warnings)

    async def _ask(
        self, now: Instant, name: str, user: str, about: Callable[[Question], Question]
    ) -> Answer:
        if self._forecast is None:
            raise Rejected(Code.NOT_SUPPORTED, "This service has no simulator to ask.")
        image = msgspec.msgpack.encode(self._state.image())
        past = await asyncio.to_thread(self._past, user, name)
        question = Question(now, image, past, HORIZON_MS, PATIENCE_MS)
        return await self._forecast.starts(about(question))

    def _past(self, user: str, name: str) -> tuple[bytes, ...]:
        """Read finished jobs: those alike, however old, then the newest of all."""
        page = self._archive.page
        alike = page(JobFilter(user=user, name=name), MOST_ALIKE)
        newest = page(JobFilter(), MOST_PAST)
        found = {job.id: job.document for job in (*alike, *newest)}
        return tuple(found.values())

    def _note(self, estimate: StartEstimate) -> None:
        """Keep in the log what was said, to be compared with what comes."""
        job, now = estimate.job, Instant(estimate.asked_at)
        if job is None or estimate.outlook not in (Outlook.NOW, Outlook.LATER):
            return
        record = self._state.jobs.get(job)
        if record is None or record.attempt is not None or record.state.finished:
            return  # it started or ended while we thought
        for old in [each for each, at in self._noted.items() if now - at >= NOTED_EVERY_MS]:
            del self._noted[old]
        if job in self._noted:
            return
        self._noted[job] = now
        times = (estimate.earliest, estimate.expected, estimate.latest)
        told = [None if at is None else Instant(at) for at in times]
        event = e.StartEstimated(job, *told)
        self._pipeline.engine.emit(event, SYSTEM, self._pipeline.clock.now())
        self._pipeline.flush()


def _without_running(job: JobRecord, now: Instant) -> StartEstimate | None:
    """Answer what needs no simulation; None where it does."""

    def said(outlook: Outlook, note: str, at: int | None = None) -> StartEstimate:
        return StartEstimate(job.id, job.spec.name, outlook, now, at, at, at, note=note)

    attempt = job.attempt
    if job.state.finished:
        started = next((each.placed_at for each in job.attempts), None)
        outlook = Outlook.STARTED if started else Outlook.NEVER
        return said(outlook, f"It is over: it {ended_how(job.state)}.", started)
    if job.state is JobState.HELD:
        return said(Outlook.NEVER, f"It is held. To release it: allot release {job.id}.")
    if attempt is None:
        return None
    if job.state is JobState.SUSPENDED:
        if attempt.wants_resume:
            return None
        return said(Outlook.NEVER, f"It is suspended. To continue it: allot resume {job.id}.")
    if job.state is JobState.STOPPING:
        if attempt.stop is not None and attempt.stop.cause is StopCause.EVICTED:
            return None
        return said(Outlook.NEVER, "It is being stopped.")
    return said(Outlook.STARTED, f"It is {job.state.value}.", attempt.placed_at)


# ── words ───────────────────────────────────────────────────────────────────────────────


def in_words(
    found: Answer,
    state: State,
    now: Instant,
    job: JobRecord | None,
    name: str,
    after: Blocked | None = None,
) -> StartEstimate:
    """Return three runs as a range, in order: with shorter jobs a start may be later.

    Of a job that was not submitted, `after` says for what it would wait before its turn.
    """
    courses = sorted(
        (found.optimistic, found.expected, found.pessimistic),
        key=lambda course: (course.starts_at is None, course.starts_at),
    )
    earliest, expected, latest = (course.starts_at for course in courses)
    middle = courses[1]
    run = found.expected if found.expected.starts_at is not None else middle
    blocked = after or middle.blocked
    if job is not None and expected is None:
        blocked = why(state, job, now) or blocked
        blocked = waits_for_nodes(state, job.spec, blocked) or blocked
    never = _never(state, job, blocked) if earliest is None else ""
    unseen = expected is None and not never
    reserved = job is not None and job.id in state.cluster.reserved and latest is not None
    basis = () if never or reserved else found.basis
    outlook = Outlook.NEVER if never else _outlook(found, expected, latest, now)
    return StartEstimate(
        job=job.id if job is not None else None,
        name=name,
        outlook=outlook,
        asked_at=now,
        earliest=earliest,
        expected=expected,
        latest=latest,
        not_before=_seen_until(middle) if unseen else None,
        endless=middle.endless if unseen else (),
        borrowed=run.borrowed if expected is not None else (),
        places=_places(state, run.slots) if expected is not None else (),
        entitlement=run.entitlement if expected is not None else None,
        basis=basis,
        confidence=RESERVED if reserved else _confidence(basis, outlook),
        note=never
        if never and not found.expected.ended
        else _note_on(found, middle, now, blocked, after),
        assumptions=() if outlook is Outlook.NOW else ASSUMPTIONS,
    )


def _never(state: State, job: JobRecord | None, blocked: Blocked | None) -> str:
    """Explain where waiting alone never helps: a user has to change something; else ''."""
    if blocked is not None and _for_good(state, job, blocked):
        return _reason_words(blocked)
    kept = keeps_out(state, job.id) if job is not None and job.state.waiting else ""
    if not kept:
        return ""
    hint = blocked.hint if blocked is not None else ""
    return f"It cannot start as the configuration is: {kept}. {hint}".strip()


def _seen_until(course: RunOutcome) -> Instant | None:
    """Return up to when a run that saw no start knows what happens; None where it does not."""
    unknown = course.ended or course.stuck or course.endless
    return None if unknown else course.until


def _for_good(state: State, job: JobRecord | None, blocked: Blocked) -> bool:
    """Whether the reason itself says that."""
    if blocked.reason in (Reason.QUEUE_STOPPED, Reason.NEVER_FITS_NOW):
        return True
    if blocked.reason not in (Reason.USER_CAP, Reason.QUEUE_LIMIT) or job is None:
        return False
    return alone_too_large(state.cluster, state.cluster.shape_of(job.id)) is not None


def _outlook(
    found: Answer, expected: Instant | None, latest: Instant | None, now: Instant
) -> Outlook:
    if latest is not None and latest <= now:
        return Outlook.NOW
    if expected is not None:
        return Outlook.LATER
    return Outlook.NEVER if found.expected.ended else Outlook.UNKNOWN


def _places(state: State, slots: Sequence[Slot]) -> tuple[Place, ...]:
    devices: dict[str, list[int]] = {}
    for slot in slots:
        node = state.cluster.nodes.get(slot.node)
        devices.setdefault(node.name if node else f"#{slot.node}", []).extend(slot.devices)
    return tuple(Place(node, tuple(sorted(set(held)))) for node, held in devices.items())


def _confidence(basis: Sequence[Counted], outlook: Outlook) -> str:
    """Return how much the range is worth, by what is known of the jobs in the way."""
    if outlook is Outlook.NOW:
        return "sure, if nothing changes"
    jobs = {each.ground: each.jobs for each in basis}
    total = sum(jobs.values())
    if not total:
        return "sure, if nothing changes"
    if jobs.get(Ground.UNKNOWN):
        return f"weak: nothing is known of how long {jobs[Ground.UNKNOWN]} of {total} jobs run"
    if jobs.get(Ground.LIMIT) == total:
        return "an upper bound: only time limits are known"
    if jobs.get(Ground.SAME_NAME, 0) * 2 >= total:
        return "fair: most run times are those of earlier jobs of the same user and name"
    return "rough: most run times are those of other jobs of the tenant, or time limits"


def _note_on(
    found: Answer,
    middle: RunOutcome,
    now: Instant,
    blocked: Blocked | None,
    after: Blocked | None,
) -> str:
    if found.expected.ended:
        return f"It would end without having started: {found.expected.ended}"
    if middle.starts_at is not None:
        return after.message if after is not None else ""
    if middle.gave_up:
        ahead = show_millis(max(0, middle.until - now))
        return f"Too much happens before it starts: the simulator gave up {ahead} ahead."
    reason = _reason_words(blocked) if blocked is not None else ""
    if middle.endless:
        return f"{_endless_words(middle.endless)} {reason}".strip() + TO_BE_TOLD
    return f"{NOTHING_TO_COME if middle.stuck else NOT_SEEN} {reason}".strip()


def _endless_words(jobs: Sequence[JobId]) -> str:
    """Return which jobs of unknown end are in the way."""
    named = ", ".join(str(job) for job in jobs[:MOST_NAMED])
    if len(jobs) == 1:
        return (
            f"Job {named} is in its way, and its end is unknown: it has no max_run_time, and "
            "no job like it has ended."
        )
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    return (
        f"Jobs {named}{more} are in its way, and their ends are unknown: they have no "
        "max_run_time, and no jobs like them have ended."
    )


def _reason_words(blocked: Blocked) -> str:
    return f"{blocked.message} {blocked.hint}".strip()
