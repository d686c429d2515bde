"""The simulator: a shell around the service's engine that plays cluster and users.

It feeds the engine submissions of a trace and reports of what its world does, turns the
engine's effects into future happenings, and carries the records to whoever folds them.
All that decides is the engine's.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.diagnosis import Exit
from allotment.model.errors import Rejected
from allotment.model.ids import SYSTEM, Actor, AttemptNo, JobId
from allotment.model.quantity import Instant, Millis, Resources
from allotment.model.reports import GangReport, Seen
from allotment.model.spec import NEVER, JobSpec, TaskRole
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, Tenant
from allotment.sim.agenda import Agenda, Entry, Phase
from allotment.sim.settings import Settings
from allotment.sim.trace import TraceJob
from allotment.sim.work import Work

EVERYBODY = "all"
"""The tenant that owns the cluster when nobody is guaranteed a part of it."""

BEYOND_ALL = Resources(*([1 << 60] * 5))
"""The guarantee of that tenant: what limits it are the machines alone."""

Carry = Callable[[Sequence[e.Record]], None]


class Refused(msgspec.Struct, frozen=True):
    """A job that the engine did not take, and why."""

    place: int
    at: Instant
    reason: str


class Simulation:
    """One run. `works` has every job the engine took, by its id there, less one."""

    def __init__(
        self,
        nodes: Sequence[Node],
        order: QueueOrder,
        policies: Callable[[Callable[[JobId], int | None]], State],
        settings: Settings,
        carry: Carry,
    ) -> None:
        self.engine = Engine(policies(self.run_ms_of))
        self.works: dict[JobId, Work] = {}
        self.refused: list[Refused] = []
        self.agenda = Agenda()
        self.settings = settings
        self.events = 0
        self.now = Instant(0)
        self._carry = carry
        self._roles: dict[tuple[object, ...], tuple[TaskRole, ...]] = {}
        self._incoming: Work | None = None
        owner = Tenant(EVERYBODY, BEYOND_ALL, (Queue("default", order),))
        config = Config(tuple(nodes), (owner,), Limits(ports=(0, 0), phase_ms=NEVER), EVERYBODY)
        self._config = c.ApplyConfig(config)

    # ── running ─────────────────────────────────────────────────────────────────────────

    def run(self, jobs: Sequence[TraceJob]) -> Iterator[int]:
        """Play the whole trace; give how many of its jobs have come, now and then."""
        first = Instant(jobs[0].submit_ms) if jobs else Instant(0)
        self.engine.command(self._config, SYSTEM, first)
        come, count = 0, len(jobs)
        while True:
            now = self.agenda.next()
            if come < count and (now is None or jobs[come].submit_ms < now):
                now = Instant(jobs[come].submit_ms)
            due = self.engine.next_due(self.now)
            if due is not None and (now is None or due < now):
                now = due
            if now is None or (come == count and not self.works):
                break
            self.now = now
            self._happen(now)
            while come < count and jobs[come].submit_ms == now:
                self._submit(jobs[come], come, now)
                come += 1
                if come % 1024 == 0:
                    yield come
            self._decide(now)
        yield come

    def _happen(self, now: Instant) -> None:
        """Let everything happen that is due."""
        while self.agenda.next() == now:
            self._play(self.agenda.pop(), now)

    def _play(self, entry: Entry, now: Instant) -> None:
        job = JobId(entry.subject)
        work = self.works.get(job)
        if work is None or work.attempt != entry.attempt:
            return
        if entry.phase is Phase.END:
            if work.ends_at(now) == now:
                self._end(job, work, now)
        elif entry.phase is Phase.GONE:
            self._gone(job, work, now)
        elif entry.phase is Phase.START:
            self._begin(job, work, now)

    def _decide(self, now: Instant) -> None:
        """Let the engine decide until it comes to rest, and carry out what it wants."""
        engine = self.engine
        engine.tick(now)
        while engine.cycle(now) or engine.effects:
            effects, engine.effects = engine.effects, []
            for effect in effects:
                self._carry_out(effect, now)
        for job in engine.archive(now, 0):
            engine.emit(e.JobArchived(job), SYSTEM, now)
        records, _ = engine.take()
        self.events += len(records)
        self._carry(records)

    # ── users ───────────────────────────────────────────────────────────────────────────

    def run_ms_of(self, job: JobId) -> int | None:
        """Tell the true run time of a job."""
        work = self.works.get(job)
        if work is not None:
            return work.job.run_ms
        return self._incoming.job.run_ms if self._incoming is not None else None

    def _submit(self, job: TraceJob, place: int, now: Instant) -> None:
        work = self._incoming = Work(job, place, job.run_ms)
        spec = JobSpec(
            name=job.id,
            tenant=EVERYBODY,
            roles=self._roles_of(job),
            priority=job.priority,
            max_run_ms=job.limit_ms or Millis(-1),
        )
        try:
            records = self.engine.command(
                c.SubmitJob(spec), Actor(job.user or job.tenant, 1), now
            )
        except Rejected as refusal:
            self.refused.append(Refused(place, now, str(refusal)))
            return
        event = records[0].event
        assert isinstance(event, e.JobSubmitted)
        self.works[event.job] = work

    def _roles_of(self, job: TraceJob) -> tuple[TaskRole, ...]:
        key = (job.tasks, job.need, job.gpu_types)
        roles = self._roles.get(key)
        if roles is None:
            role = TaskRole("task", job.tasks, "", job.need, job.gpu_types)
            roles = self._roles[key] = (role,)
        return roles

    # ── machines ────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: f.AnyEffect, now: Instant) -> None:
        if isinstance(effect, f.LaunchTask):
            key = effect.key
            if key.index == 0:
                self._launch(key.job, key.attempt, now)
        elif isinstance(effect, f.StopTask):
            self._stop(effect.key.job, effect.key.attempt, now)

    def _launch(self, job: JobId, attempt: AttemptNo, now: Instant) -> None:
        work = self.works[job]
        work.attempt = attempt
        wait = self.settings.resume_ms if attempt > 1 else self.settings.start_ms
        if wait:
            self.agenda.add(now + wait, Phase.START, job, attempt)
        else:
            self._begin(job, work, now)

    def _begin(self, job: JobId, work: Work, now: Instant) -> None:
        self.engine.report(GangReport(job, work.attempt, Seen.RUNNING), now)
        work.since = now
        self.agenda.add(work.ends_at(now), Phase.END, job, work.attempt)

    def _stop(self, job: JobId, attempt: AttemptNo, now: Instant) -> None:
        work = self.works[job]
        if work.attempt != attempt:
            return
        work.stop(now)
        if self.settings.stop_ms:
            self.agenda.add(now + self.settings.stop_ms, Phase.GONE, job, attempt)
        else:
            self._gone(job, work, now)

    def _gone(self, job: JobId, work: Work, now: Instant) -> None:
        attempt, work.attempt = work.attempt, AttemptNo(0)
        self.engine.report(
            GangReport(job, attempt, Seen.ENDED, STOPPED, lost_ms=Millis(0)), now
        )

    def _end(self, job: JobId, work: Work, now: Instant) -> None:
        attempt, work.attempt = work.attempt, AttemptNo(0)
        self.engine.report(GangReport(job, attempt, Seen.ENDED, DONE), now)
        del self.works[job]


DONE = Exit(code=0)
STOPPED = Exit(signal=15)
