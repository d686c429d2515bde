"""Each "no" of the committer: one change to what it accepts, and it says what is wrong."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Decision, Demote, Evict, Place, Promote, Resume, Unreserve
from allotment.model import commands as c
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
from allotment.model.quantity import GIB, Millis, WallTime
from allotment.model.tenancy import Preempt, PreemptRules, Tenant
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant, gpus
from tests.support.world import World

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
NOBODY = JobId(99)


def on(node: int, *devices: int) -> Slot:
    return Slot(NodeId(node), tuple(map(DeviceIndex, devices)), 1000 * len(devices))


def owning(name: str, count: int) -> Tenant:
    """A tenant that is guaranteed so many devices, with plenty of all else."""
    plenty = replace(gpus(count), gpu_memory=1 << 50, disk=1 << 50)
    return replace(a_tenant(name), guaranteed=plenty)


def no(world: World, decision: Decision) -> str:
    return refusal(world.state.cluster, decision, world.now)


# ── a place for a waiting job ───────────────────────────────────────────────────────────


def told(job: JobBuilder, *slots: Slot) -> str:
    """Return what is said to a place for a job, on two nodes, the second of older devices."""
    config = a_config(owning("vision", 16), nodes=2)
    config = replace(config, nodes=(config.nodes[0], a_node(1, kind="V100")))
    world = World(config)
    return no(world, Place(Placement(world.submit(job), slots, GUARANTEED)))


@pytest.mark.parametrize(
    ("slots", "why"),
    [
        ((on(0, 0),), "not one slot for each task"),
        ((on(0, 0), on(0, 1)), ""),
        ((on(0, 0), on(0, 1), on(0, 2)), "not one slot for each task"),
    ],
)
def test_a_gang_has_a_slot_for_each_task(slots: tuple[Slot, ...], why: str) -> None:
    assert told(a_job().tasks(2).gpus(1), *slots) == why


@pytest.mark.parametrize("tasks", range(1, 7))
def test_a_gang_of_variable_size_is_as_large_as_it_may_be(tasks: int) -> None:
    why = "" if 2 <= tasks <= 5 else "a gang of that size was not asked for"
    job = a_job().between(2, 5).gpus(1)
    assert told(job, *(on(0, device) for device in range(tasks))) == why


@pytest.mark.parametrize("tasks", range(2, 8))
def test_a_gang_of_groups_grows_by_whole_groups(tasks: int) -> None:
    why = "a gang of that size was not asked for" if tasks % 2 else ""
    job = a_job().between(2, 8).gpus(1).grouped(2, "node")
    assert told(job, *(on(0, device) for device in range(tasks))) == why


@pytest.mark.parametrize(
    ("types", "slot", "why"),
    [
        ((), on(1, 0), ""),
        (("V100",), on(1, 0), ""),
        (("A100", "V100"), on(1, 0), ""),
        (("A100",), on(1, 0), "not the device type asked for"),
    ],
)
def test_a_task_has_devices_of_a_type_that_it_asked_for(
    types: tuple[str, ...], slot: Slot, why: str
) -> None:
    assert told(a_job().gpus(1).types(*types), slot) == why


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (a_job().cpus(32), ""),
        (a_job().cpus(33), "node 0 has too little CPU, memory or disk"),
        (a_job().memory(257 * GIB), "node 0 has too little CPU, memory or disk"),
        (a_job().disk(501 * GIB), "node 0 has too little CPU, memory or disk"),
    ],
)
def test_the_tasks_of_a_gang_fit_on_their_node_together(task: JobBuilder, why: str) -> None:
    assert told(task.tasks(2).gpus(1), on(0, 0), on(0, 1)) == why


@pytest.mark.parametrize(("each", "why"), [(40, ""), (41, "device 0 of node 0 is in use")])
def test_tasks_on_one_device_share_its_memory(each: int, why: str) -> None:
    job = a_job().tasks(2).gpus(0.5).gpu_memory(each * GIB)
    slots = tuple(Slot(NodeId(0), (DeviceIndex(0),), 500) for _ in range(2))
    assert told(job, *slots) == why


def test_only_a_waiting_job_gets_a_place() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    assert no(world, Place(Placement(NOBODY, (on(0, 0),), GUARANTEED))) == (
        "the job is not waiting"
    )
    assert no(world, Unreserve(NOBODY)) == "nothing is reserved"


# ── a place that others leave first ─────────────────────────────────────────────────────


class Crowd:
    """A tenant's own gang and its guest on one node, and a job of the owner, which waits."""

    def __init__(self) -> None:
        self.world = World(a_config(owning("vision", 4), owning("nlp", 4)))
        self.own, self.guest = (
            self.world.submit(a_job().gpus(4).gpu_memory(30 * GIB)) for _ in range(2)
        )
        self.world.cycle()
        for job in (self.own, self.guest):
            self.world.runs(job)
        self.owner = self.world.submit(a_job().of("nlp").gpus(2).gpu_memory(30 * GIB))
        cluster = self.world.state.cluster
        self.guests = cluster.gangs[self.guest].slots[0].devices
        self.needs = (cluster.pending[self.owner].shape.requests[0].need,)
        self.slots = (on(0, *self.guests[:2]),)
        place = ReservedPlace(self.owner, self.slots, self.needs, GUARANTEED, (self.guest,))
        self.decision = Evict(place, evict=(self.guest,))

    def no(self, **changes: object) -> str:
        """Return what is said to the same eviction with some changes."""
        return no(self.world, replace(self.decision, **changes))

    def place(self, **changes: object) -> ReservedPlace:
        return replace(self.decision.place, **changes)


