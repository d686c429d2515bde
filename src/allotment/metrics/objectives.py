"""Whether tenants' objectives were kept: docs/metrics.md says what each of them means."""

from array import array
from heapq import heappop, heappush

import msgspec

from allotment.metrics.availability import Availability, Course
from allotment.metrics.eligible import Eligible
from allotment.metrics.fold import FINISHED, Handler, Handlers
from allotment.metrics.meter import Meter, Whose
from allotment.metrics.numbers import percentile
from allotment.metrics.within import (
    ZERO,
    Reach,
    Vector,
    beyond_queues,
    fits,
    minus,
    plus,
    suspended,
    vector,
)
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.objectives import Objective, Objectives
from allotment.model.quantity import Instant
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Tenant

MOST_JOBS = 20
"""Jobs that an answer names for each objective."""


class JobConcerned(msgspec.Struct, frozen=True, gc=False):
    """A job for which an objective was not met."""

    job: int
    name: str
    ms: int
    """How long it took."""
    until: int
    """When it was over; 0 where it is not yet."""


class Measured(msgspec.Struct, frozen=True):
    """How an objective was met. Lengths are milliseconds, availability is in millionths."""

    tenant: str
    objective: Objective
    target: int
    """The value of the objective."""
    kept: bool
    measured: int
    """What is compared with the target: the longest, or the mean of availability."""
    p99: int
    """What 99 % of the cases took at most; what was available for 99 % of the time."""
    worst: int
    cases: int
    """How often it was put to the test; of availability 1 if the tenant has a guarantee."""
    broken: int
    """In how many of them it was broken."""
    jobs: tuple[JobConcerned, ...] = ()
    """For which it was broken, the worst first; at most 20."""


class _Job(msgspec.Struct, gc=False):
    """An unfinished job."""

    tenant: str
    name: str
    user: str
    need: Vector
    """What it waits for: the least, if that may vary."""
    placed: Vector = ZERO
    """What it got with its place."""
    queue: str = ""
    aside: bool = False
    """Eligible, and kept back by its user's cap, or by a budget."""
    since: int = -1
    """Since when it is eligible and within the guarantee; -1 while it is not."""
    waited: int = 0
    """For how long it was, in this wait."""
    asked_at: int = -1
    """When what others had borrowed was asked back for it; -1 when it was not."""
    dropped_at: int = -1
    """When that was given up, unless it was asked for again at once."""
    held: Vector = ZERO
    owns: bool = False


class _Cases(msgspec.Struct):
    """The cases of one objective of one tenant."""

    lengths: "array[int]"
    given_up: list[int]
    """Lengths of those that came to no end: they count where they are beyond the target."""
    worst: list[tuple[int, int, JobConcerned]]
    """A heap of the longest, with a number that tells them apart."""

    def add(self, ms: int, id: JobId, name: str, until: int, *, ended: bool = True) -> None:
        if ended:
            self.lengths.append(ms)
        elif ms:
            self.given_up.append(ms)
        if not ms or (len(self.worst) == MOST_JOBS and ms <= self.worst[0][0]):
            return
        number = len(self.lengths) + len(self.given_up)
        heappush(self.worst, (ms, -number, JobConcerned(id, name, ms, until)))
        if len(self.worst) > MOST_JOBS:
            heappop(self.worst)

    def measured(self, tenant: str, objective: Objective, target: int) -> Measured:
        """Compare them with the target."""
        late = [ms for ms in self.given_up if ms > target]
        every = sorted([*self.lengths, *late])
        broken = sum(1 for ms in every if ms > target)
        return Measured(
            tenant=tenant,
            objective=objective,
            target=target,
            kept=not broken,
            measured=every[-1] if every else 0,
            p99=int(percentile(every, 99)) if every else 0,
            worst=every[-1] if every else 0,
            cases=len(every),
            broken=broken,
            jobs=tuple(each for ms, _, each in sorted(self.worst, reverse=True) if ms > target),
        )


class _Tenant:
    """What is kept of a tenant."""

    def __init__(self, name: str, reach: Reach) -> None:
        self.reach = reach
        self.tree = QueueTree(Tenant(name))
        self.objectives = Objectives()
        self.cap = ZERO
        """What one user may hold; 0 means no cap."""
        self.held: dict[str, Vector] = {}
        self.aside: dict[str, dict[JobId, None]] = {}
        """By user, jobs that the cap keeps back, or a budget."""
        self.back = _Cases(array("q"), [], [])
        self.wait = _Cases(array("q"), [], [])

    def capped(self, user: str, need: Vector) -> bool:
        """Whether a user may not hold so much more."""
        if self.cap == ZERO:
            return False
        held = self.held.get(user, ZERO)
        return any(
            most and more and has + more > most
            for most, more, has in zip(self.cap, need, held, strict=True)
        )


