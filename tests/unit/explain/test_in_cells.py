"""What a job that waits for cells is told."""

from allotment.model import commands as c
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.reasons import Reason
from tests.support.builders import JobBuilder, a_job
from tests.support.cells import a_cell_world, cell_config
from tests.support.world import World

CELLS = """\
hardware:
  - 4 x dgx-v100 in racks of 2
cells:
  pins: [{id: own, type: dgx-v100-socket, node: n4, device: 4}]
tenants:
  vision: {cells: {dgx-v100-node: 2}, pins: [own], borrow: %s, preempt: %s}
  nlp: {cells: {dgx-v100-node: 1}}
  guest: {}
"""


def a_world(borrow: str = "true", preempt: str = "none") -> World:
    return a_cell_world(CELLS % (borrow, preempt))


def placed(world: World, *jobs: JobBuilder) -> list[JobId]:
    ids = [world.submit(job) for job in jobs]
    world.cycle()
    return ids


def node() -> JobBuilder:
    return a_job().of("vision").gpus(8)


def told(world: World, job: JobId) -> tuple[Reason, str]:
    why = world.why(job)
    return why.reason, why.message


def test_a_job_that_may_not_borrow_waits_for_its_own_tenant() -> None:
    world = a_world(borrow="false")
    *_, last = placed(world, node(), node().gpus(4), a_job().of("nlp").gpus(1), node())
    assert told(world, last) == (
        Reason.QUOTA,
        "It needs 8 V100 in one dgx-v100-node. Tenant vision owns: 2 dgx-v100-node, 2 in use "
        "by job 1, job 2 (with 4 V100 left). The tenant may not borrow.",
    )
    assert [holder.job for holder in world.why(last).holders] == [1, 2]


def test_what_is_free_in_parts_is_fragmented() -> None:
    world = a_world(borrow="false")
    *_, last = placed(world, node().gpus(5), node().gpus(5), node().gpus(4))
    reason, message = told(world, last)
    assert reason is Reason.FRAGMENTED
    assert message.startswith("Enough is free in its tenant's cells in sum, but not together.")


def test_a_job_that_may_not_be_preempted_says_so() -> None:
    world = a_world()
    *_, last = placed(world, node(), node(), node().not_preemptible())
    reason, message = told(world, last)
    assert reason is Reason.QUOTA
    assert message.endswith("This job may not be preempted, so it may not borrow.")


def test_a_pinned_job_waits_for_its_pinned_cell() -> None:
    world = a_world()
    pinned = a_job().of("vision").gpus(3).pinned("own")
    *_, last = placed(world, pinned, pinned)
    assert told(world, last) == (
        Reason.QUOTA,
        "It needs 3 V100 in one dgx-v100-node. The pinned cell own: 1 dgx-v100-socket, 1 in "
        "use by job 1 (with 1 V100 left). With `pin` it runs nowhere else.",
    )


def test_a_job_that_may_borrow_waits_for_whoever_is_first() -> None:
    world = a_world()
    *_, last = placed(
        world, node().tasks(2), a_job().of("nlp").gpus(8), a_job().of("guest").gpus(6), node()
    )
    assert told(world, last) == (
        Reason.CAPACITY,
        "It needs 8 V100 in one dgx-v100-node. Tenant vision owns: 2 dgx-v100-node, 2 in use "
        "by job 1. Too little is idle to borrow: 2 V100.",
    )


def test_what_lies_idle_apart_is_fragmented() -> None:
    world = a_world()
    guest = a_job().of("guest").gpus(5)
    *_, last = placed(world, guest, guest, guest, guest, a_job().of("guest").gpus(8))
    reason, message = told(world, last)
    assert reason is Reason.FRAGMENTED
    assert message.startswith(
        "It needs 8 V100 in one dgx-v100-node. Its tenant owns no cells, so it can only "
        "borrow. Enough is idle in sum (12 V100), but not together"
    )


