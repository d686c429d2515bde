"""For what one job waited, and when: a fold over its own events.

Of each moment that it waited one reason is told, the dominant one. Held, for other jobs,
for the end of a back-off, for gangs that leave its place: these follow from the log, to the
millisecond. Why an eligible job did not start depends on all the others: the service looks
at that now and then and records what it finds (`WaitExplained`). The first finding of a
wait holds for all of it before; where there is none, no reason is given.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from allotment.metrics.fold import FINISHED, Handlers
from allotment.model import events as e
from allotment.model.dependencies import choices
from allotment.model.quantity import SECOND, Instant
from allotment.model.reasons import Reason
from allotment.model.spec import Dependency

MOST = 100
"""Stretches that are told of one job; of more the shortest are merged into the others."""

EndOf = Callable[[Dependency], Instant | None]
"""Says when a job waited for was over; None while it is not."""


class LifePhase(StrEnum):
    """What became of a job for a while."""

    WAITING = "waiting"
    """It had no place."""
    STARTING = "starting"
    BARRIER = "barrier"
    """Some of its tasks were ready and waited for the others."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of time in the life of a job."""

    since: Instant
    ms: int
    phase: LifePhase
    reason: Reason | None
    """For what it waited; None where it did not, or where that was not looked at."""
    attempt: int
    """The newest there was; 0 before the first."""
    cause: str
    """Why it was queued again, if it was: `evicted`, `platform`, `retry`; else empty."""
    merged: int = 0
    """Shorter stretches that were merged into this one."""


class _Span:
    """One phase, with all that says for what it waited."""

    def __init__(self, phase: LifePhase, begin: Instant, attempt: int, cause: str = "") -> None:
        self.phase, self.begin, self.attempt, self.cause = phase, begin, attempt, cause
        self.end: Instant | None = None
        self.not_before = Instant(0)
        self.asked_at: Instant | None = None
        """When a suspended job was told to resume."""
        self.held: list[_Lapse] = []
        self.reserved: list[_Lapse] = []
        self.needs: list[tuple[Instant, tuple[Dependency, ...]]] = []
        """What it depends on, from when."""
        self.notes: list[tuple[Instant, Reason]] = []


class _Lapse(msgspec.Struct):
    """From here to there; to the end of the span while that is not known."""

    begin: Instant
    end: Instant | None = None

    def has(self, at: Instant) -> bool:
        return self.begin <= at and (self.end is None or at < self.end)