class ObjectiveCourse:
    """Folds the log into `rows`. Cases that end before `since` do not count.

    O(log n) an event, and O(1) for each job whose place within the guarantee changes; where
    a tenant caps its users, O(the user's waiting jobs). Call `close` at the end.
    """

    def __init__(self, since: Instant = Instant(0)) -> None:
        self._since = since
        self._at = Instant(0)
        self._tenants: dict[str, _Tenant] = {}
        self._jobs: dict[JobId, _Job] = {}
        self._unsettled: set[str] = set()
        self._types: set[str] = set()
        """Of the devices that there are."""
        self._line = Eligible(self._joined, self._left)
        self._meter = Meter()
        self._availability = Availability(since)

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        own: dict[type[e.Event], Handler] = {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.JobEdited: self._withdrawn,
            e.JobHeld: self._withdrawn,
            e.Reserved: self._reserved,
            e.ReservedPlaceDropped: self._dropped,
            e.AttemptPlaced: self._placed,
            e.AttemptPromoted: self._promoted,
            e.AttemptDemoted: self._demoted,
            e.AttemptSuspended: self._suspended,
            e.AttemptResumed: self._resumed,
            e.AttemptEnded: self._ended,
            **dict.fromkeys(FINISHED, self._finished),
        }
        found: dict[type[e.Event], Handler] = {}
        # Which jobs are eligible comes first: the rest is said of those.
        for table in (self._line.handlers(), self._availability.handlers(), own):
            for kind, handler in table.items():
                found[kind] = _both(found[kind], handler) if kind in found else handler
        return found

    def owned_by(self, user: str) -> None:
        """Take note whose the job is whose submission comes next."""
        self._line.owned_by(user)

    def pass_to(self, at: Instant) -> None:
        """Take note that nothing changed until `at`, but that back-offs ended."""
        self._settle()
        while self._meter.tenants and (due := self._meter.next(self._at)) and due <= at:
            self._line.pass_to(due)
            self._step_to(due)
            for name in self._meter.tenants:
                self._look_again(self._tenant(name))
        self._line.pass_to(at)
        self._step_to(at)

    def _step_to(self, at: Instant) -> None:
        """Let time pass: all of one instant is simultaneous."""
        if at > self._at:
            self._settle()
            self._at = at

    def close(self, at: Instant) -> None:
        """Let time pass to the end, and count what is still open."""
        self.pass_to(at)
        self._availability.close(at)
        for id, job in self._jobs.items():
            tenant = self._tenant(job.tenant)
            waited = job.waited + (at - job.since if job.since >= 0 else 0)
            tenant.wait.add(waited, id, job.name, 0, ended=False)
            if job.asked_at >= 0 and job.dropped_at < 0:
                tenant.back.add(at - job.asked_at, id, job.name, 0, ended=False)

    def rows(self) -> tuple[Measured, ...]:
        """Return how the objectives of the newest configuration were met, by tenant."""
        found: list[Measured] = []
        for name, tenant in sorted(self._tenants.items()):
            for objective in Objective:
                target = tenant.objectives.target(objective)
                if target is None:
                    continue
                if objective is Objective.AVAILABILITY:
                    course = self._availability.courses.get(name, Course())
                    found.append(_available(name, target, course))
                else:
                    back = objective is Objective.GUARANTEE_BACK
                    cases = tenant.back if back else tenant.wait
                    found.append(cases.measured(name, objective, target))
        return tuple(found)

    # ── tenants ─────────────────────────────────────────────────────────────────────────

    def _tenant(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name, Reach(self._enter, self._leave))
        return tenant

    def _configured(self, at: Instant, event: e.ConfigApplied) -> None:
        named = {tenant.name: tenant for tenant in event.config.tenants}
        self._types = {each.type for node in event.config.nodes for each in node.devices}
        for name in {*named, *self._tenants}:
            tenant, now = self._tenant(name), named.get(name) or Tenant(name)
            tenant.objectives, tenant.tree = now.objectives, QueueTree(now)
            tenant.reach.guaranteed = vector(now.guaranteed)
            tenant.cap = vector(now.per_user)
            self._unsettled.add(name)
        if self._meter.tenants or any(tenant.budgets for tenant in event.config.tenants):
            held = [(_whose(job), job.held[0]) for job in self._jobs.values() if job.held[0]]
            self._meter.configure(event.config.tenants, held, at)
        for id, waiter in self._line.jobs.items():
            if waiter.eligible:
                self._step_aside(id)
                self._stand(id)

    def _settle(self) -> None:
        for name in sorted(self._unsettled) if self._unsettled else ():
            self._tenants[name].reach.settle()
        self._unsettled.clear()

    # ── waiting ────────────────────────────────────────────────────────────────────────

    def _joined(self, at: Instant, id: JobId) -> None:
        self._step_to(at)
        waiter = self._line.jobs[id]
        spec = waiter.spec
        job = self._jobs.get(id)
        need = vector(spec.sized(spec.least_count).total())
        if job is None:
            job = self._jobs[id] = _Job(spec.tenant, spec.name, waiter.user, need)
        job.tenant, job.name, job.need, job.waited = spec.tenant, spec.name, need, 0
        job.queue = spec.queue
        self._stand(id)

    def _stand(self, id: JobId) -> None:
        """Let an eligible job have its place before those that come after it."""
        job, spec = self._jobs[id], self._line.jobs[id].spec
        tenant = self._tenant(job.tenant)
        if (
            spec.opportunistic
            or not fits(job.need, tenant.reach.guaranteed)
            or beyond_queues(tenant.tree, spec, self._types)
        ):
            return  # Never within the guarantee, so none comes after it.
        if self._kept_back(tenant, job):
            job.aside = True
            tenant.aside.setdefault(job.user, {})[id] = None
        else:
            self._line_up(id, tenant)

    def _line_up(self, id: JobId, tenant: _Tenant) -> None:
        tenant.reach.join(id, self._line.jobs[id].spec.priority, self._jobs[id].need)
        self._unsettled.add(self._jobs[id].tenant)

    def _left(self, at: Instant, id: JobId) -> None:
        self._step_aside(id)

    def _step_aside(self, id: JobId) -> None:
        """Undo `_stand`."""
        job = self._jobs[id]
        tenant = self._tenant(job.tenant)
        if job.aside:
            job.aside = False
            tenant.aside[job.user].pop(id, None)
        elif id in tenant.reach:
            tenant.reach.leave(id)
            self._unsettled.add(job.tenant)

    def _kept_back(self, tenant: _Tenant, job: _Job) -> bool:
        """Whether a job may not start though there were room."""
        if tenant.capped(job.user, job.need):
            return True
        budgets = self._meter.tenants
        return bool(budgets and job.need[0]) and self._meter.closed(_whose(job), self._at)

    def _look_again(self, tenant: _Tenant) -> None:
        """Find out which jobs are kept back now that a budget was used up or renewed."""
        for user in {self._jobs[id].user for id in tenant.reach.jobs()}:
            self._keep_back(tenant, user)
        for user in list(tenant.aside):
            self._let_in(tenant, user)

    def _let_in(self, tenant: _Tenant, user: str) -> None:
        """Let the jobs wait that the cap of their user keeps back no longer."""
        for id in list(tenant.aside.get(user, ())):
            job = self._jobs[id]
            if not self._kept_back(tenant, job):
                job.aside = False
                del tenant.aside[user][id]
                self._line_up(id, tenant)

    def _keep_back(self, tenant: _Tenant, user: str) -> None:
        """Take out the jobs that the cap of their user keeps back now."""
        for id in tenant.reach.jobs():
            job = self._jobs[id]
            if job.user == user and self._kept_back(tenant, job):
                tenant.reach.leave(id)
                self._unsettled.add(job.tenant)
                job.aside = True
                tenant.aside.setdefault(user, {})[id] = None

    def _enter(self, id: JobId) -> None:
        self._jobs[id].since = self._at

    def _leave(self, id: JobId) -> None:
        job = self._jobs[id]
        job.waited += self._at - job.since
        job.since = -1

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    def _withdrawn(self, at: Instant, event: e.JobEvent) -> None:
        """A wait ends without a place: what it lasted counts if that was too long."""
        job = self._jobs.get(event.job)
        if job is None:
            return
        if job.waited and at >= self._since:
            cases = self._tenant(job.tenant).wait
            cases.add(job.waited, event.job, job.name, at, ended=False)
        job.waited = 0
        self._stop_asking(event.job, job, at)

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        self._withdrawn(at, event)
        self._jobs.pop(event.job, None)

    def _reserved(self, at: Instant, event: e.Reserved) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        others = (self._jobs.get(victim) for victim in event.victims)
        if not any(other is not None and other.tenant != job.tenant for other in others):
            return
        if 0 <= job.dropped_at < at:
            self._stop_asking(event.job, job, at)
        job.dropped_at = -1
        if job.asked_at < 0:
            job.asked_at = at

    def _dropped(self, at: Instant, event: e.ReservedPlaceDropped) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.asked_at >= 0:
            job.dropped_at = at

    def _stop_asking(self, id: JobId, job: _Job, at: Instant) -> None:
        """What was asked back was not wanted any more before it came."""
        if job.asked_at < 0:
            return
        until = job.dropped_at if job.dropped_at >= 0 else at
        if until >= self._since:
            cases = self._tenant(job.tenant).back
            cases.add(until - job.asked_at, id, job.name, until, ended=False)
        job.asked_at = job.dropped_at = -1

    def _got_back(self, id: JobId, job: _Job, at: Instant) -> None:
        if 0 <= job.dropped_at < at:
            self._stop_asking(id, job, at)
        elif job.asked_at >= 0:
            if at >= self._since:
                self._tenant(job.tenant).back.add(at - job.asked_at, id, job.name, at)
            job.asked_at = job.dropped_at = -1

    # ── attempts ────────────────────────────────────────────────────────────────────────

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        owns = event.entitlement is Entitlement.GUARANTEED
        if (owns or job.waited) and at >= self._since:
            self._tenant(job.tenant).wait.add(job.waited, event.job, job.name, at)
        job.waited = 0
        self._got_back(event.job, job, at)
        spec = self._line.jobs[event.job].spec
        varies = spec.roles[-1].least and event.slots
        job.placed = vector(spec.sized(len(event.slots)).total()) if varies else job.need
        self._hold(job, job.placed, owns=owns)

    def _promoted(self, at: Instant, event: e.AttemptPromoted) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._hold(job, job.held, owns=True)

    def _demoted(self, at: Instant, event: e.AttemptDemoted) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._hold(job, job.held, owns=False)

    def _suspended(self, at: Instant, event: e.AttemptSuspended) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._hold(job, suspended(job.placed), owns=job.owns)

    def _resumed(self, at: Instant, event: e.AttemptResumed) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._got_back(event.job, job, at)
            self._hold(job, job.placed, owns=event.entitlement is Entitlement.GUARANTEED)

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._stop_asking(event.job, job, at)
            self._hold(job, ZERO, owns=False)

    def _hold(self, job: _Job, amount: Vector, *, owns: bool) -> None:
        """Let a job hold so much, out of its tenant's guarantee or not."""
        tenant = self._tenant(job.tenant)
        before = tenant.held.get(job.user, ZERO)
        if job.owns:
            tenant.reach.used = minus(tenant.reach.used, job.held)
        if owns:
            tenant.reach.used = plus(tenant.reach.used, amount)
        self._unsettled.add(job.tenant)
        tenant.held[job.user] = plus(minus(before, job.held), amount)
        grew = not fits(amount, job.held)
        if self._meter.tenants and amount[0] != job.held[0]:
            self._meter.change(_whose(job), amount[0] - job.held[0], self._at)
        job.held, job.owns = amount, owns
        if tenant.cap != ZERO:
            (self._keep_back if grew else self._let_in)(tenant, job.user)


def _whose(job: _Job) -> Whose:
    return job.tenant, job.queue, job.user


def _both(first: Handler, second: Handler) -> Handler:
    def handle(at: Instant, event: e.AnyEvent) -> None:
        first(at, event)
        second(at, event)

    return handle


def _available(tenant: str, target: int, course: Course) -> Measured:
    mean = course.mean_ppm()
    return Measured(
        tenant=tenant,
        objective=Objective.AVAILABILITY,
        target=target,
        kept=mean >= target,
        measured=mean,
        p99=course.held_for(99),
        worst=course.worst_ppm(),
        cases=1 if course.length_ms else 0,
        broken=int(mean < target),
    )
