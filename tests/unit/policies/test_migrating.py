"""Migration: which gangs go where, when, and which stay."""

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.engine.engine import Engine
from allotment.engine.evicted import evicted_for, for_whom
from allotment.engine.exit_codes import BY_STOP
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.amounts import JOBS
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, SECOND
from allotment.model.reasons import StopCause
from allotment.model.spec import GiveWay
from allotment.model.tenancy import QueueOrder, Tenant
from allotment.policies.rescheduling.migrating import EVERY, migrating
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.world import FAILED, World


def us(devices: float, *, migrates: bool = True, max_jobs: int | None = None) -> Tenant:
    tenant = a_tenant("us", devices, order=QueueOrder.SKIP)
    queues = tuple(
        replace(queue, migrates=migrates, max_jobs=max_jobs) for queue in tenant.queues
    )
    return replace(tenant, queues=queues)


class Moving(World):
    """Nodes whose queue migrates; gangs take no time to start."""

    def __init__(
        self, nodes: int, devices: int, *, migrates: bool = True, max_jobs: int | None = None
    ) -> None:
        self.engine = Engine(State(replace(POLICIES, rescheduler=migrating)))
        self.now, self.log, self.effects = NOW, [], []
        us_all = us(nodes * devices, migrates=migrates, max_jobs=max_jobs)
        self.do(c.ApplyConfig(a_config(us_all, nodes=nodes, devices=devices)))

    def started(self, builder: JobBuilder) -> JobId:
        job = self.submit(builder.of("us").retry(0))
        self.cycle()
        self.runs(job)
        return job

    def all_save(self) -> None:
        """Each gang that runs saves a checkpoint, a second later."""
        self.wait(SECOND)
        for job in sorted(self.state.cluster.gangs):
            self.saves(job)

    def later(self, ms: int) -> None:
        self.wait(ms)
        self.cycle()

    def nodes_of(self, job: JobId) -> list[int]:
        gang = self.state.cluster.gangs[job]
        return sorted({int(slot.node) for slot in gang.slots})

    def goes(self, job: JobId) -> list[int] | None:
        """Return where a gang was told to go."""
        stop = self.job(job).attempts[-1].stop
        if stop is None:
            return None
        assert (stop.cause, stop.wanted_by) == (StopCause.EVICTED, job)
        return sorted({int(slot.node) for slot in self.state.cluster.reserved[job].slots})

    def is_gone(self, job: JobId) -> None:
        """A gang saves, ends as it was told, and starts again where it goes."""
        self.saves(job, 2)
        self.ends(job, 143)
        self.cycle()
        self.runs(job)


def pair() -> JobBuilder:
    return a_job().tasks(2).gpus(1)


def test_a_departure_brings_gangs_together_that_had_to_be_apart() -> None:
    """J0 to J2 have a device on each of two nodes; J3, which leaves, had all of a third."""
    world = Moving(nodes=3, devices=4)
    j3 = world.started(a_job().gpus(4))
    fill = [world.started(a_job().gpus(1)) for _ in range(8)]
    apart: list[JobId] = []
    for one, other in ((0, 4), (1, 5), (2, 6)):
        world.ends(fill[one])
        world.ends(fill[other])
        apart.append(world.started(pair()))
    assert [world.nodes_of(job) for job in apart] == [[1, 2]] * 3
    world.all_save()
    world.ends(j3)
    world.later(SECOND)
    assert [world.goes(job) for job in apart] == [[0], [0], None]
    for job in apart[:2]:
        world.is_gone(job)
        assert (world.is_(job), world.nodes_of(job)) == (S.RUNNING, [0])
    world.later(SECOND)
    assert world.goes(apart[2]) == [1], "it keeps the device that it has on one of its nodes"
    world.is_gone(apart[2])
    assert world.nodes_of(apart[2]) == [1]
    assert all(world.job(job).used_retries == 0 for job in apart)


