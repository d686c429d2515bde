"""Nobody chases anybody: after each submission preemption comes to rest, and only ever climbs.

What climbs is, for each tenant, the list of the priorities of who holds or is promised its
own share, highest first: docs/scheduling.md says why no cycle is possible then.
"""

import os
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason, StopCause
from allotment.model.spec import GiveWay, JobSpec
from allotment.model.tenancy import Config, Preempt, QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns

JOBS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from([10, 100, 100, 500, 900]),
        st.sampled_from(["", "", "opportunistic", "stays", "two"]),
        st.booleans(),
    ),
    max_size=25,
)
HOW = {
    "order": st.sampled_from(list(QueueOrder)),
    "preempt": st.sampled_from([Preempt.EVICT, Preempt.DEMOTE]),
    "cells": st.booleans(),
    "first": st.sampled_from(["", "a", "b"]),
    "way": st.sampled_from([*GiveWay][1:]),
}


@settings(max_examples=int(os.environ.get("ALLOT_HISTORIES", "60")), deadline=None)
@given(jobs=JOBS, **HOW)
def test_preemption_comes_to_rest_and_only_climbs(
    jobs: list[tuple[str, int, int, str, bool]],
    order: QueueOrder,
    preempt: Preempt,
    cells: bool,
    first: str,
    way: GiveWay,
) -> None:
    world = a_world(order, preempt, cells=cells, way=way)
    for _ in range(8 if first else 0):
        world.submit(a_job().of(first).gpus(4).opportunistic())
    world.cycle()
    for tenant, devices, priority, kind, leaves in jobs:
        job = a_job().of(tenant).gpus(devices).priority(priority)
        if not submit_as(world, job, kind):
            continue
        # Half of the time the next is submitted while victims are still on their way out.
        rest(world) if leaves else world.cycle()
        start_all(world)
    rest(world)
    everybody_had_a_reason(world)
    assert not world.state.cluster.reserved, "nobody waits for who is gone"


@pytest.mark.parametrize("seed", [5, 11, 16, 42, 94, 119])
def test_a_job_that_is_suspended_does_not_take_what_a_more_urgent_job_was_made_room_for(
    seed: int,
) -> None:
    """Histories in which two suspended gangs once took turns for ever, and it had no place."""
    rng = random.Random(seed)
    kinds = ["", "", "opportunistic", "stays", "two"]
    world = a_world(QueueOrder.SKIP, Preempt.DEMOTE, cells=True, way=GiveWay.SUSPEND)
    for _ in range(25):
        kind = rng.choice(kinds)
        job = a_job().of(rng.choice("ab")).gpus(rng.choice([1, 2, 4, 8]))
        job.priority(rng.choice([10, 100, 100, 500, 900]))
        submit_as(world, job, kind)
        rest(world) if rng.random() < 0.5 else world.cycle()
        start_all(world)
    rest(world)


@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_nobody_makes_way_for_who_is_behind_a_blocked_job(preempt: Preempt) -> None:
    world = a_world(QueueOrder.STRICT, preempt, cells=True)
    node, high, low = (
        world.submit(a_job().of("a").gpus(gpus).priority(priority))
        for gpus, priority in ((8, 900), (2, 500), (2, 100))
    )
    world.cycle()
    start_all(world)
    first, behind = (
        world.submit(a_job().of("a").gpus(gpus).priority(500).not_preemptible())
        for gpus in (4, 1)
    )
    world.cycle()
    assert not world.state.cluster.placed.leaving
    gangs = world.state.cluster.gangs
    assert {gangs[job].entitlement for job in (node, high, low)} == {Entitlement.GUARANTEED}
    assert world.why(behind).reason is Reason.BEHIND
    assert world.why(behind).ahead == first


def a_world(
    order: QueueOrder, preempt: Preempt, *, cells: bool, way: GiveWay = GiveWay.REQUEUE
) -> World:
    if cells:
        tenants = tuple(
            msgspec.structs.replace(
                tenant, guaranteed=gpus(32), preempt=preempt, on_eviction=way
            )
            for tenant in (owns("a", node=1, socket=1), owns("b", node=2))
        )
        return World(Config(MACHINES, tenants, topology=TOPOLOGY))
    tenants = tuple(
        msgspec.structs.replace(
            a_tenant(name, share, order=order), preempt=preempt, on_eviction=way
        )
        for name, share in (("a", 12), ("b", 16))
    )
    return World(a_config(*tenants, nodes=4, devices=8))


