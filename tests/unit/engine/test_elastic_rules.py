"""What gangs give up counts, is checked, and is protected, like what they lose whole."""

import msgspec
import pytest

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.budget import GPU_HOUR, Budget, Every
from allotment.model.errors import Rejected
from allotment.model.ids import DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Preempt
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.cells import a_cell_world, cell_config
from tests.support.world import World
from tests.unit.engine.test_queue_limits import config_of
from tests.unit.engine.test_queue_shares import tree

OWN = """\
hardware: [2 x dgx-v100]
tenants:
  vision: {cells: {dgx-v100-node: 1}, preempt: evict, preempt_rules: {%s}}
  guest: {}
"""


def elastic(least: int, most: int) -> JobBuilder:
    return a_job().gpus(1).between(least, most, elastic=True)


def running(world: World, builder: JobBuilder) -> JobId:
    job = world.submit(builder)
    world.cycle()
    world.runs(job)
    return job


def staying(world: World, job: JobId) -> int:
    return world.job(job).attempts[-1].staying


def surplus_ends(world: World, job: JobId) -> None:
    attempt = world.job(job).attempts[-1]
    for index in range(attempt.staying, len(attempt.slots)):
        world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)


def lent() -> World:
    return World(a_config(a_tenant("vision", 8), a_tenant("nlp")))


# ── what is counted ─────────────────────────────────────────────────────────────────────


def test_a_queue_holds_surplus_until_it_is_gone_and_one_job_all_the_time() -> None:
    """The world is audited after every step, its accounts too."""
    queues = "queues: {default: {limit: {gpu: 8, gpu_by_type: {V100: 8}}, max_jobs: 1}}"
    world = World(config_of(f"  vision: {{guaranteed: {{gpu: 16}}}}\n  nlp: {{{queues}}}\n"))
    borrower = running(world, elastic(2, 8).of("nlp"))
    [account] = world.state.cluster.queues.of(("nlp", "default", "", ""))
    assert account.use["gpu"] == 8000
    world.submit(a_job().gpus(8))
    world.submit(a_job().gpus(3))
    world.cycle()
    assert staying(world, borrower) == 5
    assert (account.use["gpu"], account.use["jobs"]) == (8000, 1)
    surplus_ends(world, borrower)
    assert (account.use["gpu"], account.use["jobs"]) == (5000, 1)


def test_a_budget_pays_for_surplus_until_it_is_gone() -> None:
    day = Budget(Every.DAY, hard=100 * GPU_HOUR)
    nlp = msgspec.structs.replace(a_tenant("nlp"), budgets=(day,))
    world = World(a_config(a_tenant("vision", 8), nlp))
    borrower = running(world, elastic(2, 8).of("nlp"))
    world.submit(a_job().gpus(3))
    world.cycle()
    (account,) = world.state.budgets.accounts()
    assert account.held == 8000
    surplus_ends(world, borrower)
    assert account.held == 5000


def test_a_node_with_surplus_on_it_cannot_be_taken_away() -> None:
    config = a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2)
    world = World(config)
    borrower = running(world, elastic(8, 16).of("nlp"))
    world.submit(a_job().gpus(8))
    world.cycle()
    node = world.job(borrower).attempts[-1].slots[-1].node
    fewer = tuple(each for each in config.nodes if each.id != node)
    with pytest.raises(Rejected, match=f"job {borrower} still uses it"):
        world.do(c.ApplyConfig(msgspec.structs.replace(config, nodes=fewer)))


def test_a_new_configuration_keeps_what_is_given_up() -> None:
    text = OWN % ""
    world = a_cell_world(text)
    own = running(world, elastic(2, 8))
    world.submit(a_job().gpus(4).priority(500))
    world.cycle()
    assert staying(world, own) == 4
    world.do(c.ApplyConfig(cell_config(text.replace("guest: {}", "guest: {borrow: false}"))))
    world.cycle()
    surplus_ends(world, own)
    world.cycle()
    assert not world.state.cluster.placed.parting


# ── what protects them ──────────────────────────────────────────────────────────────────