def test_nearly_empty_nodes_are_left_until_less_than_three_in_four_are_free() -> None:
    world = Moving(nodes=3, devices=4)
    jobs = [world.started(a_job().gpus(1)) for _ in range(12)]
    for job in (*jobs[1:4], *jobs[5:8], *jobs[10:12]):  # One each stays on two, two on one.
        world.ends(job)
    stay = [jobs[0], jobs[4], jobs[8], jobs[9]]
    assert [world.nodes_of(job) for job in stay] == [[0], [1], [2], [2]]
    world.all_save()
    world.later(SECOND)
    assert [world.goes(job) for job in stay] == [[2], None, None, None]
    world.is_gone(stay[0])
    world.later(SECOND)
    assert world.goes(stay[1]) == [2]
    world.is_gone(stay[1])
    assert [world.nodes_of(job) for job in stay] == [[2]] * 4
    for job in stay[2:]:
        world.ends(job)
    world.all_save()
    world.later(10 * MINUTE)
    assert [world.goes(job) for job in stay[:2]] == [None, None], "half of it is in use"


def lone_and_fuller(max_jobs: int | None = None) -> tuple[Moving, JobId]:
    """Return a world in which one gang could leave a nearly empty node, and that gang."""
    world = Moving(nodes=2, devices=4, max_jobs=max_jobs)
    first = [world.started(a_job().gpus(1)) for _ in range(5)]
    world.ends(first[0])
    return world, first[4]


def test_a_gang_that_saved_nothing_stays_and_goes_once_it_has() -> None:
    world, job = lone_and_fuller()
    world.later(MINUTE)
    assert world.goes(job) is None
    world.wait(SECOND)
    world.saves(job)
    world.later(MINUTE)
    assert world.goes(job) == [0]


def test_a_gang_that_moves_is_one_of_the_jobs_of_its_queue_all_the_time() -> None:
    world, job = lone_and_fuller(max_jobs=5)
    (account,) = world.state.cluster.queues.accounts()
    world.all_save()
    world.later(MINUTE)
    assert (world.goes(job), account.use[JOBS]) == ([0], 4)
    world.saves(job, 2)
    world.ends(job, 143)
    assert (world.is_(job), account.use[JOBS]) == (S.QUEUED, 4)
    world.cycle()
    world.runs(job)
    assert (world.nodes_of(job), account.use[JOBS]) == ([0], 4)
    world.ends(job)
    assert account.use[JOBS] == 3


@pytest.mark.parametrize(
    "kept", [a_job().not_preemptible(), a_job().giving_way(GiveWay.CANCEL)]
)
def test_a_gang_that_is_not_to_be_sent_away_stays(kept: JobBuilder) -> None:
    world = Moving(nodes=2, devices=4)
    first = [world.started(a_job().gpus(1)) for _ in range(4)]
    job = world.started(kept.gpus(1))
    world.ends(first[0])
    world.all_save()
    world.later(MINUTE)
    assert world.goes(job) is None


def test_a_waiting_job_comes_first() -> None:
    world, job = lone_and_fuller()
    world.all_save()
    new = world.submit(a_job().gpus(1).of("us"))
    world.later(SECOND)
    assert (world.nodes_of(new), world.goes(job)) == ([0], None)


def test_queues_that_do_not_migrate_make_no_rescheduler() -> None:
    world = Moving(nodes=2, devices=4, migrates=False)
    assert world.state.cluster.rescheduler is None


def test_a_gang_stays_on_devices_of_its_types() -> None:
    world = Moving(nodes=1, devices=4)
    nodes = (a_node(0, 4, "A100"), a_node(1, 4, "V100"))
    world.do(c.ApplyConfig(replace(a_config(us(8)), nodes=nodes)))
    first = [world.started(a_job().gpus(1)) for _ in range(5)]
    world.ends(first[0])
    world.all_save()
    world.later(MINUTE)
    assert world.nodes_of(first[4]) == [1]
    assert world.goes(first[4]) is None