class ReasonHistory:
    """The stretches of one job's life. O(its events).

    `end_of` says when the jobs were over that it depends on.
    """

    def __init__(self, end_of: EndOf) -> None:
        self._end_of = end_of
        self._spans: list[_Span] = []
        self._tasks = 1
        self._needs: tuple[Dependency, ...] = ()
        self._over: Instant | None = None
        self._ends: dict[tuple[Dependency, ...], Instant | None] = {}

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.JobHeld: self._held,
            e.JobReleased: self._released,
            e.Reserved: self._reserved,
            e.ReservedPlaceDropped: self._place_dropped,
            e.WaitExplained: self._explained,
            e.JobRequeued: self._requeued,
            e.AttemptPlaced: self._placed,
            e.TaskReady: self._ready,
            e.BarrierOpened: self._opened,
            e.AttemptStarted: self._runs,
            e.AttemptSuspended: self._suspended,
            e.ResumeRequested: self._asked,
            e.AttemptResumed: self._runs,
            e.StopRequested: self._stopping,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def stretches(self, now: Instant) -> list[Stretch]:
        """Return its life up to now, or to its end, in order."""
        last = self._over or now
        found = [
            stretch
            for span in self._spans
            for stretch in self._parts(span, span.end if span.end is not None else last)
        ]
        return tidied(found, over=self._over is not None)

    # ── events ──────────────────────────────────────────────────────────────────────────

    def _begin(self, phase: LifePhase, at: Instant, attempt: int, cause: str = "") -> _Span:
        if self._spans:
            self._spans[-1].end = at
        span = _Span(phase, at, attempt, cause)
        span.needs.append((at, self._needs))
        self._spans.append(span)
        return span

    def _then(self, phase: LifePhase, at: Instant) -> None:
        """Begin another phase of the attempt."""
        self._begin(phase, at, self._spans[-1].attempt if self._spans else 0)

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        self._needs = event.spec.depends_on
        span = self._begin(LifePhase.WAITING, at, 0)
        if event.held:
            span.held.append(_Lapse(at))

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        self._needs = event.spec.depends_on
        if self._spans:
            self._spans[-1].needs.append((at, self._needs))

    def _held(self, at: Instant, event: e.JobHeld) -> None:
        if self._spans:
            self._spans[-1].held.append(_Lapse(at))

    def _released(self, at: Instant, event: e.JobReleased) -> None:
        if self._spans and self._spans[-1].held:
            self._spans[-1].held[-1].end = at

    def _reserved(self, at: Instant, event: e.Reserved) -> None:
        if self._spans:
            self._spans[-1].reserved.append(_Lapse(at))

    def _place_dropped(self, at: Instant, event: e.ReservedPlaceDropped) -> None:
        if self._spans and self._spans[-1].reserved:
            self._spans[-1].reserved[-1].end = at

    def _explained(self, at: Instant, event: e.WaitExplained) -> None:
        if self._spans:
            span = self._spans[-1]
            span.notes.append((max(event.since, span.begin), event.reason))

    def _requeued(self, at: Instant, event: e.JobRequeued) -> None:
        attempt = self._spans[-1].attempt if self._spans else 0
        span = self._begin(LifePhase.WAITING, at, attempt, event.cause)
        span.not_before = event.not_before

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        self._tasks = len(event.slots)
        self._begin(LifePhase.STARTING, at, event.attempt)

    def _ready(self, at: Instant, event: e.TaskReady) -> None:
        if self._tasks > 1 and self._spans and self._spans[-1].phase is LifePhase.STARTING:
            self._then(LifePhase.BARRIER, at)

    def _opened(self, at: Instant, event: e.BarrierOpened) -> None:
        if self._spans and self._spans[-1].phase is LifePhase.BARRIER:
            self._then(LifePhase.STARTING, at)

    def _runs(self, at: Instant, event: e.AttemptEvent) -> None:
        self._then(LifePhase.RUNNING, at)

    def _suspended(self, at: Instant, event: e.AttemptSuspended) -> None:
        self._then(LifePhase.SUSPENDED, at)

    def _asked(self, at: Instant, event: e.ResumeRequested) -> None:
        if self._spans:
            self._spans[-1].asked_at = at

    def _stopping(self, at: Instant, event: e.StopRequested) -> None:
        self._then(LifePhase.STOPPING, at)

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        self._over = at

    # ── reasons ─────────────────────────────────────────────────────────────────────────

    def _parts(self, span: _Span, end: Instant) -> list[Stretch]:
        """Part a phase by what it waited for."""
        is_now = span.end is None and self._over is None
        cuts = sorted(
            at for at in self._cuts(span) if span.begin < at < end or (is_now and at == end)
        )
        found: list[Stretch] = []
        for begin, until in zip([span.begin, *cuts], [*cuts, end], strict=True):
            reason = self._reason(span, begin)
            found.append(
                Stretch(begin, until - begin, span.phase, reason, span.attempt, span.cause)
            )
        return found

    def _cuts(self, span: _Span) -> set[Instant]:
        """Return the moments at which the reason may change."""
        cuts = {span.not_before, *(at for at, _ in span.notes), *(at for at, _ in span.needs)}
        if span.asked_at is not None:
            cuts.add(span.asked_at)
        for lapse in (*span.held, *span.reserved):
            cuts |= {lapse.begin, lapse.end or lapse.begin}
        ends = (self._last_end(needs) for _, needs in span.needs)
        return cuts | {at for at in ends if at is not None}

    def _reason(self, span: _Span, at: Instant) -> Reason | None:
        """Return for what a job waited at a moment, by the order of `Reason`."""
        suspended = span.phase is LifePhase.SUSPENDED
        if suspended and (span.asked_at is None or at < span.asked_at):
            return None
        if not suspended and span.phase is not LifePhase.WAITING:
            return None
        holds = (
            (Reason.HELD, any(lapse.has(at) for lapse in span.held)),
            (Reason.DEPENDENCY, not suspended and self._depends(span, at)),
            (Reason.BACKOFF, at < span.not_before),
            (
                Reason.WAITING_FOR_VICTIMS,
                not suspended and any(lapse.has(at) for lapse in span.reserved),
            ),
        )
        known = next((reason for reason, there in holds if there), None)
        return known or _noted(span, at) or (Reason.RESUMING if suspended else None)

    def _depends(self, span: _Span, at: Instant) -> bool:
        needs = next((needs for since, needs in reversed(span.needs) if since <= at), ())
        end = self._last_end(needs)
        return end is None or at < end

    def _last_end(self, needs: tuple[Dependency, ...]) -> Instant | None:
        """Return when the last of some jobs was over; None while one is not."""
        if needs not in self._ends:
            ends = [_first(map(self._end_of, choice)) for choice in choices(needs)]
            there = [end for end in ends if end is not None]
            whole = len(there) == len(ends)
            self._ends[needs] = max(there, default=Instant(0)) if whole else None
        return self._ends[needs]


