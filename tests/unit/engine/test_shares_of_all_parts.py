"""A tenant is held to every part of its guarantee, and gets every part of it back."""

from functools import partial

import msgspec
import pytest

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.engine.apply import apply
from allotment.engine.evicted import evicted_for
from allotment.engine.foresee import foresee
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.errors import Rejected
from allotment.model.events import AttemptDemoted, AttemptPlaced, AttemptPromoted
from allotment.model.ids import SYSTEM, JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.quantity import GIB, Resources
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, Preempt, QueueOrder, ShareBy
from allotment.policies.ordering.priority import ByPriority
from allotment.policies.rescheduling.taking_turns import TakingTurns
from allotment.policies.turns.at_once import AtOnce
from tests.support import world as worlds
from tests.support.builders import POLICIES, JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World

OWN, BORROWED = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
PARTS = ["disk", "gpu_memory"]


def of(disk: int, gpu_memory: int, devices: int = 4) -> Resources:
    """Return a guarantee in GiB; of the host's CPU and memory there is enough for everybody."""
    return msgspec.structs.replace(gpus(devices), disk=disk * GIB, gpu_memory=gpu_memory * GIB)


def two(lab: Resources, team: Resources, *, borrow: bool = True, **terms: object) -> Config:
    """Let two tenants share one machine of 8 devices of 80 GiB, and 1000 GiB of disk."""
    tenants = [
        msgspec.structs.replace(
            a_tenant(name, borrow=borrow, order=QueueOrder.SKIP), guaranteed=share
        )
        for name, share in (("lab", lab), ("team", team))
    ]
    return msgspec.structs.replace(a_config(*tenants), **terms)


HALVES = two(of(500, 320), of(500, 320))


def a_job_with(part: str, share: float, tenant: str = "lab") -> JobBuilder:
    """Ask for a quarter of a device, and for so much of what one machine has of a part."""
    job = a_job().of(tenant).gpus(0.25)
    if part == "disk":
        return job.disk(round(share * 1000 * GIB))
    devices = round(share * 8)
    return job.gpus(0.25).tasks(devices).gpu_memory(80 * GIB)


def grounds(world: World, job: JobId) -> Entitlement | None:
    attempt = world.job(job).attempt
    return attempt.entitlement if attempt is not None else None


@pytest.mark.parametrize("part", PARTS)
def test_beyond_any_part_of_its_guarantee_a_tenant_borrows(part: str) -> None:
    world = World(HALVES)
    first, second = (world.submit(a_job_with(part, 0.5)) for _ in range(2))
    world.cycle()
    assert (grounds(world, first), grounds(world, second)) == (OWN, BORROWED)


@pytest.mark.parametrize("part", PARTS)
def test_a_tenant_that_lent_any_part_gets_it_back(part: str) -> None:
    world = World(HALVES)
    first, second = (world.submit(a_job_with(part, 0.5)) for _ in range(2))
    world.cycle()
    world.runs(first)
    world.runs(second)
    owner = world.submit(a_job_with(part, 0.5, "team"))
    world.cycle()
    assert sorted(world.state.cluster.placed.leaving) == [second]
    world.ends(second, 143)
    world.cycle()
    assert grounds(world, owner) is OWN
    assert world.is_(first) is JobState.RUNNING


@pytest.mark.parametrize("part", PARTS)
def test_a_job_that_may_not_borrow_waits_for_its_own(part: str) -> None:
    world = World(two(of(500, 320), of(500, 320), borrow=False))
    first, second = (world.submit(a_job_with(part, 0.5)) for _ in range(2))
    world.cycle()
    assert grounds(world, second) is None
    blocked = world.why(second)
    assert blocked.reason is Reason.QUOTA
    assert {"disk": "500 GiB disk", "gpu_memory": "320 GiB GPU memory"}[part] in blocked.message
    world.runs(first)
    world.ends(first)
    world.cycle()
    assert grounds(world, second) is OWN


