"""Where shares are cells: which gangs go where, grow and give tasks up, and by which right."""

from itertools import count

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Evict
from allotment.engine.engine import Engine
from allotment.engine.evicted import demoted_for
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId, TaskIndex, TaskKey
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, SECOND
from allotment.model.reports import NodeReport, PaceReport
from allotment.model.spec import GiveWay
from tests.support.builders import NOW, POLICIES, JobBuilder, a_job
from tests.support.cells import cell_config
from tests.support.world import World

TWO_RACKS = """\
hardware: [4 x dgx-v100 in racks of 2]
tenants:
  us: {cells: {dgx-v100-node: %d}, queues: {default: {order: skip, migrate: true}}}
  them: {cells: {%s}}
"""
GROWS = """\
hardware: [2 x dgx-v100]
tenants:
  us: {cells: {dgx-v100-node: %d}, queues: {default: {order: skip, grow: 5min}}}
  them: {cells: {dgx-v100-node: 1}}
"""
TURNS = """\
hardware: [2 x dgx-v100]
tenants:
  us: {cells: {dgx-v100-node: 2}, queues: {default: {order: skip, time_slice: 60s, %s: true}}}
"""
GROW = 5 * MINUTE
SLICE = 60 * SECOND


class InCells(World):
    """Machines in cells; gangs take a second to start."""

    def __init__(self, config: str) -> None:
        self.engine = Engine(State(POLICIES))
        self.now, self.log, self.effects = NOW, [], []
        self.steps = count(1)
        self.do(c.ApplyConfig(cell_config(config)))

    def started(self, builder: JobBuilder, tenant: str = "us") -> JobId:
        job = self.submit(builder.of(tenant).retry(2))
        self.cycle()
        self.all_start()
        return job

    def all_start(self) -> None:
        self.wait(SECOND)
        for job in sorted(self.state.cluster.gangs):
            if self.is_(job) is S.STARTING:
                self.runs(job)

    def later(self, ms: int) -> None:
        """Time passes; gangs have just saved."""
        self.wait(ms)
        for job in sorted(self.state.cluster.gangs):
            if self.is_(job) is S.RUNNING:
                self.saves(job, next(self.steps))
        self.cycle()
        self.all_start()

    def leaves(self, *jobs: JobId) -> None:
        for job in jobs:
            self.ends(job)
        self.cycle()

    def nodes_of(self, job: JobId) -> list[int]:
        return sorted({int(slot.node) for slot in self.state.cluster.gangs[job].slots})

    def right_of(self, job: JobId) -> Entitlement:
        return self.state.cluster.gangs[job].entitlement

    def goes(self, job: JobId) -> list[int] | None:
        """Return where a gang was told to go by itself; None if it was not."""
        stop = self.job(job).attempts[-1].stop
        if stop is None or stop.wanted_by != job:
            return None
        return sorted({int(slot.node) for slot in self.state.cluster.reserved[job].slots})

    def is_gone(self, job: JobId) -> None:
        """A gang saves, ends as it was told, and starts again where it goes."""
        self.saves(job, next(self.steps))
        self.ends(job, 143)
        self.cycle()
        self.all_start()

    def size(self, job: JobId) -> int:
        return self.job(job).attempts[-1].staying

    def tells(self, job: JobId) -> None:
        """A job tells that it is as fast as it has tasks, and has hours to go."""
        attempt, tasks = self.job(job).attempts[-1], self.size(job)
        self.saves(job, next(self.steps))
        self.tell(PaceReport(job, attempt.no, tasks, 1_000 * tasks, 10 * 60 * MINUTE))

    def surplus_ends(self, job: JobId) -> None:
        attempt = self.job(job).attempts[-1]
        assert attempt.shrink is not None
        for index in range(attempt.shrink.tasks, len(attempt.slots)):
            self.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)
        self.cycle()


def elastic(most: int = 8) -> JobBuilder:
    return a_job().gpus(1).between(1, most, elastic=True).checkpointing()


# ── migration ───────────────────────────────────────────────────────────────────────────


def apart_in_its_cells() -> tuple[InCells, JobId, JobId]:
    """Return a full tenant of two nodes with a pair on both, and a job beside one of it."""
    world = InCells(TWO_RACKS % (2, "dgx-v100-node: 2"))
    fill = [world.started(a_job().gpus(1)) for _ in range(16)]
    first, last = world.nodes_of(fill[0]), world.nodes_of(fill[15])
    assert first != last
    world.leaves(fill[0], fill[15])
    pair = world.started(a_job().tasks(2).gpus(1).cpus(1))
    assert world.nodes_of(pair) == sorted(first + last)
    assert world.right_of(pair) is GUARANTEED
    return world, pair, fill[1]


