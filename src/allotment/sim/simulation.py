"""The simulator: a shell around the service's engine that plays cluster and users.

It feeds the engine submissions of a trace and reports of what its world does, turns the
engine's effects into future happenings, and carries the records to what folds them.
All that decides is the engine's.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

import msgspec
from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.quantity import DEVICE, Instant, Millis, Resources, earlier
from allotment.model.spec import NEVER, GiveWay, JobSpec, Priority, TaskRole
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, RankBy, Tenant
from allotment.policies.estimates.known import Known
from allotment.policies.estimates.time_limit import TimeLimit
from allotment.policies.moving.least_used import LeastUsedPairs
from allotment.policies.moving.pairs import RandomPairs
from allotment.policies.rescheduling.ports import Packing
from allotment.sim.catalogue import passing, policies
from allotment.sim.machines import Machines
from allotment.sim.outages import NodeEvent
from allotment.sim.replayed_wishes import Again
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.settle import settle
from allotment.sim.told import Told
from allotment.sim.trace import TraceJob
from allotment.sim.work import Work

ALL = "all"
"""The tenant that owns the cluster when no tenant is guaranteed a part of it."""

BEYOND_ALL = Resources(*([1 << 60] * 5))
"""The guarantee of that tenant: what limits it are the machines alone."""

Carry = Callable[[Sequence[e.Record]], None]


class Refused(msgspec.Struct, frozen=True):
    """A job that the engine did not take, and why."""

    place: int
    at: Instant
    reason: str


class Simulation:
    """One run: the users of a trace, the engine, and machines for it."""

    def __init__(self, scenario: Scenario, carry: Carry) -> None:
        settings, nodes = scenario.settings, scenario.nodes
        self._keeps_priorities = settings.priorities == "keep"
        self._predicts = settings.estimates == "predicted"
        self._grows = settings.grow_ms > 0 and settings.grow_to > 1
        known = TimeLimit() if self._predicts else Known(self.run_ms_of)
        speeds = scenario.speeds()
        devices = sum(len(node.devices) for node in nodes)

        def help_each_other(job: JobId, other: JobId) -> bool:
            works = self.machines.works
            return speeds.together(works[job].job, works[other].job) >= 1

        def used(job: JobId) -> int | None:
            return scenario.used.get(self.machines.works[job].job.model)

        packing: Packing = RandomPairs(scenario.seed, devices, help_each_other)
        if scenario.recipe().by_use:
            packing = LeastUsedPairs(devices, used, help_each_other)
        self.engine = Engine(
            State(
                policies(
                    scenario.recipe(),
                    settings,
                    known,
                    scenario.popularity(),
                    types=max(1, len(scenario.types())),
                    packing=packing,
                )
            )
        )
        self.machines = Machines(
            self.engine,
            nodes,
            settings,
            speeds,
            scenario.seed,
            scenario.recipe().packs,
        )
        if scenario.outages:
            self.machines.tracked = True
        self.refused: list[Refused] = []
        self.events = 0
        self.now = Instant(0)
        self._carry = carry
        self._retries = settings.retries if settings.job_failure else 0
        self._roles: dict[tuple[object, ...], tuple[TaskRole, ...]] = {}
        self._incoming: Work | None = None
        self._told = Told(settings, scenario.seed)
        self._scenario = scenario
        self._types = scenario.types()
        self._packs = scenario.recipe().packs
        wishes = scenario.wishes
        self._again = Again(wishes, nodes) if wishes is not None else None
        self._configs = tuple(_configs(scenario))

    # ── running ─────────────────────────────────────────────────────────────────────────

    def run(self, jobs: Sequence[TraceJob]) -> Iterator[int]:
        """Play the whole trace; return how many of its jobs have come, now and then."""
        first = Instant(jobs[0].submit_ms) if jobs else Instant(0)
        configs = deque(
            (Instant(first + max(0, after)), config) for after, config in self._configs
        )
        outages = deque(self._scenario.outages)
        self._configure(configs, first)
        self.machines.open(first)
        agenda, works = self.machines.agenda, self.machines.works
        come, count = 0, len(jobs)
        arrival = first if jobs else None
        while True:
            now = earlier(agenda.next(), arrival)
            now = earlier(now, self.engine.next_due(self.now))
            if configs:
                now = earlier(now, configs[0][0])
            if outages:
                now = earlier(now, Instant(first + outages[0].after_ms))
            if now is None or (come == count and not works):
                break
            self.now = now
            if configs:
                self._configure(configs, now)
            self.machines.play_until(now)
            while outages and first + outages[0].after_ms <= now:
                self._change_node(outages.popleft().event, now)
            while arrival == now:
                self._submit(jobs[come], come, now)
                come += 1
                arrival = Instant(jobs[come].submit_ms) if come < count else None
                if come % 1024 == 0:
                    yield come
            self._decide(now)
        yield come

    def _configure(self, configs: deque[tuple[Instant, Config]], now: Instant) -> None:
        """Let the newest configuration that is due be in force."""
        config: Config | None = None
        while configs and configs[0][0] <= now:
            config = configs.popleft()[1]
        if config is not None:
            self.engine.command(c.ApplyConfig(config), SYSTEM, now)

    def _change_node(self, event: NodeEvent, now: Instant) -> None:
        """Let a node take no work any more, or take work again, as it did."""
        match event:
            case e.NodeLost(node):
                self.machines.go_down(node, now)
            case e.NodeRecovered(node):
                self.machines.come_back(node, now)
            case e.NodeDrained(node, reason):
                self.engine.command(c.DrainNode(node, reason), SYSTEM, now)
            case e.NodeUndrained(node):
                self.engine.command(c.UndrainNode(node), SYSTEM, now)

    def _decide(self, now: Instant) -> None:
        """Let the engine decide, and carry away what came of it."""
        engine = self.engine
        settle(engine, self.machines, now)
        for job in engine.archive(now, 0) if engine.state.finished else ():
            engine.emit(e.JobArchived(job), SYSTEM, now)
            work = self.machines.works.pop(job)
            if not work.left_ms:
                self._told.ended(work.job)
        records, _ = engine.take()
        if records:
            self.events += len(records)
            self._carry(records)

    # ── users ───────────────────────────────────────────────────────────────────────────

    def run_ms_of(self, job: JobId) -> int | None:
        """Return what is told of the run time of a job."""
        work = self.machines.works.get(job, self._incoming)
        return work.told_ms if work is not None else None

    def _submit(self, job: TraceJob, place: int, now: Instant) -> None:
        told_ms = self._told.at_submission(job, place)
        size = job.gpu_milli or job.tasks
        work = self._incoming = Work(job, place, job.run_ms, told_ms, size=size)
        actor = Actor(job.user or job.tenant, 1)
        try:
            records = self.engine.command(c.SubmitJob(self._spec(job, place)), actor, now)
        except Rejected as refusal:
            self.refused.append(Refused(place, now, _why(refusal)))
            return
        event = records[0].event
        assert isinstance(event, e.JobSubmitted)
        self.machines.works[event.job] = work
        if self._again is not None:
            self._again.came(job, event.job)

    def _spec(self, job: TraceJob, place: int) -> JobSpec:
        settings = self._scenario.settings
        if self._again is not None:
            spec = self._again.spec(job, place, self.engine.state.jobs)
            return replace(
                spec,
                name=self._name_of(job),
                roles=self._roles_of(job, place) if self._packs else spec.roles,
                retry=self._retries,
                priority=spec.priority if self._keeps_priorities else Priority.LOWEST,
                within=settings.within or spec.within,
                prefer=settings.prefer or spec.prefer,
            )
        return JobSpec(
            self._name_of(job),
            ALL if self._scenario.owners is None else job.tenant,
            self._roles_of(job, place),
            job.queue,
            job.priority if self._keeps_priorities else Priority.LOWEST,
            weight=job.weight,
            max_run_ms=job.limit_ms or NEVER,
            retry=self._retries,
            preemptible=job.preemptible,
            within=settings.within,
            prefer=settings.prefer,
        )

    def _name_of(self, job: TraceJob) -> str:
        """Name a job by its id, or where the engine predicts as its user did."""
        return (self._predicts and job.name) or job.id

    def _roles_of(self, job: TraceJob, place: int) -> tuple[TaskRole, ...]:
        types = self._types_for(job, place) if self._types else job.gpu_types
        key = (job.tasks, job.need, types)
        roles = self._roles.get(key)
        if roles is None:
            need = job.need
            if self._packs and need.gpu_milli == DEVICE:
                need = replace(need, gpu_milli=DEVICE // 2)
            role = TaskRole("task", job.tasks, "", need, types)
            if self._grows:
                most = job.tasks * self._scenario.settings.grow_to
                role = replace(role, count=most, least=job.tasks, elastic=True)
            roles = self._roles[key] = (role,)
        return roles

    def _types_for(self, job: TraceJob, place: int) -> tuple[str, ...]:
        """Return in which order a job that takes any type tries them: a gang has one."""
        types = [kind for kind in self._types if not job.gpu_types or kind in job.gpu_types]
        by_type = self._scenario.recipe().by_type
        if by_type or self._scenario.settings.types == "best":
            speed = self._scenario.speed_by_type(job)
            return tuple(sorted(types, key=lambda kind: (-speed[kind], kind)))
        if self._scenario.settings.types == "chance":
            Random(f"{self._scenario.seed}/types/{place}").shuffle(types)
        return tuple(types)


def _configs(scenario: Scenario) -> Iterator[tuple[int, Config]]:
    """Return who owns the cluster, and from when on after the first submission."""
    recipe, settings, wishes = scenario.recipe(), scenario.settings, scenario.wishes
    order = passing(recipe, settings)
    rescheduled = partial(
        _rescheduled,
        slice_ms=Millis(settings.round_ms if recipe.slices else 0),
        migrates=settings.migrate == "yes",
        grow_ms=Millis(settings.grow_ms),
        by_affinity=recipe.by_affinity,
    )
    limits = Limits(ports=(0, 0), phase_ms=NEVER)
    if wishes is None:
        owners = scenario.owners
        if owners is None:
            owner = Tenant(ALL, BEYOND_ALL, (Queue("default", order),))
            tenants = (rescheduled(_evicting(owner, settings)),)
            yield 0, Config(scenario.nodes, tenants, limits, ALL)
            return
        tenants = tuple(
            rescheduled(
                _evicting(
                    replace(tenant, queues=_queues(tenant, order), users=(), groups=()),
                    settings,
                )
            )
            for tenant in owners.tenants
        )
        limits = replace(limits, half_life_ms=owners.half_life_ms)
        topology, share = owners.topology, owners.share
        yield 0, Config(scenario.nodes, tenants, limits, topology=topology, share=share)
        return
    as_configured = wishes.keeps_orders and not settings.order
    for after, config in wishes.configs(
        scenario.nodes, limits, None if as_configured else order
    ):
        tenants = tuple(map(rescheduled, config.tenants))
        yield after, replace(config, tenants=tenants)


def _rescheduled(
    tenant: Tenant, slice_ms: Millis, grow_ms: Millis, *, migrates: bool, by_affinity: bool
) -> Tenant:
    """Let the jobs of each queue take turns, of so long each, 0 for none; migrate; and grow."""
    wanted = slice_ms, migrates, grow_ms, by_affinity
    queues = tuple(
        queue
        if (queue.time_slice_ms, queue.migrates, queue.grow_ms, queue.by_affinity) == wanted
        else replace(
            queue,
            time_slice_ms=slice_ms,
            migrates=migrates,
            grow_ms=grow_ms,
            by_affinity=by_affinity,
        )
        for queue in tenant.queues
    )
    return replace(tenant, queues=queues)


def _evicting(tenant: Tenant, settings: Settings) -> Tenant:
    """Let preempted jobs of a tenant do what the settings say, if they say anything."""
    mode = settings.eviction
    return replace(tenant, on_eviction=GiveWay(mode)) if mode else tenant


def _queues(tenant: Tenant, order: QueueOrder) -> tuple[Queue, ...]:
    """Let the policy rank, and say which jobs may overtake; without queues make one."""
    submitted = RankBy.SUBMITTED
    queues = tuple(replace(queue, order=order, rank=submitted) for queue in tenant.queues)
    return queues if tenant.queue("default") else (*queues, Queue("default", order))


def _why(refusal: Rejected) -> str:
    """Return why a job was refused; to ask a service for more is of no use here."""
    hints = re.split(r"(?<=\.) ", refusal.hint)
    return " ".join([refusal.message, *(hint for hint in hints if "`allot " not in hint)])
