"""A minimum run time and a budget protect running jobs from urgent ones of their own tenant."""

import msgspec
import pytest
from msgspec.structs import replace

from allotment.core.disruption import is_short, next_turn
from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR, MINUTE, Instant, Millis
from allotment.model.tenancy import Config, Preempt, PreemptRules
from tests.support.builders import POLICIES, JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.books import a_gang, a_standing
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns

BOTH = pytest.mark.parametrize("cells", [True, False], ids=["cells", "counted"])


def a_world(rules: PreemptRules, *, cells: bool, preempt: Preempt = Preempt.EVICT) -> World:
    """Tenants a and b own two nodes of eight each."""
    if cells:
        bare = (owns("a", node=2), owns("b", node=2))
        rich = tuple(msgspec.structs.replace(t, guaranteed=gpus(32)) for t in bare)
    else:
        rich = (a_tenant("a", 16), a_tenant("b", 16))
    tenants = tuple(
        msgspec.structs.replace(t, preempt=preempt, preempt_rules=rules, borrow=True)
        for t in rich
    )
    if cells:
        return World(Config(MACHINES, tenants, topology=TOPOLOGY))
    return World(a_config(*tenants, nodes=4, devices=8))


def start(world: World, job: JobBuilder) -> JobId:
    number = world.submit(job)
    world.cycle()
    if world.job(number).attempt is not None:
        world.runs(number)
    return number


def low(priority: int = 10, devices: int = 8) -> JobBuilder:
    return a_job().of("a").gpus(devices).priority(priority)


def urgent(priority: int = 500, devices: int = 8) -> JobBuilder:
    return low(priority, devices).not_preemptible()


def told(world: World) -> list[JobId]:
    return [r.event.job for r in world.log if isinstance(r.event, e.StopRequested)]


def sleep_until_due(world: World) -> int:
    """Wake just when the engine asks for it; give how long that took."""
    due = world.engine.next_due(world.now)
    assert due is not None, "nobody would wake the scheduler"
    ms = due - world.now
    world.wait(ms)
    world.cycle()
    return ms


@BOTH
@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_what_just_started_keeps_its_share_for_a_while(cells: bool, preempt: Preempt) -> None:
    rules = PreemptRules(min_run_ms=Millis(10 * MINUTE))
    world = a_world(rules, cells=cells, preempt=preempt)
    jobs = [start(world, low()) for _ in range(2)]
    world.wait(MINUTE)
    waits = start(world, urgent())
    assert world.is_(waits) is JobState.QUEUED
    assert told(world) == []
    assert sleep_until_due(world) == 9 * MINUTE
    if preempt is Preempt.EVICT:
        assert told(world) == [jobs[1]]
    else:
        assert world.is_(waits) is JobState.STARTING


@BOTH
def test_reclaiming_asks_for_no_minimum_run_time(cells: bool) -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(HOUR), evictions=1), cells=cells)
    borrowers = [start(world, a_job().of("b").gpus(8)) for _ in range(4)]
    for _ in range(2):
        start(world, low())
    assert len(told(world)) == 2
    assert set(told(world)) <= set(borrowers)


@BOTH
def test_a_reserved_place_is_not_protected(cells: bool) -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(HOUR)), cells=cells)
    for _ in range(4):
        start(world, a_job().of("b").gpus(8))
    for _ in range(2):
        start(world, low())
    first = start(world, urgent())
    assert first in world.state.cluster.reserved
    assert len(told(world)) == 2


@BOTH
def test_so_many_evictions_an_hour_and_no_more(cells: bool) -> None:
    world = a_world(PreemptRules(evictions=1), cells=cells)
    jobs = [start(world, low()) for _ in range(2)]
    start(world, urgent())
    assert len(told(world)) == 1
    world.wait(20 * MINUTE)
    start(world, urgent())
    assert len(told(world)) == 1
    assert sleep_until_due(world) == 40 * MINUTE
    assert sorted(told(world)) == jobs


@BOTH
def test_so_much_lost_work_and_no_more(cells: bool) -> None:
    """Eight devices for half an hour are four device-hours: over the budget, once."""
    rules = PreemptRules(lost_device_ms=3 * HOUR, per_ms=Millis(2 * HOUR))
    world = a_world(rules, cells=cells)
    for _ in range(2):
        start(world, low())
    world.wait(30 * MINUTE)
    start(world, urgent())
    start(world, urgent())
    assert len(told(world)) == 1
    world.wait(2 * HOUR - 1)
    world.cycle()
    assert len(told(world)) == 1
    world.wait(1)
    world.cycle()
    assert len(told(world)) == 2


@BOTH
def test_a_restart_forgets_nothing_of_the_budget(cells: bool) -> None:
    world = a_world(PreemptRules(evictions=1), cells=cells)
    for _ in range(2):
        start(world, low())
    start(world, urgent())
    data = msgspec.msgpack.encode(world.state.image())
    image = msgspec.msgpack.decode(data, type=type(world.state.image()))
    world.engine = Engine(State.from_image(image, POLICIES))
    assert msgspec.msgpack.encode(world.state.image()) == data
    start(world, urgent())
    assert len(told(world)) == 1
    assert sleep_until_due(world) == HOUR