@pytest.mark.parametrize("part", PARTS)
def test_more_than_the_share_of_who_may_not_borrow_is_refused(part: str) -> None:
    world = World(two(of(500, 320), of(500, 320), borrow=False))
    with pytest.raises(Rejected) as refused:
        world.submit(a_job_with(part, 0.75))
    assert {"disk": "750 GiB disk", "gpu_memory": "480 GiB GPU memory"}[part] in str(
        refused.value
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_smaller_guarantee_of_a_part_demotes_only_who_holds_it(part: str) -> None:
    world = World(HALVES)
    other = world.submit(a_job().of("lab").gpus(0.5))
    holder = world.submit(a_job_with(part, 0.5))
    newest = world.submit(a_job().of("lab").gpus(0.5))
    world.cycle()
    assert {grounds(world, job) for job in (other, holder, newest)} == {OWN}
    world.do(c.ApplyConfig(two(of(100, 80), of(500, 320))))
    assert [grounds(world, job) for job in (other, holder, newest)] == [OWN, BORROWED, OWN]


@pytest.mark.parametrize("part", PARTS)
def test_what_an_older_version_let_exceed_a_part_is_demoted_at_the_next_start(
    part: str,
) -> None:
    world = World(HALVES)
    first, second = (world.submit(a_job_with(part, 0.5)) for _ in range(2))
    world.cycle()
    # So it stands in the log of a version that did not count this part.
    promoted = AttemptPromoted(second, world.job(second).attempts[-1].no)
    world.engine.emit(promoted, SYSTEM, world.now)
    start = c.ApplyConfig(HALVES)
    image = msgspec.msgpack.encode(world.state.image())
    foreseen = foresee(image, HALVES, world.state, world.now)
    assert [loss.job for loss in foreseen.demoted] == [second]
    assert len(world.do(start)) == 1
    assert (grounds(world, first), grounds(world, second)) == (OWN, BORROWED)
    assert not world.do(start)
    again = State(POLICIES)
    for record in world.log:
        apply(again, record)
    assert again.image() == world.state.image()


def test_a_job_that_fits_beside_those_that_stay_keeps_its_guarantee() -> None:
    world = World(HALVES)
    large = world.submit(a_job_with("disk", 0.3))
    small = world.submit(a_job_with("disk", 0.08))
    world.cycle()
    world.do(c.ApplyConfig(two(of(100, 320), of(500, 320))))
    assert [grounds(world, job) for job in (large, small)] == [BORROWED, OWN]


@pytest.mark.parametrize("part", ["disk", "gpu_memory"])
def test_in_cells_what_suspended_jobs_keep_takes_nobodys_guarantee(part: str) -> None:
    world = in_hosts(1, 0, 0)
    frozen = [suspended(world, a_large_job(part, "a")) for _ in range(2)]
    running = world.submit(a_large_job(part, "a"))
    world.cycle()
    config = world.state.config
    limits = msgspec.structs.replace(config.limits, keep_finished=7)
    world.do(c.ApplyConfig(msgspec.structs.replace(config, limits=limits)))
    assert [grounds(world, job) for job in (*frozen, running)] == [OWN, OWN, OWN]


def test_what_a_suspended_job_keeps_of_its_devices_memory_counts_on() -> None:
    world = World(HALVES)
    job = world.submit(a_job().of("lab").gpus(2).gpu_memory(80 * GIB).disk(100 * GIB))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    held = world.state.cluster.queues.tenants["lab"].own()
    assert held == Resources(memory=GIB, disk=100 * GIB, gpu_memory=160 * GIB)
    assert world.state.cluster.ledger.free().gpu_memory == (8 - 2) * 80 * GIB


def test_the_cap_of_a_user_counts_what_a_suspended_job_keeps() -> None:
    cap = Resources(gpu_memory=200 * GIB)
    config = two(of(500, 320), of(500, 320))
    capped = tuple(msgspec.structs.replace(tenant, per_user=cap) for tenant in config.tenants)
    world = World(msgspec.structs.replace(config, tenants=capped))
    first, second = (
        world.submit(a_job().of("lab").gpus(2).gpu_memory(80 * GIB)) for _ in range(2)
    )
    world.cycle()
    world.runs(first)
    world.do(c.SuspendJob(first))
    world.cycle()
    assert world.why(second).reason is Reason.USER_CAP
    world.do(c.CancelJob(first))
    world.ends(first, 143)
    world.cycle()
    assert grounds(world, second) is OWN


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_a_job_that_is_more_urgent_takes_its_tenants_share_of_any_part(
    part: str, preempt: Preempt
) -> None:
    tenants = tuple(
        msgspec.structs.replace(tenant, preempt=preempt, borrow=preempt is Preempt.DEMOTE)
        for tenant in HALVES.tenants
    )
    world = World(msgspec.structs.replace(HALVES, tenants=tenants))
    low = world.submit(a_job_with(part, 0.5).priority(10))
    world.cycle()
    world.runs(low)
    urgent = world.submit(a_job_with(part, 0.5).priority(900))
    world.cycle()
    if world.state.cluster.placed.leaving:
        world.ends(low, 143)
        world.cycle()
    assert grounds(world, urgent) is OWN
    assert grounds(world, low) is not OWN


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("rule", "first"), [(ShareBy.DRF, "team"), (ShareBy.MAX_MIN, "lab")])
def test_the_dominant_share_may_be_of_any_part(part: str, rule: ShareBy, first: str) -> None:
    """Lab holds fewer devices than team, and a larger part of something else."""
    world = World(two(Resources(), Resources(), share=rule))
    world.submit(a_job_with(part, 0.5))
    world.submit(a_job().of("team").gpus(2))
    world.cycle()
    for tenant in ("lab", "team"):
        world.submit(a_job().of(tenant).gpus(1))
    world.cycle()
    placed = [record.event for record in world.log if isinstance(record.event, AttemptPlaced)]
    assert world.job(placed[2].job).spec.tenant == first