def test_an_opportunistic_job_waits_for_what_is_idle() -> None:
    world = a_world()
    jobs = placed(world, *[node().opportunistic() for _ in range(5)])
    reason, message = told(world, jobs[-1])
    assert (reason, message.split(".")[1]) == (
        Reason.CAPACITY,
        " It runs only on idle resources",
    )


def test_lost_hardware_is_named() -> None:
    world = a_world(borrow="false")
    for number in range(3):
        world.do(c.DrainNode(NodeId(number)))
    *_, last = placed(world, node(), node())
    why = world.why(last)
    assert why.reason is Reason.NODES_UNAVAILABLE
    assert "lost to hardware that is down" in why.message
    assert why.hint.startswith("Out of use are n1, n2, n3.")


def test_idle_devices_that_are_kept_for_the_larger_cells_of_others_are_named() -> None:
    world = a_cell_world(
        "hardware:\n  - 3 x dgx-v100\n"
        "tenants:\n  small: {cells: {V100: 6}, borrow: false}\n"
        "  large: {cells: {dgx-v100-node: 1}}\n"
        "  busy: {cells: {dgx-v100-node: 1}}\n"
    )
    bad = [(NodeId(0), DeviceIndex(device)) for device in range(5)]
    bad.append((NodeId(1), DeviceIndex(0)))
    world.do(c.DeclareHealth(tuple(bad), ok=False))
    placed(world, a_job().of("busy").gpus(8))
    *_, last = placed(world, *[a_job().of("small").gpus(1) for _ in range(4)])
    reason, message = told(world, last)
    assert reason is Reason.NODES_UNAVAILABLE
    assert message.endswith(
        "7 V100 on n2 are idle and up, but kept for larger cells that others own: "
        "1 dgx-v100-node of large."
    )


def test_a_reserved_place_is_named_with_who_must_go() -> None:
    world = a_world()
    borrowers = placed(world, *[a_job().of("guest").gpus(8) for _ in range(4)])
    (owner,) = placed(world, node().tasks(2))
    reason, message = told(world, owner)
    assert reason is Reason.WAITING_FOR_VICTIMS
    assert message.endswith("is reserved; 2 borrowers must leave it first.")
    assert {holder.job for holder in world.why(owner).holders} < set(borrowers)


def test_own_less_urgent_jobs_that_must_go_are_no_borrowers() -> None:
    world = a_world(borrow="false", preempt="evict")
    placed(world, node(), node())
    (urgent,) = placed(world, node().priority(500))
    assert told(world, urgent)[1].endswith(
        "is reserved; 1 job of its own tenant must leave it first."
    )


def test_who_is_behind_names_who_really_stands_in_the_way() -> None:
    world = a_world(borrow="false")
    placed(world, node().gpus(6))
    _, big, small = placed(world, node().pinned("own").gpus(4), node().tasks(2), node().gpus(2))
    assert told(world, big)[0] is Reason.FRAGMENTED or told(world, big)[0] is Reason.QUOTA
    assert told(world, small) == (
        Reason.BEHIND,
        f"Job {big} is before it in queue default, in which no job overtakes a blocked job.",
    )


def test_cells_that_were_taken_away_are_told() -> None:
    world = a_world(borrow="false")
    *_, last = placed(world, node(), node(), node().tasks(2))
    less = (CELLS % ("false", "none")).replace("dgx-v100-node: 2}", "dgx-v100-node: 1}")
    world.do(c.ApplyConfig(cell_config(less)))
    assert told(world, last) == (
        Reason.NEVER_FITS_NOW,
        "It is larger than the cells that tenant vision has now (1 dgx-v100-node (8 × V100)), "
        "and it may not borrow.",
    )


def test_what_others_own_may_be_in_between() -> None:
    world = a_world()
    spread = node().tasks(2).within_one("rack").not_preemptible()
    world.do(c.DrainNode(NodeId(2)))  # Or else it goes where the pinned cell is.
    placed(world, a_job().of("nlp").gpus(1))
    world.do(c.UndrainNode(NodeId(2)))
    (last,) = placed(world, spread)
    reason, message = told(world, last)
    assert reason is Reason.CAPACITY
    assert message.endswith("cells of other tenants lie between its own.")