def submit_as(world: World, job: JobBuilder, kind: str) -> bool:
    """Submit a job of a kind; tell whether it was accepted."""
    if kind == "opportunistic":
        job.opportunistic()
    elif kind == "stays":
        job.not_preemptible()
    elif kind == "two":
        job.tasks(2)
    try:
        world.submit(job)
    except Rejected:
        return False
    return True


def start_all(world: World) -> None:
    for each in world.state.jobs.values():
        if each.state is JobState.STARTING:
            world.runs(each.id)


def nobody_is_forgotten(world: World) -> None:
    """Once nothing more is done, nobody is left in line for whom nothing is in the way."""
    waiting = sorted(job.id for job in world.state.cluster.pending.all())
    assert not [job for job in waiting if world.why(job).reason is Reason.PENDING]


def rest(world: World) -> None:
    """Let those who were told to go do so at once, until nobody else is told."""
    world.cycle()
    was, seen = climbed(world), told(world)
    for _ in range(200):
        leaving = sorted(world.state.cluster.placed.leaving)
        if not leaving:
            nobody_is_forgotten(world)
            return
        for job in leaving:
            world.ends(job, 143)
        world.cycle()
        now = climbed(world)
        assert all(now[name] >= was[name] for name in now)
        assert told(world) == seen or now != was, "each eviction is somebody's gain"
        was, seen = now, told(world)
    raise AssertionError("they send each other away for ever")


def climbed(world: World) -> dict[str, list[int]]:
    """Return the priorities of the jobs that hold or are promised each tenant's own share.

    Who is suspended has given up its devices: on what grounds it has them again is not said.
    """
    cluster = world.state.cluster
    found: dict[str, list[int]] = {name: [] for name in cluster.tenants}
    for gang in cluster.gangs.values():
        if gang.entitlement is Entitlement.GUARANTEED and not gang.suspended:
            found[gang.tenant].append(gang.priority)
    for job, promise in cluster.reserved.items():
        if promise.entitlement is Entitlement.GUARANTEED and job not in cluster.gangs:
            standing = cluster.standing_of(job)
            assert standing is not None, f"job {job} neither waits nor is placed"
            found[standing.shape.tenant].append(standing.priority)
    return {name: sorted(each, reverse=True) for name, each in found.items()}


def told(world: World) -> int:
    return sum(isinstance(r.event, e.StopRequested) for r in world.log)


def everybody_had_a_reason(world: World) -> None:
    """Whoever was evicted borrowed, or made way for a more urgent job of its own tenant's.

    Whoever lost a promise was to borrow what its owner takes, or is less urgent.
    """
    grounds: dict[JobId, Entitlement] = {}
    promised: dict[JobId, Entitlement] = {}
    owners: set[JobId] = set()
    attempts: set[tuple[JobId, int]] = set()
    specs = {job.id: job.spec for job in world.state.jobs.values()}
    for record in world.log:
        match record.event:
            case e.AttemptPlaced(job, _, _, entitlement):
                grounds[job] = entitlement
            case e.AttemptPromoted(job):
                grounds[job] = Entitlement.GUARANTEED
            case e.AttemptDemoted(job, _, taker):
                assert outranks(specs[taker], specs[job])
                grounds[job] = Entitlement.OPPORTUNISTIC
            case e.ReservedPlaceDropped(job, taker) if taker is not None:
                if promised[job] is Entitlement.OPPORTUNISTIC:
                    owners.add(taker)
                else:
                    assert outranks(specs[taker], specs[job])
            case e.Reserved(job, _, entitlement):
                assert job not in owners or entitlement is Entitlement.GUARANTEED
                promised[job] = entitlement
                owners.discard(job)
            case e.StopRequested(job, attempt, StopCause.EVICTED):
                assert grounds[job] is Entitlement.OPPORTUNISTIC
                assert (job, attempt) not in attempts, "nobody is told twice"
                attempts.add((job, attempt))
            case _:
                pass
    assert not owners, "who takes a promise over has one"


def outranks(taker: JobSpec, other: JobSpec) -> bool:
    return taker.tenant == other.tenant and taker.priority > other.priority


def test_a_tower_of_takeovers_evicts_once() -> None:
    """The k-th job takes over the promise of the one before it; one borrower goes, once."""
    world = a_world(QueueOrder.SKIP, Preempt.EVICT, cells=False)
    for _ in range(4):
        world.submit(a_job().of("b").gpus(8))
        world.cycle()
    jobs = [a_job().of("a").gpus(8).priority(p) for p in range(10, 30)]
    for job in jobs:
        world.submit(job)
        world.cycle()
    assert told(world) == 1
    world.do(c.CancelJob(JobId(1)))
    rest(world)
    assert told(world) <= 2
