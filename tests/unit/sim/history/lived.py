"""A service's history, lived through by its engine with machines that keep good time."""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.reports import NodeReport
from allotment.model.spec import Dependency
from allotment.model.tenancy import Config
from tests.support.builders import NOW, JobBuilder
from tests.support.world import World

START_MS, STOP_MS = 70, 30


class Wish(NamedTuple):
    """A job, or an array of alike ones, and what else somebody wanted at that instant."""

    at: int
    job: JobBuilder
    run_ms: int
    copies: int = 1
    max_running: int = 0
    after: Sequence[int] = ()
    """Places of earlier wishes; the job depends on the first job of each."""


Change = Config | c.DrainNode | c.UndrainNode | NodeReport
"""What happens to the cluster at some instant."""


class Lived:
    """Plays wishes on an audited engine. `log` is what a service would have kept."""

    def __init__(self, config: Config, changes: Iterable[tuple[int, Change]] = ()) -> None:
        self.world = World(config)
        self.first: list[JobId] = []
        self._agenda: list[tuple[int, int, str, JobId, int]] = []
        self._left: dict[JobId, int] = {}
        self._since: dict[JobId, int] = {}
        self._changes = [(NOW + at, to) for at, to in changes]
        self._count = 0

    @property
    def log(self) -> list[e.Record]:
        return self.world.log

    def play(self, wishes: Sequence[Wish]) -> "Lived":
        """Go on until every job has ended."""
        coming = sorted(wishes, key=lambda wish: wish.at)
        while coming or self._agenda or self._changes:
            self._go_to(min(self._next(coming)))
            while self._agenda and self._agenda[0][0] <= self.world.now:
                self._happen(*heappop(self._agenda)[2:])
            while self._changes and self._changes[0][0] <= self.world.now:
                self._change(self._changes.pop(0)[1])
            while coming and NOW + coming[0].at <= self.world.now:
                self._submit(coming.pop(0))
            self.world.cycle()
            self._carry_out()
        assert all(job.state.finished for job in self.world.state.jobs.values())
        return self

    def starts(self) -> list[tuple[int, JobId]]:
        """Return which jobs started when, in order."""
        return starts(self.log)

    def _next(self, coming: Sequence[Wish]) -> Iterable[int]:
        yield from (NOW + wish.at for wish in coming[:1])
        yield from (entry[0] for entry in self._agenda[:1])
        yield from (change[0] for change in self._changes[:1])
        due = self.world.engine.next_due(self.world.now)
        if due is not None and due > self.world.now:
            yield due

    def _go_to(self, at: int) -> None:
        self.world.wait(at - self.world.now)

    def _change(self, to: Change) -> None:
        if isinstance(to, Config):
            self.world.do(c.ApplyConfig(to))
        elif isinstance(to, NodeReport):
            gangs = [
                gang.id
                for gang in self.world.state.cluster.gangs.values()
                if not to.alive and any(slot.node == to.node for slot in gang.slots)
            ]
            for job in gangs:
                self._save(job)
            self.world.tell(to)
            for job in gangs:
                if self.world.job(job).attempt is not None:
                    self.world.ends(job, 1)  # its other tasks cannot go on without it
        else:
            self.world.do(to)

    def _save(self, job: JobId) -> None:
        """Let a job save all it has done: it stops."""
        if job in self._since:
            self.world.saves(job, self._count)
            self._left[job] -= self.world.now - self._since.pop(job)

    def _submit(self, wish: Wish) -> None:
        job = wish.job
        if wish.after:
            job = job.after(*(Dependency(self.first[place]) for place in wish.after))
        command = c.SubmitJob(job.spec(), copies=wish.copies, max_running=wish.max_running)
        records = self.world.do(command)
        for record in records:
            if isinstance(record.event, e.JobSubmitted):
                self._left[record.event.job] = wish.run_ms
        self.first.append(min(r.event.job for r in records if isinstance(r.event, e.JobEvent)))

    def _happen(self, what: str, job: JobId, no: int) -> None:
        attempt = self.world.job(job).attempt
        if attempt is None or attempt.no != no:
            return  # it was for an attempt that is gone
        if what == "runs" and attempt.stop is None:
            self.world.runs(job)
            self._since[job] = self.world.now
            self._plan(self._left[job], "ends", job)
        elif what == "ends" and job in self._since:
            del self._since[job]
            self.world.ends(job)
        elif what == "goes":
            self.world.ends(job, 1)

    def _carry_out(self) -> None:
        effects, self.world.effects = self.world.effects, []
        for effect in effects:
            if isinstance(effect, f.LaunchGang):
                self._plan(START_MS, "runs", effect.job)
            elif isinstance(effect, f.StopTask) and effect.key.index == 0:
                job = effect.key.job
                # It saves at once; what it does between the warning and the end is lost.
                self._save(job)
                self._plan(STOP_MS, "goes", job)

    def _plan(self, length: int, what: str, job: JobId) -> None:
        self._count += 1
        no = self.world.job(job).attempts[-1].no
        heappush(self._agenda, (Instant(self.world.now + length), self._count, what, job, no))


def starts(log: Iterable[e.Record]) -> list[tuple[int, JobId]]:
    """Return which jobs started when, in order; of one instant in order of their ids."""
    return sorted(
        (record.at, record.event.job)
        for record in log
        if isinstance(record.event, e.AttemptPlaced)
    )