def test_a_borrower_may_be_evicted_or_suspended_for_an_owner() -> None:
    crowd = Crowd()
    assert crowd.no() == ""
    assert crowd.no(evict=(), suspend=(crowd.guest,)) == ""
    assert crowd.no(place=crowd.place(entitlement=OPPORTUNISTIC)) == (
        f"job {crowd.guest} may not be evicted"
    )


EVICTIONS: dict[str, Callable[[Crowd], dict[str, object]]] = {
    "job 99 is gone already": lambda crowd: {
        "place": crowd.place(victims=(crowd.guest, NOBODY))
    },
    "job 1 may not be evicted": lambda crowd: {
        "place": crowd.place(victims=(crowd.guest, crowd.own)),
        "evict": (crowd.guest, crowd.own),
    },
    "only a gang that is evicted or suspended loses its guarantee": lambda crowd: {
        "demote": (crowd.own,)
    },
    "job 99 has no reserved place to lose": lambda _: {"revoke": (NOBODY,)},
    "the job is not waiting": lambda crowd: {"place": crowd.place(job=NOBODY)},
    "not the number of devices asked for": lambda crowd: {
        "place": crowd.place(slots=(on(0, *crowd.guests[:3]),))
    },
    "only an evicted gang continues elsewhere": lambda crowd: {
        "moves": (crowd.place(job=crowd.own, victims=(crowd.own,)),)
    },
    "a gang that continues elsewhere borrows there": lambda crowd: {
        "moves": (crowd.place(job=crowd.guest),)
    },
}


@pytest.mark.parametrize("why", EVICTIONS)
def test_an_eviction_is_refused_for_one_wrong_thing(why: str) -> None:
    crowd = Crowd()
    assert crowd.no(**EVICTIONS[why](crowd)) == why


def test_a_place_is_reserved_once_and_on_open_nodes() -> None:
    crowd = Crowd()
    crowd.world.do(c.DrainNode(NodeId(0), "new fans"))
    assert crowd.no() == "a part of the place is closed or broken"
    crowd.world.do(c.UndrainNode(NodeId(0)))
    crowd.world.cycle()
    assert crowd.owner in crowd.world.state.cluster.reserved
    assert crowd.no() == "it has a place reserved already"


def test_what_a_suspended_gang_keeps_must_leave_room() -> None:
    crowd = Crowd()
    needs = (replace(crowd.needs[0], gpu_memory=51 * GIB),)
    asked = {"evict": (), "suspend": (crowd.guest,)}
    assert crowd.no(**asked, place=crowd.place(needs=needs)) == (
        "the suspended gangs keep too much of it"
    )
    fits = (replace(crowd.needs[0], gpu_memory=50 * GIB),)
    assert crowd.no(**asked, place=crowd.place(needs=fits)) == ""


def test_only_a_gang_that_runs_can_be_suspended() -> None:
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    guest = world.submit(a_job().gpus(5))
    world.cycle()
    owner = world.submit(a_job().of("nlp").gpus(4))
    cluster = world.state.cluster
    needs = (cluster.pending[owner].shape.requests[0].need,)
    slots = (on(0, *cluster.gangs[guest].slots[0].devices[:4]),)
    place = ReservedPlace(owner, slots, needs, GUARANTEED, (guest,))
    assert no(world, Evict(place, evict=(), suspend=(guest,))) == (
        "only a running gang can be suspended"
    )
    world.runs(guest)
    assert no(world, Evict(place, evict=(), suspend=(guest,))) == ""