def test_a_gang_comes_together_in_its_tenants_cells_and_stays_guaranteed() -> None:
    world, pair, beside = apart_in_its_cells()
    node = world.nodes_of(beside)
    world.later(2 * MINUTE)
    assert world.goes(pair) is None, "there is nothing free in its tenant's cells"
    world.leaves(beside)
    world.later(11 * SECOND)
    assert world.goes(pair) == node, "it keeps the device that it has there"
    assert world.right_of(pair) is OPPORTUNISTIC, "its cells are those of its new place"
    said = demoted_for(world.state, pair, pair)
    assert said == "it continues elsewhere, in cells of its tenant"
    world.is_gone(pair)
    assert (world.is_(pair), world.nodes_of(pair)) == (S.RUNNING, node)
    assert (world.right_of(pair), world.job(pair).used_retries) == (GUARANTEED, 0)


def test_what_a_gang_leaves_is_its_tenants_at_once() -> None:
    world, pair, beside = apart_in_its_cells()
    world.wait(SECOND)
    world.leaves(beside)
    world.later(2 * MINUTE)
    assert world.goes(pair) == world.nodes_of(JobId(beside + 1))
    late = world.submit(a_job().gpus(1).of("us"))
    world.cycle()
    assert late in world.state.cluster.reserved, "the device that the pair leaves"
    world.is_gone(pair)
    assert (world.is_(late), world.right_of(late)) == (S.RUNNING, GUARANTEED)


def test_a_borrower_goes_from_two_racks_into_one() -> None:
    """It has the second node of one rack and the first of another; its neighbour leaves."""
    world = InCells(TWO_RACKS % (0, "dgx-v100-node: 4"))
    theirs = {
        node: job
        for job in (world.started(a_job().gpus(8), "them") for _ in range(4))
        for node in world.nodes_of(job)
    }
    world.leaves(theirs[1], theirs[2])
    gang = world.started(a_job().tasks(2).gpus(8).cpus(1))
    assert (world.nodes_of(gang), world.right_of(gang)) == ([1, 2], OPPORTUNISTIC)
    world.later(2 * MINUTE)
    assert world.goes(gang) is None
    world.leaves(theirs[3])
    world.later(11 * SECOND)
    assert world.goes(gang) == [2, 3]
    world.is_gone(gang)
    assert (world.nodes_of(gang), world.right_of(gang)) == ([2, 3], OPPORTUNISTIC)


def test_a_gang_that_has_its_cells_still_is_promised_no_others() -> None:
    world, pair, beside = apart_in_its_cells()
    world.wait(SECOND)
    world.leaves(beside)
    world.wait(2 * MINUTE)
    world.saves(pair, next(world.steps))
    cluster = world.state.cluster
    gang = cluster.gangs[pair]
    place = ReservedPlace(pair, gang.slots, gang.needs, GUARANTEED, (pair,), gang.quota)
    move = Evict(place, (pair,))
    assert refusal(cluster, move, world.now) == "it has its cells still"
    assert not refusal(cluster, replace(move, demote=(pair,)), world.now)
    other = replace(move, place=replace(place, quota=("V100",)), demote=(pair,))
    assert refusal(cluster, other, world.now)


# ── lent cells that go back ─────────────────────────────────────────────────────────────


def test_a_borrower_goes_to_idle_devices_when_its_lent_cell_goes_back() -> None:
    """They own a rack. A borrower is in it, and the node beside ours is idle."""
    world = InCells(TWO_RACKS % (1, "dgx-v100-rack: 1"))
    ours = world.started(a_job().gpus(8))
    (own,) = world.nodes_of(ours)
    borrower = world.started(a_job().gpus(8).giving_way(GiveWay.MIGRATE))
    assert world.nodes_of(borrower)[0] // 2 != own // 2, "far from guaranteed work"
    owner = world.submit(a_job().tasks(2).gpus(8).within_one("dgx-v100-rack").of("them"))
    world.cycle()
    assert world.goes(borrower) is None, "it is told for the owner"
    assert world.state.cluster.reserved[borrower].slots[0].node == own ^ 1
    world.is_gone(borrower)
    assert (world.is_(borrower), world.nodes_of(borrower)) == (S.RUNNING, [own ^ 1])
    assert (world.is_(owner), world.right_of(owner)) == (S.RUNNING, GUARANTEED)


# ── growth ──────────────────────────────────────────────────────────────────────────────


def test_a_gang_grows_into_idle_cells_of_its_tenant_and_stays_guaranteed() -> None:
    world = InCells(GROWS % 1)
    other = world.started(a_job().gpus(6))
    job = world.started(elastic())
    assert (world.size(job), world.right_of(job)) == (2, GUARANTEED)
    world.tells(job)
    world.leaves(other)
    world.later(GROW - 10 * SECOND)
    assert world.goes(job) is None
    world.later(11 * SECOND)
    assert world.goes(job) == world.nodes_of(job)
    world.is_gone(job)
    assert (world.size(job), world.right_of(job)) == (8, GUARANTEED)