# ── in cells, what suspended jobs keep ──────────────────────────────────────────────────

HOSTS = Topology(
    (CellType("host", "A100", 8, is_node=True),),
    tuple(RootCell("host", f"h{at}", (NodeId(at),)) for at in range(3)),
)
KEPT = ["memory", "disk", "gpu_memory"]


def in_hosts(*owned: int, **terms: object) -> World:
    """Let tenants a, b, c own so many of three machines."""
    tenants = tuple(
        msgspec.structs.replace(
            a_tenant(name, order=QueueOrder.SKIP),
            guaranteed=of(1000, 640, 8) * count,
            cells=(CellShare("host", count),),
            **terms,
        )
        for name, count in zip("abc", owned, strict=True)
    )
    return World(msgspec.structs.replace(a_config(*tenants, nodes=3), topology=HOSTS))


def a_large_job(part: str, tenant: str) -> JobBuilder:
    """Ask for a whole machine's devices, and for most of one more part of it."""
    job = a_job().of(tenant).gpus(8)
    if part == "memory":
        return job.memory(400 * GIB)
    return job.disk(800 * GIB) if part == "disk" else job.gpu_memory(80 * GIB)


def suspended(world: World, job: JobBuilder) -> JobId:
    """Let a job run, and freeze it."""
    id = world.submit(job)
    world.cycle()
    world.runs(id)
    world.do(c.SuspendJob(id))
    world.cycle()
    return id


def node_of(world: World, job: JobId) -> int:
    attempt = world.job(job).attempt
    assert attempt is not None
    return attempt.slots[0].node


@pytest.mark.parametrize("part", KEPT)
def test_an_owner_is_put_where_no_suspended_job_keeps_what_it_needs(part: str) -> None:
    world = in_hosts(1, 1, 0)
    frozen = suspended(world, a_large_job(part, "a"))
    for tenant in "ab":
        owner = world.submit(a_large_job(part, tenant))
        world.cycle()
        assert grounds(world, owner) is OWN
        assert node_of(world, owner) != node_of(world, frozen)


@pytest.mark.parametrize("part", KEPT)
@pytest.mark.parametrize("owned", [(0, 3, 0), (1, 2, 0)], ids=["borrowed", "own"])
def test_a_suspended_job_goes_where_what_it_keeps_is_in_the_way_of_an_owner(
    part: str, owned: tuple[int, int, int]
) -> None:
    world = in_hosts(*owned)
    frozen = [suspended(world, a_large_job(part, "a"))]
    owners = [world.submit(a_large_job(part, "b")) for _ in range(2)]
    world.cycle()
    assert all(grounds(world, owner) is OWN for owner in owners), "there is room beside it"
    for owner in owners:
        world.runs(owner)
        world.do(c.SuspendJob(owner))
    last = world.submit(a_large_job(part, "b"))
    world.cycle()
    assert sorted(world.state.cluster.placed.leaving) == frozen, "of its own tenant nobody goes"
    told = evicted_for(world.state, world.job(frozen[0]))
    assert f"was reclaimed for job {last} of b" in told
    assert not any(isinstance(record.event, AttemptDemoted) for record in world.log)
    world.ends(frozen[0], 143)
    world.cycle()
    assert grounds(world, last) is OWN