def test_a_reserved_place_is_handed_over_as_it_was_made() -> None:
    crowd = Crowd()
    world, cluster = crowd.world, crowd.world.state.cluster
    world.cycle()
    slots = cluster.reserved[crowd.owner].slots
    place = Placement(crowd.owner, slots, GUARANTEED)
    assert no(world, Place(place, reserved=True)) == "the place is not empty yet"
    borrowed = replace(place, entitlement=OPPORTUNISTIC)
    assert no(world, Place(borrowed, reserved=True)) == (
        "the reserved place has another entitlement"
    )
    world.ends(crowd.guest, 143)
    assert no(world, Place(place, reserved=True)) == ""
    config = a_config(owning("vision", 4), owning("nlp", 1))
    world.do(c.ApplyConfig(config))
    assert no(world, Place(place, reserved=True)) == "its tenant's share shrank"


# ── by which entitlement a gang runs on ─────────────────────────────────────────────────


def test_a_borrower_is_promoted_and_no_other() -> None:
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    first, guest = world.submit(a_job().gpus(4)), world.submit(a_job().gpus(2))
    never = world.submit(a_job().gpus(1).opportunistic())
    world.cycle()
    assert no(world, Promote(first)) == "the gang does not borrow"
    assert no(world, Promote(NOBODY)) == "the gang does not borrow"
    assert no(world, Promote(guest)) != ""
    world.runs(first)
    world.ends(first)
    assert no(world, Promote(never)) == "it never counts as its tenant's own"
    assert no(world, Promote(guest)) == ""


@pytest.mark.parametrize(
    ("urgency", "why"),
    [
        (101, ""),
        (100, "it is no less urgent, or is to be left alone"),
        (99, "it is no less urgent, or is to be left alone"),
    ],
)
def test_a_gang_loses_its_guarantee_to_a_more_urgent_job_alone(urgency: int, why: str) -> None:
    tenant = replace(a_tenant("vision", 4), preempt=Preempt.DEMOTE)
    world = World(a_config(tenant, a_tenant("nlp", 4)))
    own, guest = world.submit(a_job().gpus(4)), world.submit(a_job().gpus(2))
    world.cycle()
    waiting = world.submit(a_job().gpus(4).priority(urgency))
    assert no(world, Demote(own, waiting)) == why
    assert no(world, Demote(guest, waiting)) == "the gang has no guarantee to lose"
    assert no(world, Demote(NOBODY, waiting)) == "the gang has no guarantee to lose"
    assert no(world, Demote(own, NOBODY)) == "the job is not waiting"


def test_a_gang_that_was_never_suspended_is_not_resumed() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job().gpus(1))
    world.cycle()
    for each in (job, NOBODY):
        assert no(world, Resume(each, GUARANTEED)) == "the gang does not wait to go on"


# ── reserved places, reservations, and tasks that are given up ──────────────────────────


def test_a_reserved_place_is_taken_over_by_a_guaranteed_job_that_waits() -> None:
    crowd = Crowd()
    crowd.world.cycle()
    cluster = crowd.world.state.cluster
    urgent = crowd.world.submit(a_job().of("nlp").gpus(2).priority(200))
    place = replace(cluster.reserved[crowd.owner], job=urgent)
    decision = Evict(place, evict=(), revoke=(crowd.owner,))
    borrowed = replace(place, entitlement=OPPORTUNISTIC)
    assert no(crowd.world, decision) == f"job {crowd.owner} is no less urgent"
    assert no(crowd.world, replace(decision, place=borrowed)) == (
        "only a guaranteed job takes a place from another"
    )
    assert no(crowd.world, replace(decision, place=replace(place, job=NOBODY))) == (
        f"the place of job {crowd.owner} stays reserved"
    )


@pytest.mark.parametrize(
    ("urgency", "preempt", "why"),
    [
        (200, Preempt.EVICT, ""),
        (100, Preempt.EVICT, "job 3 is no less urgent"),
        (200, Preempt.NONE, "job 3 is no less urgent"),
    ],
)
def test_a_more_urgent_job_of_its_tenant_takes_a_reserved_place_over(
    urgency: int, preempt: Preempt, why: str
) -> None:
    world = World(
        a_config(owning("vision", 4), replace(owning("nlp", 4), preempt=preempt, borrow=False))
    )
    guests = [world.submit(a_job().gpus(4)) for _ in range(2)]
    world.cycle()
    for job in guests:
        world.runs(job)
    owner = world.submit(a_job().of("nlp").gpus(4))
    world.cycle()
    place = world.state.cluster.reserved[owner]
    urgent = world.submit(a_job().of("nlp").gpus(4).priority(urgency))
    assert no(world, Evict(replace(place, job=urgent), evict=(), revoke=(owner,))) == why


