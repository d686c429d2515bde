"""A live state, run forward: from what is known now to the start of one job.

The engine is the service's own, on a copy of its state; the machines are simulated, and so
is nothing else: nobody submits, cancels or breaks.
"""

from collections.abc import Callable, Mapping

from allotment.core.cluster import Cluster
from allotment.core.dimensions import types_wanted
from allotment.core.gang import Gang
from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.explain.free import borrowed_by
from allotment.explain.waiting import explain, explain_resume
from allotment.model import events as e
from allotment.model.forecast import RunOutcome
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, Instant, Millis
from allotment.model.reasons import ENDS_WITH_JOBS, Blocked, Reason
from allotment.sim.machines import Machines, size_of
from allotment.sim.run_times import progress_of
from allotment.sim.settings import Settings
from allotment.sim.settle import settle
from allotment.sim.speeds import Speeds
from allotment.sim.trace import TraceJob
from allotment.sim.work import Work

ENDLESS = 1 << 60
"""What is left of a job of which no end is known, in milliseconds."""

OF_ITS_TENANT = frozenset(
    {Reason.QUOTA, Reason.QUEUE_SHARE, Reason.QUEUE_LIMIT, Reason.USER_CAP}
)
"""Reasons that only jobs of its own tenant are."""

EXACT = 64
"""So many instants at which something happens are played one by one."""

COARSE = 16
"""After that the engine decides for a stretch at a time: up to this part of the time that
has passed, and of what a job runs at the median. A job that starts in it counts as started at
the mean of what happened in it."""

BUDGET = 1 << 20
"""Decisions in one cycle: none waits in between, and every cycle looks at all jobs."""


Leaving = Callable[[JobRecord, Millis], int]


def leaves_at_once(job: JobRecord, grace_ms: Millis) -> int:
    """Let an evicted job be gone at once."""
    del job, grace_ms
    return 0


def leaves_as_told(job: JobRecord, grace_ms: Millis) -> int:
    """Let a job that saves checkpoints take half its grace for that, and others go at once."""
    return grace_ms // 2 if job.spec.checkpoint is not None else 0


def leaves_by_force(job: JobRecord, grace_ms: Millis) -> int:
    """Let every evicted job take all its grace, and be ended by force then."""
    del job
    return grace_ms + FORCE_MS


FORCE_MS = SECOND
"""How long it takes at most, after a grace is over, until a place is really free."""


