"""The committer looks again at what queues do not lend: a plan may be wrong, or late."""

import pytest

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Decision, Evict, Place, Promote
from allotment.core.request import needs_of
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
from tests.support.builders import a_job
from tests.support.world import World
from tests.unit.engine.test_queue_lending import BY_TYPE, TWO_TENANTS, grounds, read, submit

OWN, LENT = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
KEPT = "queue a does not lend"


def said(world: World, decision: Decision) -> str:
    return refusal(world.state.cluster, decision, world.now)


def at(world: World, job: JobId, devices: tuple[int, ...], grounds: Entitlement) -> Place:
    slot = Slot(NodeId(0), devices, 1000 * len(devices))
    return Place(Placement(job, (slot,), grounds))


def test_a_place_out_of_what_another_queue_keeps_of_the_share_is_refused() -> None:
    world = World(read(TWO_TENANTS))
    first, second = submit(world, "b", 2), submit(world, "b", 2)
    stale = at(world, second, (2, 3), OWN)
    assert said(world, stale) == "", "four are left, and two of them are kept"
    world.engine.cycle(world.now, budget=1)
    assert grounds(world, first) is OWN
    assert said(world, stale) == KEPT, "by now two are left"
    world.cycle()
    assert grounds(world, second) is LENT, "as the plan has it"
    third = submit(world, "b", 2)
    assert said(world, at(world, third, (4, 5), OWN)) == KEPT
    assert said(world, at(world, third, (4, 5), LENT)) == ""


def test_a_queue_may_have_what_it_is_guaranteed_itself() -> None:
    world = World(read(TWO_TENANTS))
    submit(world, "b", 2)
    world.cycle()
    mine = submit(world, "a", 2)
    assert said(world, at(world, mine, (2, 3), OWN)) == ""


def test_idle_devices_are_kept_from_borrowers_too() -> None:
    world = World(read(TWO_TENANTS))
    for _ in range(5):
        submit(world, "b", 2)
    world.cycle()
    last = submit(world, "b", 2)
    assert said(world, at(world, last, (10, 11), LENT)) == KEPT


@pytest.mark.parametrize("due", [OWN, LENT])
def test_devices_of_a_type_that_is_kept_are_refused(due: Entitlement) -> None:
    world = World(read(BY_TYPE))
    job = submit(world, "b", 1)
    said_of = {
        kind: said(world, at(world, job, (device,), due))
        for kind, device in (("A100", 0), ("T4", 4))
    }
    assert said_of == {"A100": KEPT, "T4": ""}


def test_a_larger_gang_is_looked_at_as_large_as_it_is() -> None:
    world = World(read(TWO_TENANTS))
    id = world.state.next_job
    world.do(c.SubmitJob(a_job().of("lab", "b").gpus(1).between(1, 4).spec()))

    def of(tasks: int) -> Place:
        slots = tuple(Slot(NodeId(0), (task,), 1000) for task in range(tasks))
        return Place(Placement(id, slots, OWN))

    assert [said(world, of(tasks)) for tasks in (1, 2, 3, 4)] == ["", "", KEPT, KEPT]


def test_a_borrower_is_not_promoted_into_what_is_kept() -> None:
    world = World(read(TWO_TENANTS))
    first, second = submit(world, "b", 2), submit(world, "b", 2)
    world.cycle()
    assert (grounds(world, first), grounds(world, second)) == (OWN, LENT)
    assert said(world, Promote(second)) == KEPT


def test_a_reserved_place_out_of_what_is_kept_is_refused() -> None:
    """A guest sits on devices of the tenant's share, and would be sent away for it."""
    world = World(read(TWO_TENANTS + "  guest: {}\n"))
    submit(world, "b", 2)
    world.cycle()
    guest = world.state.next_job
    world.do(c.SubmitJob(a_job().of("guest").gpus(10).spec()))
    world.cycle()
    assert grounds(world, guest) is LENT
    slots = world.state.cluster.gangs[guest].slots[0].devices[:2]

    def evict(queue: str) -> Evict:
        job = submit(world, queue, 2)
        needs = needs_of(world.state.cluster.pending[job].shape.requests)
        place = (Slot(NodeId(0), slots, 2000),)
        return Evict(ReservedPlace(job, place, needs, OWN, (guest,)), (guest,))

    assert said(world, evict("a")) == ""
    assert said(world, evict("b")) == KEPT


CELLS = """
hardware: ["4 x dgx-v100 named n"]
tenants:
  lab:
    preempt: PREEMPT
    cells: {dgx-v100-node: 2}
    queues: {a: {guaranteed: {gpu: 8}, lend: false}, b: {}}
  other: {cells: {dgx-v100-node: 2}}
"""


@pytest.mark.parametrize("preempt", ["evict", "demote"])
def test_an_urgent_job_has_what_others_of_its_queue_have_and_not_what_is_kept(
    preempt: str,
) -> None:
    world = World(read(CELLS.replace("PREEMPT", preempt)))
    low = submit(world, "b", 4)
    world.cycle()
    assert grounds(world, low) is OWN
    urgent = world.state.next_job
    big = a_job().of("lab", "b").gpus(4).tasks(3).priority(900)
    world.do(c.SubmitJob(big.spec()))
    world.cycle()
    assert grounds(world, low) is OWN, "it would not help"
    assert grounds(world, urgent) is LENT, "eight of the 16 are kept for queue a"
    assert not [record for record in world.log if isinstance(record.event, e.AttemptDemoted)]
    mine = submit(world, "a", 8)
    world.cycle()
    assert grounds(world, mine) is OWN


@pytest.mark.parametrize("preempt", ["evict", "demote"])
def test_an_urgent_job_gets_its_place_where_what_is_kept_stays(preempt: str) -> None:
    world = World(read(CELLS.replace("PREEMPT", preempt)))
    low = submit(world, "b", 8)
    world.cycle()
    world.runs(low)
    urgent = world.state.next_job
    world.do(c.SubmitJob(a_job().of("lab", "b").gpus(8).priority(900).spec()))
    world.cycle()
    if preempt == "evict":
        world.ends(low, code=143)
        world.cycle()
    assert grounds(world, urgent) is OWN