def _first(ends: Iterable[Instant | None]) -> Instant | None:
    return min((end for end in ends if end is not None), default=None)


def _noted(span: _Span, at: Instant) -> Reason | None:
    """Return what was found last; before the first finding, that."""
    if not span.notes:
        return None
    before = (reason for since, reason in reversed(span.notes) if since <= at)
    return next(before, span.notes[0][1])


# ── fewer ───────────────────────────────────────────────────────────────────────────────


def tidied(found: list[Stretch], *, over: bool) -> list[Stretch]:
    """Join what is alike, let no reason flicker, and give at most `MOST` stretches.

    The last one is how things are now, however short, unless the job is over.
    """
    now = [] if over else found[-1:]
    found = _alike([each for each in found[: len(found) - len(now)] if each.ms] + now)
    found = _alike(_absorbed(found, _flickers))
    shortest = 2 * SECOND
    while len(found) > MOST:
        found = _alike(_absorbed(found, lambda one, _, least=shortest: one.ms < least))
        shortest *= 2
    return found


def _flickers(one: Stretch, other: Stretch) -> bool:
    """Whether a reason held so shortly that another of the same wait stands for it."""
    same = (one.phase, one.attempt, one.cause) == (other.phase, other.attempt, other.cause)
    return same and one.ms < SECOND


def _alike(found: list[Stretch]) -> list[Stretch]:
    """Join neighbours that tell the same."""
    kept: list[Stretch] = []
    for each in found:
        if kept and _label(kept[-1]) == _label(each):
            kept[-1] = _joined(kept[-1], each, more=each.merged)
        else:
            kept.append(each)
    return kept


def _label(each: Stretch) -> tuple[object, ...]:
    return each.phase, each.reason, each.attempt, each.cause


def _absorbed(found: list[Stretch], small: Callable[[Stretch, Stretch], bool]) -> list[Stretch]:
    """Merge small stretches into the one before, the first into the next; the last stays."""
    kept: list[Stretch] = []
    for at, each in enumerate(found):
        is_last = at == len(found) - 1
        if kept and not is_last and small(each, kept[-1]):
            kept[-1] = _joined(kept[-1], each, more=each.merged + 1)
        elif len(kept) == 1 and small(kept[0], each):
            kept[0] = _joined(each, kept[0], more=kept[0].merged + 1)
        else:
            kept.append(each)
    return kept


def _joined(main: Stretch, other: Stretch, *, more: int) -> Stretch:
    """Return one stretch for two, told as the first of them."""
    return msgspec.structs.replace(
        main,
        since=min(main.since, other.since),
        ms=main.ms + other.ms,
        merged=main.merged + more,
    )