def test_a_borrower_grows_into_what_is_idle_and_shrinks_at_once_for_another() -> None:
    world = InCells(GROWS % 0)
    theirs = world.started(a_job().gpus(8), "them")
    other = world.started(a_job().gpus(6))
    job = world.started(elastic())
    assert (world.size(job), world.right_of(job)) == (2, OPPORTUNISTIC)
    world.tells(job)
    world.leaves(other)
    world.later(GROW + SECOND)
    world.is_gone(job)
    assert (world.size(job), world.right_of(job)) == (8, OPPORTUNISTIC)
    late = world.submit(a_job().gpus(3).of("us"))
    world.cycle()
    shrink = world.job(job).attempts[-1].shrink
    assert shrink is not None
    assert (shrink.tasks, shrink.wanted_by) == (5, late)
    world.surplus_ends(job)
    assert (world.is_(late), world.size(job)) == (S.STARTING, 5)
    assert world.is_(theirs) is S.RUNNING


def test_a_guaranteed_gang_gives_up_tasks_to_a_job_of_its_tenant() -> None:
    world = InCells(GROWS % 1)
    job = world.started(elastic())
    assert (world.size(job), world.right_of(job)) == (8, GUARANTEED)
    fill = world.started(a_job().gpus(8), "them")
    late = world.submit(a_job().gpus(2).of("us"))
    world.cycle()
    shrink = world.job(job).attempts[-1].shrink
    assert shrink is not None
    assert (shrink.tasks, shrink.wanted_by) == (6, late)
    world.surplus_ends(job)
    world.all_start()
    assert (world.right_of(late), world.size(job)) == (GUARANTEED, 6)
    assert world.is_(fill) is S.RUNNING


def test_a_gang_that_grew_is_no_obstacle_to_the_owner_of_its_cells() -> None:
    world = InCells(GROWS % 0)
    job = world.started(elastic(16))
    assert (world.size(job), world.right_of(job)) == (16, OPPORTUNISTIC)
    owner = world.submit(a_job().gpus(8).of("them"))
    world.cycle()
    shrink = world.job(job).attempts[-1].shrink
    assert shrink is not None, "it lies on eight other devices, too"
    assert shrink.tasks == 8
    world.surplus_ends(job)
    world.all_start()
    assert (world.is_(owner), world.right_of(owner)) == (S.RUNNING, GUARANTEED)


def test_none_grows_while_hardware_is_lost() -> None:
    world = InCells(GROWS % 1)
    other = world.started(a_job().gpus(6))
    job = world.started(elastic())
    world.tells(job)
    world.leaves(other)
    (own,) = world.nodes_of(job)
    (lost,) = (node for node in world.state.cluster.nodes if node != own)
    world.tell(NodeReport(lost, alive=False, reason="test"))
    world.later(2 * GROW)
    assert world.goes(job) is None
    world.tell(NodeReport(lost, alive=True))
    world.later(SECOND)
    assert world.goes(job) == [own]


def test_what_is_lost_while_a_gang_grows_costs_it_only_the_growth() -> None:
    world = InCells(GROWS % 1)
    other = world.started(a_job().gpus(6))
    job = world.started(elastic())
    world.tells(job)
    world.leaves(other)
    world.later(GROW + SECOND)
    (own,) = world.nodes_of(job)
    (lost,) = (node for node in world.state.cluster.nodes if node != own)
    world.tell(NodeReport(lost, alive=False, reason="test"))
    world.is_gone(job)
    assert (world.size(job), world.right_of(job)) == (2, GUARANTEED)


# ── suspended gangs ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["migrate", "affinity"])
def test_a_suspended_gang_goes_on_where_devices_became_idle(key: str) -> None:
    world = InCells(TURNS % key)
    first, second = world.started(a_job().gpus(8)), world.started(a_job().gpus(8))
    world.later(SLICE - 3 * SECOND)
    third = world.submit(a_job().gpus(8).of("us"))
    world.later(4 * SECOND)
    (paused,) = (job for job in (first, second) if world.is_(job) is S.SUSPENDED)
    (other,) = (job for job in (first, second) if job != paused)
    assert world.nodes_of(third) == world.nodes_of(paused)
    node = world.nodes_of(other)
    world.leaves(other)
    assert world.goes(paused) == node
    world.is_gone(paused)
    assert (world.is_(paused), world.nodes_of(paused)) == (S.RUNNING, node)
    assert (world.is_(third), world.job(paused).used_retries) == (S.RUNNING, 0)


def test_a_suspended_gang_that_never_saved_waits_for_its_own_devices() -> None:
    world = InCells(TURNS % "migrate")
    first, second = world.started(a_job().gpus(8)), world.started(a_job().gpus(8))
    world.submit(a_job().gpus(8).of("us"))
    world.wait(SLICE)
    world.cycle()
    (paused,) = (job for job in (first, second) if world.is_(job) is S.SUSPENDED)
    (other,) = (job for job in (first, second) if job != paused)
    world.leaves(other)
    assert world.goes(paused) is None


def test_events_say_that_a_gang_in_cells_goes_on_in_others() -> None:
    world, pair, beside = apart_in_its_cells()
    world.wait(SECOND)
    world.leaves(beside)
    world.later(2 * MINUTE)
    told = [type(r.event) for r in world.log if getattr(r.event, "job", None) == pair]
    assert told[-3:] == [e.AttemptDemoted, e.Reserved, e.StopRequested]