def test_giving_up_surplus_counts_as_an_eviction_of_no_work() -> None:
    world = a_cell_world(OWN % "evictions: 1, per: 1h")
    own = running(world, elastic(2, 8))
    world.wait(HOUR)
    first = world.submit(a_job().gpus(2).priority(500))
    world.cycle()
    assert staying(world, own) == 6
    budget = world.state.cluster.disruption
    assert budget is not None
    assert [loss.device_ms for loss in budget.losses()] == [0]
    surplus_ends(world, own)
    world.cycle()
    assert world.is_(first) is JobState.STARTING
    running(world, a_job().gpus(8).of("guest"))
    second = world.submit(a_job().gpus(2).priority(500))
    world.cycle()
    assert staying(world, own) == 6, "the budget is used up"
    assert world.is_(second) is JobState.QUEUED
    world.wait(HOUR)
    world.cycle()
    assert staying(world, own) == 4


def test_a_job_that_has_just_begun_to_run_keeps_its_tasks() -> None:
    world = a_cell_world(OWN % "min_run: 1h")
    own = running(world, elastic(2, 8))
    running(world, a_job().gpus(8).of("guest"))
    world.submit(a_job().gpus(2).priority(500))
    world.cycle()
    assert staying(world, own) == 8
    world.wait(HOUR)
    world.cycle()
    assert staying(world, own) == 6


@pytest.mark.parametrize("way", [GiveWay.SUSPEND, GiveWay.CANCEL, GiveWay.MIGRATE])
def test_surplus_is_given_up_whatever_becomes_of_a_whole_gang(way: GiveWay) -> None:
    world = World(a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2))
    whole = running(world, a_job().gpus(8).of("nlp").giving_way(way))
    borrower = running(world, elastic(2, 8).of("nlp").giving_way(way))
    world.submit(a_job().gpus(1).tasks(3))
    world.cycle()
    assert staying(world, borrower) == 5
    assert world.is_(borrower) is JobState.RUNNING
    assert world.is_(whole) is JobState.RUNNING


def test_a_job_that_gives_up_tasks_is_not_frozen_meanwhile() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp").giving_way(GiveWay.SUSPEND))
    world.submit(a_job().gpus(3))
    world.cycle()
    world.submit(a_job().gpus(5))
    world.cycle()
    assert world.is_(borrower) is JobState.STOPPING
    world.ends(borrower, 143)
    world.cycle()
    assert world.is_(borrower) is JobState.QUEUED


# ── what is checked ─────────────────────────────────────────────────────────────────────


def proposal(world: World, wanted: JobId, *shed: tuple[JobId, int]) -> Evict:
    """Propose three devices of a node for a job, once others gave up theirs."""
    slot = Slot(NodeId(0), tuple(DeviceIndex(i) for i in (5, 6, 7)), 3000)
    needs = (a_job().gpus(3).spec().roles[0].resources,)
    promise = ReservedPlace(wanted, (slot,), needs, Entitlement.GUARANTEED, ())
    return Evict(promise, (), shrink=shed)


def test_the_committer_lets_nobody_shrink_who_need_not() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp"), a_tenant("audio")))
    borrower = running(world, elastic(2, 7).of("nlp"))
    whole = running(world, a_job().gpus(1).of("audio"))
    owner = world.submit(a_job().gpus(3))
    beggar = world.submit(a_job().of("audio").gpus(3))

    def refused(*shed: tuple[JobId, int], job: JobId = owner) -> str:
        return refusal(world.state.cluster, proposal(world, job, *shed), world.now)

    assert not refused((borrower, 5))
    assert not refused((borrower, 2))
    assert "may not be made to shrink" in refused((borrower, 1))
    assert "may not be made to shrink" in refused((borrower, 7))
    assert "may not be made to shrink" in refused((whole, 0))
    assert "may not be made to shrink" in refused((JobId(99), 1))
    assert "no right" in refused((borrower, 5), job=beggar)
    assert "twice" in refused((borrower, 5), (borrower, 4))
    world.cycle()
    assert staying(world, borrower) < 7
    assert "may not be made to shrink" in refused((borrower, 2), job=beggar), "it does"