def test_a_suspended_job_that_may_not_be_preempted_stays() -> None:
    world = in_hosts(1, 2, 0)
    suspended(world, a_large_job("disk", "a").not_preemptible())
    for _ in range(2):
        suspended(world, a_large_job("disk", "b"))
    last = world.submit(a_large_job("disk", "b"))
    world.cycle()
    assert not world.state.cluster.placed.leaving
    assert "keep too much of the CPU, memory, disk or device memory" in world.why(last).message


@pytest.mark.parametrize("part", KEPT)
def test_a_borrower_keeps_off_what_suspended_jobs_keep(part: str) -> None:
    world = in_hosts(0, 0, 0)
    frozen = [suspended(world, a_large_job(part, "a")) for _ in range(2)]
    borrower, other = (world.submit(a_large_job(part, "b")) for _ in range(2))
    world.cycle()
    assert node_of(world, borrower) not in {node_of(world, job) for job in frozen}
    assert grounds(world, other) is None


def in_devices(**owned: int) -> World:
    """Let tenants own so many of the devices of one machine."""
    tenants = tuple(
        msgspec.structs.replace(
            a_tenant(name, order=QueueOrder.SKIP),
            guaranteed=of(125, 80, 1) * count,
            cells=(CellShare("A100", count),) if count else (),
        )
        for name, count in owned.items()
    )
    topology = Topology(HOSTS.types, HOSTS.roots[:1])
    return World(msgspec.structs.replace(a_config(*tenants), topology=topology))


def a_wide_job(tenant: str) -> JobBuilder:
    """Ask for one device, and for most of its memory."""
    return a_job().of(tenant).gpus(1).gpu_memory(60 * GIB)


def devices_of(world: World, job: JobId) -> tuple[int, ...]:
    attempt = world.job(job).attempt
    assert attempt is not None
    return attempt.slots[0].devices


def test_beside_a_device_of_which_a_suspended_job_keeps_the_memory_there_is_room() -> None:
    world = in_devices(a=4, b=4)
    frozen = suspended(world, a_wide_job("a"))
    owners = [world.submit(a_wide_job(tenant)) for tenant in "ab"]
    world.cycle()
    assert not world.state.cluster.placed.leaving
    for owner in owners:
        assert grounds(world, owner) is OWN
        assert devices_of(world, owner) != devices_of(world, frozen)


@pytest.mark.parametrize("part", KEPT)
def test_a_suspended_job_that_keeps_little_of_a_machine_leaves_room_there(part: str) -> None:
    world = in_hosts(1, 2, 0)
    much, little = a_large_job(part, "b"), a_job().of("b").gpus(8).memory(GIB)
    jobs = [world.submit(job) for job in (much, little, a_job().of("a").gpus(8))]
    world.cycle()
    for job in jobs:
        world.runs(job)
    for job in jobs[:2]:
        world.do(c.SuspendJob(job))
    owner = world.submit(a_large_job(part, "b"))
    world.cycle()
    assert grounds(world, owner) is OWN
    assert node_of(world, owner) == node_of(world, jobs[1])


def with_most(part: str, amount: int) -> JobBuilder:
    """Ask for a whole machine's devices, and for so many GiB of one part of it."""
    job = a_job().of("b").gpus(8)
    if part == "gpu_memory":
        return job.gpu_memory(amount * GIB)
    return job.memory(amount * GIB) if part == "memory" else job.disk(amount * GIB)


