"""Growth: which gangs take up idle devices, when, and to whom they give them back."""

from itertools import count

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.engine.engine import Engine
from allotment.engine.evicted import evicted_for
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId, TaskIndex, TaskKey
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, SECOND, Millis
from allotment.model.reports import PaceReport
from allotment.model.tenancy import Config, QueueOrder, Tenant
from allotment.policies.rescheduling.growing import growing
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

GROW = 5 * MINUTE
FIRST = 1_000
"""The rate of one task, in steps an hour, where more tasks scale."""
GROWING = replace(POLICIES, rescheduler=growing)


def a_growing(name: str, devices: float, grow_ms: int = GROW) -> Tenant:
    tenant = a_tenant(name, devices, order=QueueOrder.SKIP)
    queues = tuple(replace(queue, grow_ms=Millis(grow_ms)) for queue in tenant.queues)
    return replace(tenant, queues=queues)


def elastic(least: int = 1, most: int = 8) -> JobBuilder:
    return a_job().gpus(1).between(least, most, elastic=True).checkpointing()


class Growth(World):
    """A cluster whose queues grow; gangs take a second to start."""

    def __init__(self, config: Config | None = None) -> None:
        self.engine = Engine(State(GROWING))
        self.now, self.log, self.effects = NOW, [], []
        self.steps = count(1)
        self.do(c.ApplyConfig(config or a_config(a_growing("us", 8))))

    def started(self, builder: JobBuilder, tenant: str = "us") -> JobId:
        job = self.submit(builder.of(tenant).retry(2))
        self.cycle()
        self.wait(SECOND)
        self.runs(job)
        return job

    def size(self, job: JobId) -> int:
        attempt = self.job(job).attempt
        return attempt.staying if attempt is not None else 0

    def tells(self, job: JobId, rate: int, left_ms: int = 10 * 60 * MINUTE) -> None:
        """The pace of a job is measured, as it saves."""
        attempt = self.job(job).attempts[-1]
        self.saves(job, next(self.steps))
        self.tell(PaceReport(job, attempt.no, self.size(job), rate, left_ms))

    def later(self, ms: int) -> None:
        """Time passes; gangs have just saved."""
        self.wait(ms)
        for job in sorted(self.state.cluster.gangs):
            if self.is_(job) is S.RUNNING:
                self.saves(job, next(self.steps))
        self.cycle()

    def leaves(self, job: JobId) -> None:
        """A job ends, and what it held idles."""
        self.ends(job)
        self.cycle()

    def grows(self, job: JobId) -> bool:
        stop = self.job(job).attempts[-1].stop
        return stop is not None and stop.wanted_by == job

    def restarts(self, job: JobId) -> None:
        """A gang ends as it was told, and comes up again."""
        self.saves(job, next(self.steps))
        self.ends(job, 143)
        self.cycle()
        self.wait(SECOND)
        self.runs(job)

    def surplus_ends(self, job: JobId) -> None:
        attempt = self.job(job).attempts[-1]
        assert attempt.shrink is not None
        for index in range(attempt.shrink.tasks, len(attempt.slots)):
            self.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)
        self.cycle()


def beside(world: Growth, devices: int = 6) -> tuple[JobId, JobId]:
    """Return a gang that had room for two tasks only, and what held the other devices."""
    other = world.started(a_job().gpus(devices))
    job = world.started(elastic())
    assert world.size(job) == 8 - devices
    return job, other


def test_a_gang_takes_up_devices_that_have_been_idle_for_a_while() -> None:
    world = Growth()
    job, other = beside(world)
    world.tells(job, 2 * FIRST)
    world.later(MINUTE)
    world.leaves(other)
    world.later(GROW - SECOND)
    assert not world.grows(job)
    world.later(2 * SECOND)
    assert world.grows(job)
    stop = world.job(job).attempts[-1].stop
    assert stop is not None
    assert stop.gain is not None
    assert (stop.gain.tasks, stop.gain.rate, stop.gain.expected) == (8, 2_000, 8_000)
    told = "Devices were idle, and it continues with up to 8 tasks."
    assert evicted_for(world.state, world.job(job)) == told
    world.restarts(job)
    assert (world.size(job), world.job(job).used_retries) == (8, 0)


