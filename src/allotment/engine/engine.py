"""The engine: one object that a shell drives.

    command ─┐
    report  ─┼─▶ events ─▶ apply ─▶ effects
    clock   ─┤
    cycle   ─┘

The shell that drives it gives the time and carries away the records, to be made durable before
the effects are carried out.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from allotment.core.commit import refusal
from allotment.core.cycle import proposals
from allotment.core.plan import Decision, Demote, Evict, Pack, Place, Promote, Resume, Unreserve
from allotment.engine.apply import fold
from allotment.engine.clockwork import due
from allotment.engine.decide import date_came, decide
from allotment.engine.gains import GRACE, measured, shrinking
from allotment.engine.health import Watch, suspicions
from allotment.engine.held_content import content_heard, nodes_with_all, where_its_content_is
from allotment.engine.others import others_heard
from allotment.engine.packing import compared, packed, with_partings
from allotment.engine.ports_pool import nobody_else
from allotment.engine.react import REACT
from allotment.engine.report import gang_heard, heard, node_heard, saved, used
from allotment.engine.reservations import due as reservation_due
from allotment.engine.state import State
from allotment.engine.suspending import offered
from allotment.engine.sweeps import trial_heard
from allotment.model import events as e
from allotment.model.commands import AnyCommand
from allotment.model.effects import AnyEffect
from allotment.model.gains import Gain
from allotment.model.health import HealthReport
from allotment.model.ids import SYSTEM, Actor, AttemptNo, JobId, Seq
from allotment.model.ledger import Placement
from allotment.model.port_layout import port_count
from allotment.model.quantity import Instant, earlier
from allotment.model.reasons import StopCause
from allotment.model.reports import (
    AnyReport,
    CheckpointReport,
    ContentReport,
    GangReport,
    NodeReport,
    OfferReport,
    OthersReport,
    PaceReport,
    PairReport,
    TaskReport,
    TrialReport,
    UseReport,
)


class Engine:
    """Drives one state forward. Not thread-safe: one caller at a time."""

    def __init__(self, state: State, port_is_free: Callable[[int], bool] = nobody_else) -> None:
        self.state = state
        self.records: list[e.Record] = []
        """Applied and not yet carried away."""
        self.effects: list[AnyEffect] = []
        self.refusals = 0
        """Decisions the committer sent back: 0 unless a policy or the planner is wrong."""
        self.watch = Watch()
        self._port_is_free = port_is_free
        self._seen: tuple[object, int, int] | None = None
        """The books that were last searched without result, and their state then."""
        self._refused: tuple[object, int, int] | None = None
        """The same, when decisions were sent back and none was carried out."""
        self._displaced_at = Instant(-1)

    # ── stimuli ─────────────────────────────────────────────────────────────────────────

    def command(self, command: AnyCommand, actor: Actor, now: Instant) -> list[e.Record]:
        """Carry out a wish; give its records. Raises Rejected, and then nothing happened.

        A command checks everything before its first event, so it happens whole or not.
        """
        at, before = self._now(now), len(self.records)
        self._emit(decide(self.state, command, actor, at), actor, at)
        return self.records[before:]

    def report(self, report: AnyReport, now: Instant) -> None:
        """Take note of what a backend says."""
        now = self._now(now)
        suspects: Iterable[HealthReport] = ()
        if type(report) is HealthReport:
            suspects = (report,)
        else:
            if type(report) is TaskReport:
                suspects = suspicions(self.state, report)
            self._emit(_HEARD[type(report)](self.state, report, now), SYSTEM, now)
        for told in suspects:
            self._emit(self.watch.heard(self.state, told, now), SYSTEM, now)

    def tick(self, now: Instant) -> None:
        """Let everything happen that is due by now."""
        state = self.state
        now = self._now(now)
        timer = state.timers.next()
        if timer is not None and timer <= now:
            if state.timers.due_date(now):
                self._emit(date_came(state, now), SYSTEM, now)
            for job in state.timers.due(now):
                self._emit(due(state, job, now), SYSTEM, now)
            for part in state.timers.due_parts(now):
                self._emit(self.watch.due(state, part, now), SYSTEM, now)
            for reservation in state.timers.due_reservations(now):
                self._emit(reservation_due(state, reservation, now), SYSTEM, now)
        if state.budgets.exist:
            state.budgets.strike(state.cluster, now)
        state.cluster.rerank(now)

    def next_due(self, now: Instant) -> Instant | None:
        """Return when `tick` and `cycle` must be called next though nothing happens."""
        state = self.state
        change = state.cluster.next_change(self._now(now))
        first = earlier(state.timers.next(), change)
        return earlier(first, state.budgets.next()) if state.budgets.exist else first

    def cycle(self, now: Instant, budget: int = 256) -> bool:
        """Run one scheduling cycle; tell whether another may find more to do.

        A cycle is skipped when nothing it could use has changed since the last one.
        """
        state, at = self.state, self._now(now)
        cluster = state.cluster
        if state.budgets.exist:
            state.budgets.strike(cluster, at)
        seen = (cluster, cluster.ledger.version, cluster.pending.arrivals)
        displaces = cluster.rescheduler is not None and cluster.displaces(at) is not None
        if seen == self._seen and not (displaces and self._displaced_at != now):
            return False
        if displaces:
            self._displaced_at = now
        refused, made, freed = self.refusals, 0, False
        decisions = proposals(cluster, at)
        if state.content.held:
            decisions = self._where_content_is(decisions, at)
        for number, decision in enumerate(decisions):
            if refusal(cluster, decision, at):
                self.refusals += 1
                cluster.memos.blocked.clear()
            else:
                self._emit(self._carry_out(decision), SYSTEM, at)
                made += 1
                freed = freed or type(decision) in _FREES
                if type(decision) is Evict:
                    # An evicted gang may be gone at once: better looked at afresh than
                    # through what it leaves behind.
                    return True
            if number + 1 >= budget:
                return True
        if self.refusals != refused and (made or self._refused != seen):
            # Once more, with nothing remembered; a job refused again waits for a change.
            self._refused = seen
            return True
        # Placing takes and gives nothing back: unless something else happened too, a job that
        # was left waiting waits on.
        self._seen = seen
        # A gang promoted, or handed what was reserved, leaves nothing to others either.
        cluster.seen_version = seen[1] if freed else cluster.ledger.version
        cluster.pending.came.clear()
        return seen[1:] != (cluster.ledger.version, cluster.pending.arrivals)

    def _where_content_is(
        self, decisions: Iterable[Decision], at: Instant
    ) -> Iterator[Decision]:
        """Yield the same decisions, of nodes alike for those with what the jobs bring."""
        for decision in decisions:
            if isinstance(decision, Place):
                yield where_its_content_is(self.state, decision, at)
            else:
                yield decision

    def archive(self, now: Instant, keep: int | None = None) -> list[JobId]:
        """Let the oldest finished jobs beyond the limit leave memory; say which.

        A job that others still wait for stays.
        """
        leaving: list[JobId] = []
        if not self.state.finished:
            return leaving
        limit = self.state.config.limits.keep_finished if keep is None else keep
        for job in self.state.finished:
            if len(self.state.finished) - len(leaving) <= limit:
                break
            if not self.state.dependents.get(job):
                leaving.append(job)
        return leaving

    def emit(self, event: e.AnyEvent, actor: Actor, now: Instant) -> None:
        """Record one event that a shell knows to be true, such as an archive."""
        self._emit((event,), actor, self._now(now))

    # ── carrying out ────────────────────────────────────────────────────────────────────

    def _carry_out(self, decision: Decision) -> Iterable[e.AnyEvent]:
        if isinstance(decision, Place):
            return (self._placed(decision.placement),)
        return self._change(decision)

    def _placed(self, placement: Placement) -> e.AttemptPlaced:
        job, ports = self.state.jobs[placement.job], self.state.ports
        return e.AttemptPlaced(
            job.id,
            AttemptNo(len(job.attempts) + 1),
            placement.slots,
            placement.entitlement,
            ports.find(port_count(job.spec), self._port_is_free) if ports.free else 0,
            placement.quota,
            *(nodes_with_all(self.state, placement) if self.state.content.held else ()),
        )

    def _change(
        self, decision: Resume | Promote | Demote | Evict | Unreserve | Pack
    ) -> Iterator[e.AnyEvent]:
        """Return the events of a decision about gangs that have a place, or a reserved one."""
        match decision:
            case Resume(job_id, entitlement, _, quota):
                no = self.state.jobs[job_id].attempts[-1].no
                yield e.AttemptResumed(job_id, no, entitlement, quota)
            case Promote(job_id, quota, beside):
                no = self.state.jobs[job_id].attempts[-1].no
                yield e.AttemptPromoted(job_id, no, quota, beside)
            case Demote(job_id, wanted_by):
                no = self.state.jobs[job_id].attempts[-1].no
                yield e.AttemptDemoted(job_id, no, wanted_by)
            case Evict():
                yield from self._make_way(decision)
            case Unreserve(job_id):
                yield e.ReservedPlaceDropped(job_id)
            case Pack(job_id, beside):
                yield packed(self.state, job_id, beside)

    def _make_way(self, evict: Evict) -> Iterator[e.AnyEvent]:
        """Reserve a place for one, and let others leave it, each in its own way."""
        reserved, jobs = evict.place, self.state.jobs
        for job in evict.revoke:
            yield e.ReservedPlaceDropped(job, reserved.job)
        for job, tasks in evict.shrink:
            yield shrinking(jobs[job], tasks, reserved.job)
        for job in evict.demote:
            yield e.AttemptDemoted(job, jobs[job].attempts[-1].no, reserved.job)
        for each in (reserved, *evict.moves):
            yield e.Reserved(each.job, each.slots, each.entitlement, each.victims, each.quota)
        for job in evict.suspend:
            no = jobs[job].attempts[-1].no
            yield e.AttemptSuspended(job, no, reserved.job)
            yield e.ResumeRequested(job, no)
        for job in evict.evict:
            yield self._eviction(job, reserved.job, evict.gain)

    def _eviction(
        self, victim: JobId, wanted_by: JobId, gain: Gain | None = None
    ) -> e.StopRequested:
        job = self.state.jobs[victim]
        checkpoint = job.spec.checkpoint
        return e.StopRequested(
            victim,
            job.attempts[-1].no,
            StopCause.EVICTED,
            signal=checkpoint.signal if checkpoint else "TERM",
            grace_ms=checkpoint.grace_ms if checkpoint else GRACE,
            wanted_by=wanted_by,
            gain=gain,
        )

    def _emit(self, events: Iterable[e.AnyEvent], actor: Actor, at: Instant) -> None:
        state = self.state
        if state.packed:
            events = with_partings(state, events)
        for event in events:
            record = e.Record(Seq(state.seq + 1), at, actor, event)
            fold(state, record)
            self.records.append(record)
            make = REACT.get(type(event))
            if make is not None:
                self.effects += make(state, event)

    def _now(self, now: Instant) -> Instant:
        """Time never goes back, even when the machine's clock does."""
        at = self.state.at
        return now if now > at else at

    def take(self) -> tuple[list[e.Record], list[AnyEffect]]:
        """Carry away what was recorded, and what is to be done once that is durable."""
        records, effects = self.records, self.effects
        self.records, self.effects = [], []
        return records, effects


_FREES = (Demote, Unreserve)

_HEARD: dict[type[msgspec.Struct], Callable[[State, Any, Instant], Iterable[e.AnyEvent]]] = {
    GangReport: gang_heard,
    TaskReport: heard,
    NodeReport: lambda state, report, _now: node_heard(state, report),
    OthersReport: lambda state, report, _now: others_heard(state, report),
    ContentReport: lambda state, report, _now: content_heard(state, report),
    CheckpointReport: lambda state, report, _now: saved(state, report),
    UseReport: lambda state, report, _now: used(state, report),
    PaceReport: measured,
    PairReport: compared,
    OfferReport: lambda state, report, _now: offered(state, report),
    TrialReport: trial_heard,
}
"""What each report but that of hardware makes happen."""
