"""No smaller part of the victims would do: each plan against all subsets, on small clusters.

What would do is worked out here from nothing but free devices and guarantees: another place for
the job, once just those of a subset are gone, out of what its tenant is guaranteed.
"""

import os
import random
from collections import Counter
from collections.abc import Collection, Iterator
from copy import copy
from itertools import chain, combinations, product
from operator import le

import msgspec
import pytest

from allotment.core.cells.rights import objection
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.plan import PreemptionPlan
from allotment.core.preemption.room import place_cost
from allotment.core.trial import Trial
from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DEVICE, SECOND, Millis
from allotment.model.tenancy import Config, Preempt, QueueOrder, RankBy
from allotment.policies.rescheduling.in_slices import in_slices
from tests.support.audit import audit
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import Unaudited, World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns

NODES, WIDTH = 3, 4
GUARANTEED = 6
"""Devices of tenant a; the others are b's."""
HISTORIES = 4 * int(os.environ.get("ALLOT_HISTORIES", "100"))


def test_no_smaller_part_of_the_victims_would_do() -> None:
    plans = 0
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        world = a_busy_world(rng)
        tasks, devices = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 2, 3, 4])
        if tasks * devices > GUARANTEED:
            continue
        urgent = world.submit(a_job().of("a").tasks(tasks).gpus(devices).priority(500))
        before = [copy(gang) for gang in world.state.cluster.gangs.values()]
        victims = victims_of(world, urgent)
        plans += bool(victims)
        for some in smaller(victims):
            rest = [gang for gang in before if gang.id not in some]
            assert not would_do(rest, tasks, devices), f"{seed}: {some} of {victims} would do"
    assert plans > HISTORIES // 10, "the cluster is busy"


