"""What a suspended gang keeps of its devices' memory: all, until it was measured to be less."""

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import Gang
from allotment.core.plan import Pack
from allotment.engine.engine import Engine
from allotment.engine.react import pending_effects
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model.ids import AttemptNo, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import GIB, Millis
from allotment.model.reasons import Reason
from allotment.model.reports import OfferReport, Seen, TaskReport
from allotment.model.suspension import Grade, Suspension
from allotment.model.tenancy import QueueOrder, RankBy
from allotment.policies.rescheduling.growing import growing
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

GIB_IN_MIB = 1024


def a_world(devices: int = 1) -> World:
    """Return a node whose devices have 80 GiB of memory each."""
    return World(a_config(a_tenant("us", devices), devices=devices))


def large(tasks: int = 1) -> JobBuilder:
    """Return a gang of which each task asks for 60 GiB of a device's memory."""
    return a_job().of("us").gpus(1).gpu_memory(60 * GIB).tasks(tasks)


def suspended(world: World, builder: JobBuilder) -> JobId:
    job = world.submit(builder)
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    return job


def answer(world: World, job: JobId, how: Suspension, task: int = 0) -> None:
    key = world.job(job).task_keys()[task]
    world.tell(TaskReport(key, Seen.RUNNING, pid=1000 + task, suspension=how))
    world.cycle()


def offloaded(no: int, *kept_mib: int) -> Suspension:
    return Suspension(no, Grade.OFFLOADED, kept_mib)


def test_what_gave_its_memory_back_blocks_no_other() -> None:
    world = a_world()
    job = suspended(world, large())
    other = world.submit(large())
    world.cycle()
    assert world.is_(other) is S.QUEUED, "until it is measured, it counts as keeping all"
    answer(world, job, offloaded(1, 512))
    assert world.is_(other) is S.STARTING


@pytest.mark.parametrize(
    "how",
    [
        Suspension(1, Grade.FROZEN, (512,)),
        Suspension(1, Grade.OFFLOADED),
        offloaded(1, 30 * GIB_IN_MIB),
        offloaded(2, 0),
        offloaded(0, 0),
        offloaded(1, 0, 0),
        offloaded(1, -1),
    ],
    ids=["frozen", "unmeasured", "too-much", "next", "before", "two-devices", "less-than-none"],
)
def test_what_is_not_measured_to_be_free_is_not_lent(how: Suspension) -> None:
    world = a_world()
    job = suspended(world, large())
    other = world.submit(large())
    answer(world, job, how)
    assert world.is_(other) is S.QUEUED


def test_it_takes_its_memory_back_when_it_goes_on() -> None:
    world = a_world()
    job = suspended(world, large())
    answer(world, job, offloaded(1, 512))
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.RUNNING
    assert memory_left(world) == 20 * GIB


def test_it_does_not_go_on_while_another_has_its_memory() -> None:
    world = a_world()
    job = suspended(world, large())
    answer(world, job, offloaded(1, 512))
    other = world.submit(a_job().of("us").gpu_memory(60 * GIB).gpus(1))
    world.cycle()
    world.runs(other)
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.SUSPENDED
    world.ends(other)
    world.cycle()
    assert world.is_(job) is S.RUNNING


def test_each_suspension_is_measured_anew() -> None:
    world = a_world()
    job = suspended(world, large())
    answer(world, job, offloaded(1, 512))
    world.do(c.ResumeJob(job))
    world.cycle()
    world.do(c.SuspendJob(job))
    answer(world, job, offloaded(1, 512))
    assert memory_left(world) == 20 * GIB, "an answer that comes late is none"
    answer(world, job, offloaded(2, 0))
    assert memory_left(world) == 80 * GIB
    answer(world, job, offloaded(2, 60 * GIB_IN_MIB))
    assert memory_left(world) == 80 * GIB, "the first answer counts"


def test_of_a_gang_each_task_counts_by_itself() -> None:
    world = a_world(devices=2)
    job = suspended(world, large(tasks=2))
    answer(world, job, offloaded(1, 1024), task=1)
    book = next(iter(world.state.cluster.ledger.books.values()))
    first, second = (slot.devices[0] for slot in world.job(job).attempts[-1].slots)
    assert book.device_memory[first] == 20 * GIB
    assert book.device_memory[second] == 79 * GIB