def test_it_looks_when_something_became_free_and_while_a_gang_waits_to_go() -> None:
    world, job = lone_and_fuller()

    def due_in() -> int | None:
        rescheduler = world.state.cluster.rescheduler
        assert rescheduler is not None
        at = rescheduler.next_look(world.now)
        return None if at is None else at - world.now

    assert due_in() == SECOND
    world.later(SECOND)
    assert due_in() == EVERY, "it has not saved yet"
    world.saves(job)
    world.later(EVERY)
    world.is_gone(job)
    world.later(SECOND)
    assert due_in() is None


def test_the_committer_refuses_a_place_that_is_not_free() -> None:
    world, job = lone_and_fuller()
    world.all_save()
    world.wait(SECOND)
    cluster = world.state.cluster
    gang = cluster.gangs[job]

    def told(index: int) -> str:
        place = ReservedPlace(
            job, (Slot(NodeId(0), (index,)),), gang.needs, gang.entitlement, (job,)
        )
        return refusal(cluster, Evict(place, (job,)), world.now)

    assert not told(0)
    assert told(1)


def test_it_is_said_for_what_a_gang_goes() -> None:
    world, job = lone_and_fuller()
    world.all_save()
    world.later(SECOND)
    told = evicted_for(world.state, world.job(job))
    assert told == "A better place became free, and it continues there."


def test_beside_migration_an_owner_is_named_as_such() -> None:
    world = Moving(nodes=1, devices=4)
    world.do(c.ApplyConfig(a_config(us(0), a_tenant("owner", 4), devices=4)))
    guest = world.started(a_job().gpus(4))
    owner = world.submit(a_job().gpus(4).of("owner"))
    world.cycle()
    told = evicted_for(world.state, world.job(guest))
    assert told == f"It borrowed, and tenant owner reclaimed its guarantee for job {owner}."


def test_what_an_evicted_task_is_told_names_the_job() -> None:
    world, job = lone_and_fuller()
    world.all_save()
    world.later(SECOND)
    record, evicted = world.job(job), BY_STOP[StopCause.EVICTED]
    named = for_whom(world.state, record, evicted)
    assert named == replace(
        evicted, cause="A better place became free, and it continues there."
    )
    assert for_whom(world.state, record, FAILED) == FAILED
    assert for_whom(world.state, record, None) is None


def test_the_committer_refuses_a_move_to_another_entitlement() -> None:
    world, job = lone_and_fuller()
    world.all_save()
    world.wait(SECOND)
    cluster = world.state.cluster
    gang, there = cluster.gangs[job], (Slot(NodeId(0), (0,)),)
    place = ReservedPlace(job, there, gang.needs, Entitlement.OPPORTUNISTIC, (job,))
    made = Evict(place, (job,))
    assert refusal(cluster, made, world.now) == "a move concerns no other gang"


def test_a_job_that_fails_twice_where_it_went_stays_where_it_is() -> None:
    """Each time before it saved there; meanwhile others have the devices that it left for."""
    world = Moving(nodes=3, devices=4)
    large = world.started(a_job().gpus(4))
    fill = [world.started(a_job().gpus(1)) for _ in range(8)]
    world.ends(fill[0])
    world.ends(fill[4])
    job = world.submit(pair().of("us").retry(9))
    world.cycle()
    world.runs(job)
    for turn in range(2):
        assert world.nodes_of(job) == [1, 2]
        world.all_save()
        world.ends(large)
        world.later(EVERY)
        assert world.goes(job) == [0], turn
        world.is_gone(job)
        world.ends(job, 1)
        assert world.job(job).bad_moves == turn + 1
        large = world.started(a_job().gpus(4))
        world.later(10 * MINUTE)
        world.runs(job)
    world.all_save()
    world.ends(large)
    world.later(EVERY)
    assert (world.goes(job), world.nodes_of(job)) == (None, [1, 2])
    gauge = world.state.cluster.gangs[job].gauge
    assert gauge is not None
    assert (gauge.stays, gauge.is_grown) == (True, False)
