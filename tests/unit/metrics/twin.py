"""The slow, obvious twin of the folds: keeps every event, looks at every millisecond.

Its milliseconds are whole: what holds after the last event of one holds until the next.
"""

from collections import defaultdict

from allotment.model import events as e
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Config, QueueOrder

FINISHED = (e.JobSucceeded, e.JobFailed, e.JobCancelled, e.JobTimedOut)


class Job:
    """Where a job stands after some events."""

    def __init__(
        self, id: int, spec: JobSpec, held: bool, unfinished: set[int], user: str
    ) -> None:
        self.id, self.spec, self.held, self.user = id, spec, held, user
        self.status = "queued"
        self.grounds = Entitlement.GUARANTEED
        self.not_before = 0
        self.waits_for = {on.job for on in spec.depends_on} & unfinished

    def need(self) -> int:
        return sum(role.count * role.resources.gpu_milli for role in self.spec.roles)

    def queued(self) -> bool:
        return self.status == "queued"

    def own(self, at: int) -> bool:
        """It waits, but not for the cluster."""
        return self.queued() and (self.held or bool(self.waits_for) or at < self.not_before)

    def in_line(self, at: int) -> bool:
        return self.queued() and not self.own(at)


class World:
    """What holds after some events."""

    def __init__(self, config: Config, records: list[e.Record]) -> None:
        self.config = config
        self.jobs: dict[int, Job] = {}
        for record in records:
            self._take(record.event, record.actor.user)

    def _take(self, event: e.AnyEvent, user: str) -> None:
        if isinstance(event, e.ConfigApplied):
            self.config = event.config
        elif isinstance(event, e.JobSubmitted):
            unfinished = set(self.jobs)
            self.jobs[event.job] = Job(event.job, event.spec, event.held, unfinished, user)
        elif isinstance(event, FINISHED):
            del self.jobs[event.job]
            for job in self.jobs.values():
                job.waits_for.discard(event.job)
        elif isinstance(event, e.JobEvent):
            self._change(self.jobs[event.job], event)

    def _change(self, job: Job, event: e.JobEvent) -> None:
        match event:
            case e.JobEdited(_, spec):
                job.spec = spec
            case e.JobHeld() | e.JobReleased():
                job.held = isinstance(event, e.JobHeld)
            case e.JobRequeued(_, _, not_before):
                job.status, job.not_before = "queued", not_before
            case e.AttemptPlaced(_, _, _, grounds) | e.AttemptResumed(_, _, grounds):
                job.status, job.grounds = "active", grounds
            case e.AttemptPromoted():
                job.grounds = Entitlement.GUARANTEED
            case e.AttemptSuspended():
                job.status = "suspended"
            case e.AttemptEnded():
                job.status = "out"
            case _:
                pass

    def capacity(self) -> int:
        return DEVICE * sum(len(node.devices) for node in self.config.nodes)

    def active(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.status == "active"]

    def busy(self) -> int:
        return sum(job.need() for job in self.active())

    def free(self) -> int:
        return max(0, self.capacity() - self.busy())

    def asked(self) -> list[Job]:
        """Jobs that the curve shows as waiting."""
        return [job for job in self.jobs.values() if job.queued() and not job.held]

    def room(self, tenant: str) -> int:
        guaranteed = next(
            t for t in self.config.tenants if t.name == tenant
        ).guaranteed.gpu_milli
        return guaranteed - sum(
            job.need()
            for job in self.active()
            if job.spec.tenant == tenant and job.grounds is Entitlement.GUARANTEED
        )

    def capped(self, job: Job) -> bool:
        """Its user would hold more than one may."""
        cap = next(t for t in self.config.tenants if t.name == job.spec.tenant).per_user
        held = sum(
            other.need()
            for other in self.active()
            if (other.spec.tenant, other.user) == (job.spec.tenant, job.user)
        )
        return bool(cap.gpu_milli and job.need()) and held + job.need() > cap.gpu_milli

    def limited(self, job: Job) -> bool:
        """A queue that it is in, at whatever depth, would hold more than it may."""
        tenant = next(t for t in self.config.tenants if t.name == job.spec.tenant)
        queue = tenant.queue(job.spec.queue)
        while queue is not None:
            others = [
                other
                for other in self.jobs.values()
                if other.spec.tenant == tenant.name
                and (other.spec.queue + ".").startswith(queue.name + ".")
            ]
            placed = [other for other in others if other.status in ("active", "suspended")]
            if queue.max_jobs is not None and len(placed) >= queue.max_jobs:
                return True
            most = queue.limit.get("gpu")
            if not queue.terms.borrow:
                most = queue.guaranteed.get("gpu")
            active = [other for other in others if other.status == "active"]
            mine = [other for other in active if other.user == job.user]
            for cap, holders in ((most, active), (queue.per_user.get("gpu"), mine)):
                held = sum(other.need() for other in holders)
                if cap is not None and job.need() > max(0, cap - held):
                    return True
            queue = tenant.queue(queue.parent) if queue.parent else None
        return False

    def cause(self, job: Job, at: int) -> str:
        """Why a queued job is not placed."""
        tenant = next(t for t in self.config.tenants if t.name == job.spec.tenant)
        if job.own(at):
            return "own"
        bound = not tenant.borrow or not job.spec.preemptible
        if (
            (bound and self.room(tenant.name) < job.need())
            or self.capped(job)
            or self.limited(job)
        ):
            return "quota"
        if self.free() < job.need() or not job.need():
            return "capacity"
        alone = {
            (role.resources.gpu_milli, role.resources.cpu_milli) for role in job.spec.roles
        }
        if alone == {(DEVICE, 0)}:
            return "order"
        skips = tenant.queues[0].order is QueueOrder.SKIP
        return "shape" if skips or self.is_first(job, at) else "order"

    def is_first(self, job: Job, at: int) -> bool:
        line = [
            other
            for other in self.jobs.values()
            if other.in_line(at) and other.spec.tenant == job.spec.tenant
        ]
        return min(line, key=lambda other: (-other.spec.priority, other.id)) is job


class Twin:
    """The sums, by looking at every millisecond of a log from its first submission."""

    def __init__(self, config: Config, records: list[e.Record], end: int) -> None:
        self.sums: dict[str, int] = defaultdict(int)
        self.peak = self.peak_milli = 0
        self.crowding = 0.0
        self.waits: dict[tuple[str, str], int] = defaultdict(int)
        """Of jobs that completed, by tenant and cause."""
        counted = {r.job for r in records if isinstance(r.event, e.JobSucceeded)}
        first = min((r.at for r in records if isinstance(r.event, e.JobSubmitted)), default=end)
        for at in range(first, end):
            world = World(config, [record for record in records if record.at <= at])
            self._look(world)
            for job in world.jobs.values():
                if job.queued() and job.id in counted:
                    self.waits[job.spec.tenant, world.cause(job, at)] += 1

    def _look(self, world: World) -> None:
        wanted = sum(job.need() for job in world.asked())
        idle = world.capacity() - world.busy()
        self.sums["busy"] += world.busy()
        self.sums["idle"] += max(0, idle)
        self.sums["stranded"] += max(0, min(idle, wanted))
        self.sums["waiting"] += len(world.asked())
        self.peak = max(self.peak, len(world.asked()))
        self.peak_milli = max(self.peak_milli, wanted)
        if not world.asked():
            return
        self.crowding += max(0, (wanted + world.busy()) / world.capacity() - 1)