def test_the_committer_lets_everybody_keep_what_is_its_own() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp", 8), nodes=2))
    own = running(world, elastic(2, 8).of("nlp"))
    owner = world.submit(a_job().gpus(3))
    assert "may not be made to shrink" in refusal(
        world.state.cluster, proposal(world, owner, (own, 5)), world.now
    ), "it holds its own"


def test_shrinking_is_told_once() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp"))
    world.submit(a_job().gpus(3))
    for _ in range(3):
        world.cycle()
    asked = [r.event for r in world.log if isinstance(r.event, e.ShrinkRequested)]
    assert [(event.job, event.tasks) for event in asked] == [(borrower, 5)]


# ── shares that are counted, and queues ─────────────────────────────────────────────────


def counted() -> World:
    vision = msgspec.structs.replace(a_tenant("vision", 8), preempt=Preempt.EVICT)
    return World(a_config(vision, a_tenant("nlp", 8), nodes=2))


def test_counted_own_less_urgent_jobs_give_up_surplus_first() -> None:
    world = counted()
    others = running(world, a_job().gpus(8).of("nlp"))
    whole = running(world, a_job().gpus(2).priority(10))
    own = running(world, elastic(2, 8).priority(100))
    assert staying(world, own) == 6
    urgent = world.submit(a_job().gpus(3).priority(500))
    world.cycle()
    assert staying(world, own) == 3
    assert {world.is_(job) for job in (others, whole, own)} == {JobState.RUNNING}
    surplus_ends(world, own)
    world.cycle()
    assert world.job(urgent).attempts[-1].entitlement is Entitlement.GUARANTEED
    second = world.submit(a_job().gpus(3).priority(500))
    world.cycle()
    assert (staying(world, own), world.is_(whole)) == (2, JobState.STOPPING), "not enough"
    assert world.is_(second) is JobState.QUEUED


@pytest.mark.parametrize("cells", [False, True])
def test_a_queue_reclaims_surplus_of_a_gang_that_another_cannot_do_without(
    *, cells: bool
) -> None:
    queues = "queues: {a: {guaranteed: {gpu: 4}}, c: {guaranteed: {gpu: 4}}}"
    if cells:
        nodes = "hardware: [1 x dgx-v100]\ntenants:\n"
        config = cell_config(f"{nodes}  lab: {{cells: {{dgx-v100-node: 1}}, {queues}}}\n")
    else:
        config = tree("a: {guaranteed: {gpu: 4}}, c: {guaranteed: {gpu: 4}}", 8, nodes=1)
        config = msgspec.structs.replace(config, nodes=(a_node(0, 8, "V100"),))
    world = World(config)
    lent_to = running(world, elastic(2, 8).of("lab", "a"))
    assert staying(world, lent_to) == 8
    guaranteed = world.submit(a_job().gpus(3).of("lab", "c"))
    world.cycle()
    assert staying(world, lent_to) == 5
    surplus_ends(world, lent_to)
    world.cycle()
    assert world.is_(guaranteed) is JobState.STARTING
    beyond = world.submit(a_job().gpus(2).of("lab", "c"))
    world.cycle()
    assert (staying(world, lent_to), world.is_(beyond)) == (5, JobState.QUEUED)
    world.submit(a_job().gpus(1).of("lab", "c"))
    world.do(c.CancelJob(beyond))
    world.cycle()
    assert staying(world, lent_to) == 4, "and never below what its queue is guaranteed"


def test_a_job_that_came_while_a_gang_started_has_its_surplus_once_it_runs() -> None:
    config = tree("a: {guaranteed: {gpu: 4}}, c: {guaranteed: {gpu: 4}}", 8, nodes=1)
    world = World(msgspec.structs.replace(config, nodes=(a_node(0, 8, "V100"),)))
    lent_to = world.submit(elastic(2, 8).of("lab", "a"))
    world.cycle()
    guaranteed = world.submit(a_job().gpus(3).of("lab", "c"))
    world.cycle()
    assert (staying(world, lent_to), world.is_(guaranteed)) == (8, JobState.QUEUED)
    world.runs(lent_to)
    world.cycle()
    assert staying(world, lent_to) == 5