@pytest.mark.parametrize(
    "builder",
    [
        a_job().gpus(1).between(1, 8).checkpointing(),
        elastic().not_preemptible(),
        elastic(1, 2),
    ],
)
def test_what_is_not_elastic_or_may_not_be_sent_away_or_has_all_stays(
    builder: JobBuilder,
) -> None:
    world = Growth()
    other = world.started(a_job().gpus(6))
    job = world.started(builder)
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(10 * GROW)
    assert (world.grows(job), world.size(job)) == (False, 2)


@pytest.mark.parametrize("rate", [None, 0])
def test_a_job_that_never_tells_of_steps_or_makes_none_stays(rate: int | None) -> None:
    world = Growth()
    job, other = beside(world)
    if rate is not None:
        world.tells(job, rate)
    world.leaves(other)
    for _ in range(5):
        world.later(3 * GROW)
    assert not world.grows(job)


def test_a_gang_that_saved_nothing_in_this_attempt_stays_until_it_has() -> None:
    world = Growth()
    job, other = beside(world)
    attempt = world.job(job).attempts[-1]
    world.tell(PaceReport(job, attempt.no, 2, 2 * FIRST, 10 * 60 * MINUTE))
    world.leaves(other)
    world.wait(2 * GROW)
    world.cycle()
    assert not world.grows(job)
    world.later(SECOND)
    assert world.grows(job)


def test_a_gang_that_is_nearly_done_stays() -> None:
    world = Growth()
    job, other = beside(world)
    world.leaves(other)
    world.tells(job, 2 * FIRST, GROW + 3 * SECOND)
    world.later(GROW)
    assert not world.grows(job), "the rest takes three seconds, as long as three starts"


def test_it_is_known_when_a_gang_may_grow_next() -> None:
    world = Growth()
    job, other = beside(world)
    rescheduler = world.state.cluster.rescheduler
    assert rescheduler is not None
    world.tells(job, 2 * FIRST)
    world.cycle()
    assert rescheduler.next_look(world.now) is None
    world.leaves(other)
    world.cycle()
    assert rescheduler.next_look(world.now) == world.now + GROW


def test_a_gang_grows_at_most_once_in_six_such_lengths() -> None:
    world = Growth(a_config(a_growing("us", 16), nodes=2))
    others = [world.started(a_job().gpus(7)), world.started(a_job().gpus(7))]
    job = world.started(elastic(1, 16))
    world.tells(job, 2 * FIRST)
    world.leaves(others[0])
    world.later(GROW + SECOND)
    world.restarts(job)
    assert world.size(job) == 9
    world.tells(job, 9 * FIRST)
    world.leaves(others[1])
    world.later(5 * GROW)
    assert not world.grows(job)
    world.later(GROW)
    assert world.grows(job)


def test_a_waiting_job_that_needs_more_than_is_free_keeps_gangs_from_growing() -> None:
    world = Growth()
    job, other = beside(world, 4)
    large = world.submit(a_job().gpus(8).of("us"))
    world.tells(job, 4 * FIRST)
    world.leaves(other)
    world.later(2 * GROW)
    assert not world.grows(job)
    world.do(c.CancelJob(large))
    world.cycle()
    assert world.grows(job)


def test_one_gang_grows_at_a_time_and_the_smaller_first() -> None:
    world = Growth()
    other = world.started(a_job().gpus(5))
    two = world.started(elastic(2, 2))
    one = world.started(elastic())
    more = world.submit(elastic().of("us"))
    world.cycle()
    assert world.size(more) == 0
    world.do(c.CancelJob(more))
    world.tells(one, FIRST)
    world.tells(two, 2 * FIRST)
    world.leaves(other)
    world.later(GROW + SECOND)
    assert (world.grows(one), world.grows(two)) == (True, False)


def test_a_job_that_comes_while_a_gang_starts_anew_has_its_place() -> None:
    world = Growth()
    job, other = beside(world)
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(GROW + SECOND)
    assert world.grows(job)
    new = world.submit(a_job().gpus(6).of("us"))
    world.cycle()
    assert world.is_(new) is S.STARTING
    world.restarts(job)
    assert world.size(job) == 2
    world.runs(new)