class Ahead:
    """One future of a state, which is used up by it.

    `left_ms` says how long each job that has not finished will run yet, `leaving` how long
    one that is told to go takes to be gone, given its grace; without it that takes no time.
    """

    def __init__(
        self,
        state: State,
        left_ms: Mapping[JobId, int | None],
        now: Instant,
        settings: Settings | None = None,
        leaving: Leaving | None = None,
    ) -> None:
        nodes = state.config.nodes
        self.now = max(now, state.at)
        state.ports.configure((0, 0))  # Nobody connects here.
        self.engine = Engine(state)
        self.placed: set[JobId] = set(state.cluster.gangs)
        """The jobs that hold a place, or came to hold one."""
        self._begin = self.now
        self._endless = {job for job, left in left_ms.items() if left is None}
        self._typical_ms = _median([left for left in left_ms.values() if left is not None])
        self._machines = Machines(
            self.engine, nodes, settings or Settings(), Speeds(nodes), seed=0
        )
        self._machines.leaving = leaving
        for job in state.jobs.values():
            if not job.state.finished:
                self._machines.adopt(job, work_of(job, left_ms[job.id], self.now), self.now)

    def until_start(
        self, asked: JobId, horizon: int, give_up: Callable[[], bool] = lambda: False
    ) -> RunOutcome:
        """Go on until the job is placed, or `horizon` passes, or nothing more will happen.

        A job that has a place is waited for to lose it and to get another, or to resume.
        """
        job = self.engine.state.jobs[asked]
        attempts, was_suspended = len(job.attempts), job.state is JobState.SUSPENDED

        def starts() -> bool:
            resumed = was_suspended and job.state is JobState.RUNNING
            return resumed or len(job.attempts) > attempts

        steps = 0
        self._settle()
        while not starts() and not job.state.finished:
            if give_up():
                return RunOutcome(None, self.now, gave_up=True)
            happens = self._next()
            if happens is None or happens > horizon:
                return self._unseen(job, happens, horizon)
            steps += 1
            self._stretch(max(happens, self.now), steps)
        if job.state.finished:
            why = job.diagnosis.cause if job.diagnosis else f"It {job.state.value}."
            return RunOutcome(None, self.now, ended=why)
        attempt = job.attempts[-1]
        at = Instant(self.now - self._machines.early_ms)
        cluster = self.engine.state.cluster
        lent = borrowed_by(cluster, cluster.gangs[asked]) if asked in cluster.gangs else ()
        return RunOutcome(at, self.now, attempt.slots, attempt.entitlement, borrowed=lent)

    def _unseen(self, job: JobRecord, happens: Instant | None, horizon: int) -> RunOutcome:
        """Return how things stand where it has not started, and nothing happens for long."""
        stuck = happens is None or happens >= ENDLESS
        endless = tuple(sorted(self._in_the_way(job)))
        until = self.now if stuck else Instant(horizon)
        return RunOutcome(None, until, blocked=self._why(job.id), stuck=stuck, endless=endless)

    def _in_the_way(self, job: JobRecord) -> set[JobId]:
        """Name the jobs that run on and on and keep a job waiting, or one it comes after."""
        state = self.engine.state
        gangs = state.cluster.gangs
        found: set[JobId] = set()
        for other in state.unmet(job):
            found |= {other} if other in gangs else self._in_the_way(state.jobs[other])
        if job.spec.array and state.array_full(job):
            found |= {each for each in gangs if _of_one_array(job, state.jobs[each])}
        blocked = self._why(job.id)
        if blocked is not None and blocked.reason in ENDS_WITH_JOBS:
            found |= _in_the_way(state.cluster, job.id, blocked.reason)
        return found & self._endless

    def _why(self, asked: JobId) -> Blocked | None:
        """Return why a waiting job, or one to be resumed, does not start."""
        cluster = self.engine.state.cluster
        if (gang := cluster.gangs.get(asked)) is not None and gang.wants_resume:
            return explain_resume(cluster, gang, self.now)
        if asked not in cluster.pending:
            return None
        return explain(cluster, cluster.pending[asked], self.now)

    def _stretch(self, now: Instant, steps: int) -> None:
        """Let happen what happens now; later on, also what happens soon after."""
        length = 0
        if steps > EXACT:
            length = min((now - self._begin) // COARSE, self._typical_ms // COARSE)
        self.now = Instant(now + length)
        happened = self._machines.agenda.within(self.now) if length else []
        self._machines.early_ms = self.now - sum(happened) // len(happened) if happened else 0
        self._machines.play_until(self.now)
        self._settle()

    def _next(self) -> Instant | None:
        """Return when something happens next."""
        happens, due = self._machines.agenda.next(), self.engine.next_due(self.now)
        if happens is None or due is None:
            return due if happens is None else happens
        return min(happens, due)

    def _settle(self) -> None:
        settle(self.engine, self._machines, self.now, BUDGET)
        records, _ = self.engine.take()
        for record in records:
            if isinstance(record.event, e.AttemptPlaced):
                self.placed.add(record.event.job)


def _of_one_array(job: JobRecord, other: JobRecord) -> bool:
    mine, its = job.spec.array, other.spec.array
    return mine is not None and its is not None and mine.parent == its.parent


def _in_the_way(cluster: Cluster, asked: JobId, reason: Reason) -> set[JobId]:
    """Name the jobs that hold what a job could use that waits for such a reason."""
    if reason in OF_ITS_TENANT:
        tenant = cluster.tenant_of(asked)
        return {gang.id for gang in cluster.gangs.values() if gang.tenant == tenant} - {asked}
    types = types_wanted(cluster, cluster.shape_of(asked).requests)
    return {
        gang.id
        for gang in cluster.gangs.values()
        if gang.id != asked and (not types or _holds(cluster, gang, types))
    }


def _holds(cluster: Cluster, gang: Gang, types: tuple[str, ...]) -> bool:
    """Whether a gang has a device of one of the types."""
    type_of = cluster.ledger.type_of
    return any(type_of(s.node, index) in types for s in gang.slots for index in s.devices)


def _median(lengths: list[int]) -> int:
    return sorted(lengths)[len(lengths) // 2] if lengths else 0


def work_of(job: JobRecord, left_ms: int | None, now: Instant) -> Work:
    """Make the simulated work of a live job, of which so much is left."""
    left = ENDLESS if left_ms is None else left_ms
    done = progress_of(job, now)
    saves = job.spec.checkpoint is not None
    whole = TraceJob(job.spec.name, job.submitted_at, done + left)
    size = size_of(job.attempts[-1].slots) if job.attempt is not None else 0
    return Work(whole, job.id, left, kept_ms=done if saves else 0, size=size, saves=saves)