@pytest.mark.parametrize(
    ("part", "there"), [("memory", 512), ("disk", 1000), ("gpu_memory", 80)]
)
@pytest.mark.parametrize("more", [0, 1])
def test_beside_a_suspended_job_fits_just_what_it_leaves(
    part: str, there: int, more: int
) -> None:
    world = in_hosts(1, 2, 0)
    jobs = [world.submit(with_most(part, there * 3 // 4 - less)) for less in (0, 40)]
    jobs.append(world.submit(a_job().of("a").gpus(8)))
    world.cycle()
    for job in jobs:
        world.runs(job)
    for job in jobs[:2]:
        world.do(c.SuspendJob(job))
    left = there - (there * 3 // 4 - 40)
    owner = world.submit(with_most(part, left + more))
    world.cycle()
    if more:
        assert grounds(world, owner) is None
    else:
        assert grounds(world, owner) is OWN
        assert node_of(world, owner) == node_of(world, jobs[1])


def test_tasks_that_are_too_many_beside_a_suspended_job_lie_elsewhere_together() -> None:
    world = in_hosts(0, 2, 0)
    frozen = suspended(world, a_job().of("b").gpus(8).disk(300 * GIB))
    many = world.submit(a_job().of("b").tasks(8).gpus(1).disk(100 * GIB))
    world.cycle()
    assert grounds(world, many) is OWN
    assert node_of(world, many) != node_of(world, frozen)


def running(world: World, job: JobBuilder) -> JobId:
    id = world.submit(job)
    world.cycle()
    world.runs(id)
    return id


def test_nobody_goes_from_devices_beside_those_that_an_owner_gets() -> None:
    world = in_devices(a=4, b=4, c=0)
    frozen = [running(world, a_wide_job("a")) for _ in range(8)]
    for job in frozen:
        world.do(c.SuspendJob(job))
    for _ in range(6):
        running(world, a_job().of("c").gpus(1).gpu_memory(20 * GIB))
    owner = world.submit(a_wide_job("b"))
    world.cycle()
    gone = list(world.state.cluster.placed.leaving)
    assert len(gone) == 1
    world.ends(gone[0], 143)
    world.cycle()
    assert grounds(world, owner) is OWN
    assert gone[0] in frozen


@pytest.mark.parametrize(("kept", "borrowed"), [(250, 50), (10, 300)])
def test_a_job_that_runs_goes_for_memory_only_if_no_suspended_job_will_do(
    kept: int, borrowed: int
) -> None:
    world = in_devices(a=4, b=4, c=0)
    frozen = suspended(world, a_job().of("a").gpus(4).memory(kept * GIB))
    runs = running(world, a_job().of("c").gpus(1).memory(borrowed * GIB))
    idle = running(world, a_job().of("c").gpus(1).memory(GIB))
    owner = world.submit(a_job().of("b").gpus(4).memory(256 * GIB))
    world.cycle()
    gone = frozen if kept > borrowed else runs
    assert sorted(world.state.cluster.placed.leaving) == [gone]
    assert world.is_(idle) is JobState.RUNNING
    world.ends(gone, 143)
    world.cycle()
    assert grounds(world, owner) is OWN


@pytest.mark.parametrize("device", [0, 1])
def test_a_suspended_job_may_not_be_evicted_where_it_keeps_nothing_of_what_is_needed(
    device: int,
) -> None:
    world = in_devices(a=4, b=4)
    frozen = suspended(world, a_wide_job("a").memory(0))
    assert devices_of(world, frozen) == (0,)
    owner = world.state.next_job
    world.do(c.SubmitJob(a_wide_job("b").spec()))
    (need,) = (request.need for request in world.state.cluster.pending[owner].shape.requests)
    slots = (Slot(NodeId(0), (device,), need.gpu_milli),)
    promise = ReservedPlace(owner, slots, (need,), OWN, (frozen,), ("A100",))
    wrong = refusal(world.state.cluster, Evict(promise, (frozen,)), world.now)
    assert wrong == ("" if device == 0 else f"job {frozen} may not be evicted")


def with_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let who is more urgent take turns with others at any moment."""
    policies = msgspec.structs.replace(
        POLICIES, ordering=ByPriority(), rescheduler=partial(TakingTurns, turns=AtOnce())
    )
    monkeypatch.setattr(worlds, "POLICIES", policies)


@pytest.mark.parametrize("part", KEPT)
@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.NONE], ids=["urgent", "turn"])
@pytest.mark.parametrize("priorities", [(10, 20), (20, 10)])
def test_a_job_that_is_more_urgent_goes_where_no_suspended_job_keeps_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, part: str, preempt: Preempt, priorities: tuple[int, int]
) -> None:
    if preempt is Preempt.NONE:
        with_turns(monkeypatch)
    world = in_hosts(2, 0, 0, preempt=preempt, borrow=False)
    frozen = suspended(world, a_large_job(part, "a").priority(950))
    low = [running(world, a_job().of("a").gpus(8).priority(p)) for p in priorities]
    (beside,) = (job for job in low if node_of(world, job) != node_of(world, frozen))
    urgent = world.submit(a_large_job(part, "a").priority(900))
    world.cycle()
    assert sorted(world.state.cluster.placed.leaving) == [beside]
    world.ends(beside, 143)
    world.cycle()
    assert grounds(world, urgent) is OWN


def test_whose_turn_it_is_gets_also_what_a_suspended_job_keeps_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_turns(monkeypatch)
    world = in_hosts(2, 1, 0)
    frozen = [suspended(world, a_large_job("disk", "a").priority(950)) for _ in range(2)]
    frozen += [suspended(world, a_large_job("disk", "b").priority(950))]
    low = running(world, a_job().of("b").gpus(8).priority(10))
    owner = world.submit(a_large_job("disk", "b").priority(900))
    world.cycle()
    gone = sorted(world.state.cluster.placed.leaving)
    assert low in gone
    assert set(gone) - {low} < set(frozen[:2])
    for job in gone:
        world.ends(job, 143)
    world.cycle()
    assert grounds(world, owner) is OWN


# ── in cells, machines that are not alike ───────────────────────────────────────────────


def on_machines(*machines: tuple[int, int], borrow: bool = True) -> Config:
    """Let a own 8 devices, on machines with so much disk and memory of each device."""
    config = a_config(a_tenant("a"), nodes=len(machines))
    nodes = tuple(
        msgspec.structs.replace(
            node,
            disk=disk * GIB,
            devices=tuple(
                msgspec.structs.replace(device, memory=memory * GIB) for device in node.devices
            ),
        )
        for node, (disk, memory) in zip(config.nodes, machines, strict=True)
    )
    least = of(min(disk for disk, _ in machines), 8 * min(memory for _, memory in machines), 8)
    tenant = msgspec.structs.replace(
        a_tenant("a", order=QueueOrder.SKIP, borrow=borrow),
        guaranteed=least,
        cells=(CellShare("A100", 8),),
    )
    topology = Topology(HOSTS.types, HOSTS.roots[: len(machines)])
    return msgspec.structs.replace(config, tenants=(tenant,), nodes=nodes, topology=topology)


@pytest.mark.parametrize("devices", [0.25, 1])
def test_a_job_that_has_more_memory_of_a_device_than_the_smallest_of_its_cells_borrows(
    devices: float,
) -> None:
    world = World(on_machines((1000, 80)))
    job = running(world, a_job().of("a").gpus(devices).gpu_memory(60 * GIB))
    assert grounds(world, job) is OWN
    world.do(c.ApplyConfig(on_machines((1000, 80), (1000, 40))))
    world.cycle()
    assert grounds(world, job) is BORROWED
    world.do(c.ApplyConfig(on_machines((1000, 80))))
    world.cycle()
    assert grounds(world, job) is OWN


@pytest.mark.parametrize("devices", [0, 0.25, 1, 8])
def test_what_the_poorest_machine_of_its_cells_has_nothing_of_is_borrowed(
    devices: float,
) -> None:
    world = World(on_machines((0, 80), (1000, 80)))
    job = world.submit(a_job().of("a").gpus(devices).disk(100 * GIB))
    world.cycle()
    assert grounds(world, job) is BORROWED
    assert node_of(world, job) == 1


def test_what_no_cell_has_anything_of_is_refused_to_who_may_not_borrow() -> None:
    world = World(on_machines((0, 80), (1000, 80), borrow=False))
    with pytest.raises(Rejected, match="100 GiB disk: that is larger than what tenant a owns"):
        world.submit(a_job().of("a").gpus(1).disk(100 * GIB))


def test_a_job_that_has_of_a_part_what_the_poorest_machine_lacks_altogether_borrows() -> None:
    world = World(on_machines((1000, 80)))
    job = running(world, a_job().of("a").gpus(1).disk(100 * GIB))
    assert grounds(world, job) is OWN
    world.do(c.ApplyConfig(on_machines((1000, 80), (0, 80))))
    world.cycle()
    assert grounds(world, job) is BORROWED


@pytest.mark.parametrize(("disk", "by"), [(400, OWN), (399, BORROWED)])
def test_what_a_suspended_job_keeps_counts_where_a_guarantee_is_cut(
    disk: int, by: Entitlement
) -> None:
    world = World(HALVES)
    job = suspended(world, a_job_with("disk", 0.4))
    world.do(c.ApplyConfig(two(of(disk, 320), of(500, 320))))
    assert grounds(world, job) is by


def test_in_cells_what_a_suspended_job_keeps_is_on_sufferance_where_a_guarantee_is_cut() -> (
    None
):
    world = in_hosts(1, 1, 0)
    job = suspended(world, a_large_job("disk", "a"))
    tenants = tuple(
        msgspec.structs.replace(tenant, guaranteed=of(700, 640, 8))
        for tenant in world.state.config.tenants
    )
    world.do(c.ApplyConfig(msgspec.structs.replace(world.state.config, tenants=tenants)))
    assert grounds(world, job) is OWN