def test_a_waiting_job_of_the_tenant_is_given_surplus_at_once() -> None:
    world = Growth()
    job = world.started(elastic())
    assert world.size(job) == 8
    new = world.submit(a_job().tasks(3).gpus(1).of("us"))
    world.cycle()
    assert world.size(job) == 5
    assert "3 surplus tasks" in world.why(new).message
    world.surplus_ends(job)
    assert (world.size(new), world.is_(job)) == (3, S.RUNNING)


def test_where_queues_do_not_grow_surplus_is_kept() -> None:
    world = Growth(a_config(a_growing("us", 8, 0)))
    assert world.state.cluster.rescheduler is None
    job = world.started(elastic())
    new = world.submit(a_job().gpus(1).of("us"))
    world.cycle()
    assert (world.size(job), world.size(new)) == (8, 0)


def test_surplus_is_given_up_only_where_that_makes_room() -> None:
    world = Growth()
    world.started(a_job().gpus(2))
    job = world.started(elastic(4))
    new = world.submit(a_job().gpus(4).of("us"))
    world.cycle()
    assert (world.size(job), world.size(new)) == (6, 0)


def test_borrowers_give_surplus_to_borrowers_of_others_and_owners_keep_theirs() -> None:
    world = Growth(a_config(a_growing("us", 4), a_growing("them", 0)))
    owned = world.started(elastic(1, 4))
    borrowed = world.started(elastic())
    held = world.state.cluster.gangs
    assert held[owned].entitlement is Entitlement.GUARANTEED
    assert held[borrowed].entitlement is Entitlement.OPPORTUNISTIC
    new = world.submit(a_job().gpus(3).of("them"))
    world.cycle()
    assert (world.size(owned), world.size(borrowed)) == (4, 1)
    world.surplus_ends(borrowed)
    assert world.size(new) == 1
    last = world.submit(a_job().gpus(1).of("them"))
    world.cycle()
    assert (world.size(last), world.size(owned)) == (0, 4)


def test_the_committer_refuses_surplus_of_another_entitlement_or_owner() -> None:
    world = Growth(a_config(a_growing("us", 8), a_growing("them", 0)))
    job = world.started(elastic())
    cluster = world.state.cluster
    gang = cluster.gangs[job]

    def told(tenant: str, entitlement: Entitlement) -> str:
        new = world.submit(a_job().gpus(1).of(tenant))
        place = ReservedPlace(new, gang.slots[-1:], gang.needs[-1:], entitlement, ())
        return refusal(cluster, Evict(place, (), shrink=((job, 7),)), world.now)

    assert not told("us", Entitlement.GUARANTEED)
    assert "may not be made to shrink" in told("them", Entitlement.OPPORTUNISTIC)


def test_growing_stays_within_the_guarantee_of_a_guaranteed_gang() -> None:
    world = Growth(a_config(a_growing("us", 4)))
    other = world.started(a_job().gpus(2))
    job = world.started(elastic())
    assert world.size(job) == 2
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(GROW + SECOND)
    world.restarts(job)
    assert world.size(job) == 4, "and four devices idle on"


def test_a_gang_in_a_queue_that_no_longer_grows_keeps_what_it_has() -> None:
    world = Growth()
    job = world.started(elastic())
    world.do(c.ApplyConfig(a_config(a_growing("us", 8, 0))))
    new = world.submit(a_job().gpus(1).of("us"))
    world.cycle()
    assert (world.size(job), world.size(new)) == (8, 0)
    world.do(c.ApplyConfig(a_config(a_growing("us", 8))))
    world.cycle()
    assert world.size(job) == 7


def test_what_was_measured_survives_a_restart_of_the_service() -> None:
    world = Growth()
    job, other = beside(world)
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(SECOND)
    image: Image = world.state.image()
    world.engine = Engine(State.from_image(image, GROWING))
    world.cycle()
    world.later(GROW + SECOND)
    assert world.grows(job)


def test_events_tell_what_was_expected() -> None:
    world = Growth()
    job, other = beside(world)
    world.tells(job, 2 * FIRST)
    world.leaves(other)
    world.later(GROW + SECOND)
    told = [record.event for record in world.log if isinstance(record.event, e.PaceMeasured)]
    assert [(event.tasks, event.rate) for event in told] == [(2, 2_000)]