def test_a_snapshot_keeps_what_was_measured() -> None:
    world = a_world()
    job = suspended(world, large())
    answer(world, job, offloaded(1, 512))
    image = world.state.image()
    again = State.from_image(image, world.state.policies)
    assert gang_of(again, job).keeps == (512 << 20,)
    assert again.cluster.ledger.books.keys() == world.state.cluster.ledger.books.keys()
    for node, book in again.cluster.ledger.books.items():
        assert book.device_memory == world.state.cluster.ledger.books[node].device_memory


def test_an_order_carries_the_number_of_the_suspension() -> None:
    world = a_world()
    job = suspended(world, large())
    world.do(c.ResumeJob(job))
    world.cycle()
    world.do(c.SuspendJob(job))
    orders = [x.no for x in world.effects if isinstance(x, f.FreezeGang)]
    assert orders == [1, 2]
    again = [x for x in pending_effects(world.state, world.now) if isinstance(x, f.FreezeGang)]
    assert [x.no for x in again] == [2]


def test_nothing_more_is_lent_of_what_has_to_end() -> None:
    world = a_world()
    job = suspended(world, large())
    world.do(c.CancelJob(job))
    answer(world, job, offloaded(1, 0))
    assert memory_left(world) == 20 * GIB


def test_what_gave_memory_back_does_not_run_beside_another() -> None:
    world = a_world()
    job = suspended(world, large())
    world.do(c.ResumeJob(job))
    how = offloaded(1, 512)
    world.tell(
        TaskReport(world.job(job).task_keys()[0], Seen.RUNNING, pid=1000, suspension=how)
    )
    why_not = refusal(world.state.cluster, Pack(job, job), world.now)
    assert why_not == "it gave memory back that it needs"


# ── turns of those that give memory back ────────────────────────────────────────────────


SLICE = Millis(60_000)


class Turns(World):
    """A device on which jobs take turns that need more than half of its memory each."""

    def __init__(self) -> None:
        tenant = a_tenant("us", 1, order=QueueOrder.SKIP)
        queue = replace(tenant.queues[0], time_slice_ms=SLICE, rank=RankBy.ROUND_ROBIN)
        self.engine = Engine(State(replace(POLICIES, rescheduler=growing)))
        self.now, self.log, self.effects = NOW, [], []
        self.do(c.ApplyConfig(a_config(replace(tenant, queues=(queue,)), devices=1)))

    def offers(self, job: JobId) -> None:
        self.tell(OfferReport(job, self.job(job).attempts[-1].no))

    def started(self, *, offers: bool = True) -> JobId:
        job = self.submit(large())
        self.cycle()
        self.runs(job)
        if offers:
            self.offers(job)
        return job

    def later(self, ms: int = SLICE) -> None:
        self.wait(ms)
        self.cycle()


def test_jobs_that_give_memory_back_take_turns_on_it() -> None:
    world = Turns()
    first = world.started()
    second = world.submit(large())
    world.later()
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.QUEUED)
    assert world.why(second).reason is Reason.WAITING_FOR_VICTIMS
    answer(world, first, offloaded(1, 512))
    assert world.is_(second) is S.STARTING
    world.runs(second)
    world.offers(second)
    world.later()
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.SUSPENDED)
    answer(world, second, offloaded(1, 512))
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.SUSPENDED)
    world.later()
    answer(world, first, offloaded(2, 512))
    assert (world.is_(first), world.is_(second)) == (S.SUSPENDED, S.RUNNING)


@pytest.mark.parametrize(
    "how", [Suspension(1, Grade.FROZEN), offloaded(1, 30 * GIB_IN_MIB), offloaded(1, 50_000)]
)
def test_what_does_not_give_back_what_it_offers_goes_on_and_is_not_tried_again(
    how: Suspension,
) -> None:
    world = Turns()
    first = world.started()
    second = world.submit(large())
    world.later()
    answer(world, first, how)
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)
    for _ in range(3):
        world.later()
        assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)


def test_what_offers_nothing_is_not_suspended_for_its_memory() -> None:
    world = Turns()
    first = world.started(offers=False)
    second = world.submit(large())
    world.later()
    assert (world.is_(first), world.is_(second)) == (S.RUNNING, S.QUEUED)


def test_an_offer_is_noted_once_and_of_the_present_attempt_only() -> None:
    world = Turns()
    job = world.started()
    before = len(world.log)
    world.offers(job)
    world.tell(OfferReport(job, AttemptNo(7)))
    world.tell(OfferReport(JobId(99), AttemptNo(1)))
    assert len(world.log) == before


def memory_left(world: World) -> int:
    (book,) = world.state.cluster.ledger.books.values()
    return book.device_memory[0]


def gang_of(state: State, job: JobId) -> Gang:
    return state.cluster.gangs[job]