def test_without_rules_nobody_is_woken() -> None:
    world = a_world(PreemptRules(), cells=False)
    start(world, low())
    start(world, urgent())
    assert world.state.cluster.disruption is None
    assert world.state.cluster.next_change(world.now) is None


# ── rules that let jobs take from their like ────────────────────────────────────────────


@BOTH
@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_a_job_that_starves_takes_from_its_like(cells: bool, preempt: Preempt) -> None:
    rules = PreemptRules(starved_ms=Millis(HOUR))
    world = a_world(rules, cells=cells, preempt=preempt)
    jobs = [start(world, low()) for _ in range(2)]
    world.wait(30 * MINUTE)
    waits = start(world, urgent(10))
    assert sleep_until_due(world) == HOUR
    if preempt is Preempt.EVICT:
        assert told(world) == [jobs[1]]
        world.ends(jobs[1], 143)
        world.cycle()
    assert world.is_(waits) is JobState.STARTING


@BOTH
def test_nobody_starves_where_it_is_not_asked_for(cells: bool) -> None:
    world = a_world(PreemptRules(min_run_ms=Millis(1)), cells=cells)
    for _ in range(2):
        start(world, low())
    waits = start(world, urgent(10))
    world.wait(1000 * HOUR)
    world.cycle()
    assert told(world) == []
    assert world.is_(waits) is JobState.QUEUED


@BOTH
def test_starving_jobs_change_places_once_in_that_time_and_no_oftener(cells: bool) -> None:
    world = a_world(PreemptRules(starved_ms=Millis(HOUR)), cells=cells)
    for _ in range(2):
        start(world, low().not_preemptible())
    for _ in range(2):
        start(world, urgent(10))
    for _ in range(24):
        world.wait(10 * MINUTE)
        world.cycle()
        for job in sorted(world.state.cluster.placed.leaving):
            world.ends(job, 143)
            world.cycle()
        for each in list(world.state.jobs.values()):
            if each.state is JobState.STARTING:
                world.runs(each.id)
    assert len(told(world)) == 2 * 4


@BOTH
def test_a_job_that_is_short_takes_from_one_that_is_not(cells: bool) -> None:
    world = a_world(PreemptRules(short_ms=Millis(10 * MINUTE)), cells=cells)
    long = start(world, low())
    world.wait(9 * MINUTE)
    start(world, low().within(run_ms=10 * MINUTE))
    waits = start(world, urgent(10).within(run_ms=10 * MINUTE))
    assert told(world) == []
    world.wait(MINUTE - 1)
    world.cycle()
    assert told(world) == []
    world.wait(1)
    world.cycle()
    assert told(world) == [long]
    assert waits in world.state.cluster.reserved


def test_losses_are_counted_only_where_they_are_bounded() -> None:
    for rules, counted in (
        (PreemptRules(min_run_ms=Millis(MINUTE)), 0),
        (PreemptRules(evictions=9), 1),
    ):
        world = a_world(rules, cells=False)
        victims = [start(world, low()) for _ in range(2)]
        world.wait(2 * MINUTE)
        start(world, urgent())
        assert world.state.cluster.placed.leaving.keys() <= set(victims)
        assert len(world.state.image().losses) == counted


def test_the_next_turn_is_still_to_come() -> None:
    rules = PreemptRules(starved_ms=Millis(60), short_ms=Millis(30))
    waiting = replace(a_standing(1), queued_at=Instant(10), limit_ms=Millis(30))
    gang = a_gang(replace(a_standing(2), since=Instant(20)))
    for now, then in ((49, 50), (50, 80), (79, 80), (80, None)):
        assert next_turn(rules, waiting, gang, Instant(now)) == then
    long = replace(waiting, limit_ms=Millis(31))
    assert next_turn(rules, long, gang, Instant(40)) == 80
    assert next_turn(PreemptRules(), waiting, gang, Instant(0)) is None


@pytest.mark.parametrize(("limit", "short"), [(-1, False), (0, True), (30, True), (31, False)])
def test_a_short_job_promised_to_run_no_longer(limit: int, short: bool) -> None:
    assert is_short(replace(a_standing(1), limit_ms=Millis(limit)), 30) is short


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (PreemptRules(evictions=2), 1),
        (PreemptRules(lost_device_ms=1), 1),
        (PreemptRules(min_run_ms=Millis(1)), 0),
        (PreemptRules(), 0),
    ],
)
def test_what_was_lost_counts_on_where_there_is_still_a_bound(
    after: PreemptRules, kept: int
) -> None:
    world = a_world(PreemptRules(evictions=1), cells=False)
    for _ in range(2):
        start(world, low())
    start(world, urgent())
    assert len(told(world)) == 1
    before = world.state.cluster.disruption
    assert before is not None
    assert len(before.losses()) == 1
    tenants = tuple(
        replace(tenant, preempt_rules=after) for tenant in world.state.config.tenants
    )
    world.do(c.ApplyConfig(replace(world.state.config, tenants=tenants)))
    now = world.state.cluster.disruption
    assert (() if now is None else now.losses()) == before.losses()[:kept]