def test_a_suspended_gang_has_its_place_reserved_by_its_own_entitlement() -> None:
    world = World(a_config(owning("vision", 4), owning("nlp", 4)))
    owner, other = world.submit(a_job().gpus(4)), world.submit(a_job().of("nlp").gpus(4))
    world.cycle()
    for job in (owner, other):
        world.runs(job)
    world.do(c.SuspendJob(owner))
    guest = world.submit(a_job().of("nlp").gpus(4))
    world.cycle()
    world.runs(guest)
    gang = world.state.cluster.gangs[owner]
    place = ReservedPlace(owner, gang.slots, gang.needs, GUARANTEED, (guest,))
    decision = Evict(place, evict=(guest,))
    assert no(world, decision) == "it may not resume as that"
    world.do(c.ResumeJob(owner))
    assert no(world, decision) == ""
    world.do(c.ApplyConfig(a_config(owning("vision", 1), owning("nlp", 4))))
    assert no(world, decision) == "it may not resume as that"


def test_nothing_is_placed_where_a_reservation_keeps_it_off() -> None:
    crowd = Crowd()
    world = crowd.world
    began = WallTime(world.now + 10)
    world.do(c.ReserveNodes("w", began, WallTime(began + 1000), nodes=(NodeId(0),)))
    place = Placement(crowd.owner, crowd.slots, GUARANTEED)
    assert crowd.no() == "a reservation keeps it off"
    assert no(world, Place(place)) == "a reservation keeps it off"
    world.wait(2000)
    assert crowd.no() == ""


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ((4,), "job 1 may not be made to shrink"),  # as many as it has
        ((3,), ""),
        ((2,), ""),
        ((1,), "job 1 may not be made to shrink"),  # fewer than it can go on with
        ((3, 2), "a gang is to shrink twice"),
    ],
)
def test_an_elastic_gang_shrinks_once_to_no_less_than_it_needs(
    kept: tuple[int, ...], why: str
) -> None:
    world = World(a_config(owning("vision", 0), owning("nlp", 4), devices=4))
    guest = world.submit(a_job().gpus(1).between(2, 4, elastic=True))
    world.cycle()
    world.runs(guest)
    owner = world.submit(a_job().of("nlp").gpus(1))
    cluster = world.state.cluster
    (last,) = cluster.gangs[guest].slots[-1:]
    needs = (cluster.pending[owner].shape.requests[0].need,)
    place = ReservedPlace(owner, (last,), needs, GUARANTEED, ())
    shrink = tuple((guest, tasks) for tasks in kept)
    assert no(world, Evict(place, evict=(), shrink=shrink)) == why


@pytest.mark.parametrize(
    ("nodes", "whole"),
    [
        ((0, 0, 0, 0, 0, 0), True),
        ((0, 0, 1, 1, 0, 0), True),
        ((0, 1, 1, 1, 0, 0), False),
        ((0, 0, 0, 1, 1, 1), False),
        ((1, 1, 0, 0, 0, 1), False),
    ],
)
def test_each_group_of_each_role_lies_together(nodes: tuple[int, ...], whole: bool) -> None:
    workers = replace(a_job().tasks(4).gpus(1).grouped(2, "node").spec().roles[0], name="more")
    job = a_job().tasks(2).gpus(1).grouped(2, "node").also(workers)
    slots = (on(node, device) for device, node in enumerate(nodes))
    assert told(job, *slots) == ("" if whole else "a group of 2 tasks is not within one node")


def test_a_gang_keeps_its_guarantee_until_it_has_run_for_so_long() -> None:
    rules = PreemptRules(min_run_ms=Millis(1000))
    tenant = replace(owning("vision", 4), preempt=Preempt.DEMOTE, preempt_rules=rules)
    world = World(a_config(tenant, owning("nlp", 4)))
    own = world.submit(a_job().gpus(4))
    world.cycle()
    world.wait(500)
    world.runs(own)
    urgent = world.submit(a_job().gpus(4).priority(200))
    world.wait(999)
    assert no(world, Demote(own, urgent)) == "it is no less urgent, or is to be left alone"
    world.wait(1)
    assert no(world, Demote(own, urgent)) == ""