def a_busy_world(rng: random.Random) -> World:
    """Let jobs of both tenants start, and some of them end: devices are free here and there."""
    world = a_world(rng.choice([Preempt.NONE, Preempt.EVICT]))
    jobs = rng.randint(4, 12)
    for _ in range(jobs):
        job = a_job().of(rng.choice("aabbb")).gpus(rng.choice([1, 1, 2, 3, 4]))
        job.priority(rng.choice([10, 100]))
        start(world, job.not_preemptible() if rng.random() < 0.2 else job)
    ends(world, rng.sample(range(1, jobs + 1), jobs // 3))
    return world


def a_world(preempt: Preempt) -> World:
    tenants = tuple(
        msgspec.structs.replace(a_tenant(name, share, order=QueueOrder.SKIP), preempt=preempt)
        for name, share in (("a", GUARANTEED), ("b", NODES * WIDTH - GUARANTEED))
    )
    return Unaudited(a_config(*tenants, nodes=NODES, devices=WIDTH))


def start(world: World, job: JobBuilder) -> None:
    world.submit(job)
    settle(world)


def settle(world: World) -> None:
    """Let all that is told to go do so at once, until nothing is."""
    world.cycle()
    while world.state.cluster.placed.leaving:
        for job in sorted(world.state.cluster.placed.leaving):
            world.ends(job, 143)
        world.cycle()
    for each in world.state.jobs.values():
        if each.state is JobState.STARTING:
            world.runs(each.id)


def ends(world: World, jobs: Collection[int]) -> None:
    """Let some jobs end, here and there, and cancel those in line."""
    for job in jobs:
        if JobId(job) in world.state.cluster.gangs:
            world.ends(JobId(job))
    for waiting in list(world.state.cluster.pending.all()):
        world.do(c.CancelJob(waiting.id))


def victims_of(world: World, job: JobId) -> tuple[JobId, ...]:
    """Return which gangs a cycle evicts for a job."""
    world.cycle()
    audit(world.state)
    assert world.engine.refusals == 0
    place = world.state.cluster.reserved.get(job)
    return () if place is None else place.victims


def smaller(victims: tuple[JobId, ...]) -> Iterator[tuple[JobId, ...]]:
    return chain.from_iterable(combinations(victims, size) for size in range(len(victims)))


def would_do(there: list[Gang], tasks: int, devices: int) -> bool:
    """Whether a job has a place out of its tenant's guarantee beside some gangs."""
    held = sum(
        gang.held().gpu_milli // 1000
        for gang in there
        if gang.tenant == "a" and gang.entitlement is Entitlement.GUARANTEED
    )
    free = [WIDTH] * NODES
    for gang in there:
        for slot in gang.slots:
            free[slot.node - 1] -= len(slot.devices)
    room = sum(left // devices for left in free)
    return held + tasks * devices <= GUARANTEED and room >= tasks


# ── in cells ────────────────────────────────────────────────────────────────────────────


def test_no_smaller_part_of_the_borrowers_in_cells_would_do() -> None:
    plans = 0
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        world = busy_cells(rng)
        urgent = world.submit(a_job().of("a").gpus(rng.choice([1, 2, 3, 4, 8])))
        victims = victims_of(world, urgent)
        plans += bool(victims)
        for some in smaller(victims):
            assert not place_without(world, urgent, some), f"{seed}: {some} of {victims}"
    assert plans > HISTORIES // 10, "the cluster is busy"


def busy_cells(rng: random.Random) -> World:
    """Let owners and borrowers start, and some of them end."""
    owners = (owns("a", node=1, socket=1), owns("b", node=1, pair=2), owns("c"))
    tenants = (msgspec.structs.replace(each, guaranteed=gpus(32)) for each in owners)
    world = Unaudited(Config(MACHINES, tuple(tenants), topology=TOPOLOGY))
    jobs = rng.randint(6, 16)
    for _ in range(jobs):
        job = a_job().of(rng.choice("abccccc")).gpus(rng.choice([1, 1, 2, 3, 4, 6, 8]))
        start(world, job.priority(rng.choice([10, 100])))
    ends(world, rng.sample(range(1, jobs + 1), jobs // 4))
    return world


def place_without(world: World, job: JobId, gone: Collection[JobId]) -> bool:
    """Whether a job of one task has a place as good when just some borrowers are gone."""
    cluster = world.state.cluster
    cells = cluster.cells
    assert cells is not None
    place, shape = cluster.reserved[job], cluster.pending[job].shape
    with Trial(cluster) as trial:
        trial.unreserve(job)
        for each in gone:
            trial.drop(each)
        plan = PreemptionPlan(place.slots, place.needs, place.quota)
        most = place_cost(cells, shape, plan)
        for slot, kind in product(leaves(len(place.slots[0].devices)), CELLS):
            other = PreemptionPlan((slot,), place.needs, (kind,))
            if (
                not objection(cells, "a", "", other.slots, other.needs, other.quota)
                and not cells.is_lent(other.slots, other.needs)
                and trial.fits(other.slots, other.needs)
                and all(map(le, place_cost(cells, shape, other), most))
            ):
                return True
    return False


CELLS = ("socket", "node")


def leaves(count: int) -> Iterator[Slot]:
    for node in MACHINES:
        for some in combinations(range(8), count):
            yield Slot(node.id, some, 1000 * count)


# ── in turns ────────────────────────────────────────────────────────────────────────────

SLICE = Millis(60 * SECOND)


@pytest.mark.parametrize("owed", [GUARANTEED, NODES * WIDTH])
def test_no_smaller_part_of_those_that_had_their_turn_would_do(owed: int) -> None:
    waiting, suspended = 0, 0
    for seed in range(HISTORIES // 4):
        rng = random.Random(seed)
        world = busy_turns(rng, owed)
        gangs = world.state.cluster.gangs
        for _ in range(3):
            tasks, devices = rng.choice([(1, 0.5), (1, 0.75), (1, 1), (1, 4), (2, 2), (3, 1)])
            world.submit(a_job().of("a").tasks(tasks).gpus(devices).priority(100))
            world.wait(SLICE)
            for job, place, gone, others in turns_of(world):
                assert gone, "a place that is free is no turn"
                own = job in gangs
                waiting, suspended = waiting + (not own), suspended + own
                for some in map(set, smaller(tuple(gang.id for gang in gone))):
                    there = [*others, *(gang for gang in gone if gang.id not in some)]
                    assert not has_turn(there, place, owed, own=own), f"{seed}: {job} {some}"
    assert min(waiting, suspended) > HISTORIES // 20, "the cluster is busy"


class Turns(Unaudited):
    """A cluster whose queues are sliced."""

    def __init__(self, config: Config) -> None:
        self.engine = Engine(State(msgspec.structs.replace(POLICIES, rescheduler=in_slices)))
        self.now, self.log, self.effects = NOW, [], []
        self.do(c.ApplyConfig(config))


def busy_turns(rng: random.Random, owed: int) -> World:
    """Let jobs of one queue start, and some of them end; parts of devices are taken, too."""
    tenant = a_tenant("a", owed, order=QueueOrder.SKIP)
    queues = tuple(
        msgspec.structs.replace(queue, time_slice_ms=SLICE, rank=RankBy.ROUND_ROBIN)
        for queue in tenant.queues
    )
    tenant = msgspec.structs.replace(tenant, queues=queues)
    other = a_tenant("b", NODES * WIDTH - owed)
    world = Turns(a_config(tenant, other, nodes=NODES, devices=WIDTH))
    jobs = rng.randint(8, 20)
    for _ in range(jobs):
        devices = rng.choice([0.25, 0.25, 0.5, 0.75, 1, 1, 2, 3, 4])
        start(world, a_job().of("a").gpus(devices).priority(rng.choice([10, 100])))
    ends(world, rng.sample(range(1, jobs + 1), jobs // 4))
    return world


def turns_of(
    world: World,
) -> Iterator[tuple[JobId, ReservedPlace, list[Gang], list[Gang]]]:
    """Make a cycle; yield each job whose turn comes, its place, those that go, all others."""
    cluster, again = world.state.cluster, True
    while again:
        before = {gang.id: copy(gang) for gang in cluster.gangs.values()}
        known, seen = set(cluster.reserved), len(world.log)
        again = world.engine.cycle(world.now)
        world.collect()
        for record in world.log[seen:]:
            if isinstance(record.event, e.AttemptPromoted):
                before[record.event.job].entitlement = Entitlement.GUARANTEED
        for job, place in list(cluster.reserved.items()):
            if job not in known:
                running = [gang for gang in cluster.gangs.values() if not gang.suspended]
                yield job, place, [before[each] for each in place.victims], running
    audit(world.state)
    assert world.engine.refusals == 0
    for each in world.state.jobs.values():
        if each.state is JobState.STARTING:
            world.runs(each.id)


def has_turn(there: list[Gang], place: ReservedPlace, owed: int, *, own: bool) -> bool:
    """Whether a job has its own devices back, or any place, beside some gangs."""
    held = sum(
        gang.held().gpu_milli for gang in there if gang.entitlement is Entitlement.GUARANTEED
    )
    asked = sum(need.gpu_milli for need in place.needs)
    if place.entitlement is Entitlement.GUARANTEED and held + asked > owed * DEVICE:
        return False
    free = Counter[tuple[int, int]]()
    for gang in there:
        for slot, need in zip(gang.slots, gang.needs, strict=True):
            for index in slot.devices:
                free[slot.node, index] -= need.gpu_milli // len(slot.devices)
    count = len(place.slots[0].devices)
    most = DEVICE - place.needs[0].gpu_milli // count
    if own:
        return all(free[slot.node, i] >= -most for slot in place.slots for i in slot.devices)
    fits = (sum(free[node, i] >= -most for i in range(WIDTH)) // count for node in range(NODES))
    return sum(fits) >= len(place.slots)
