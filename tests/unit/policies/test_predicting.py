"""What moves are expected to gain, what they gained, and which jobs go back."""

import pytest
from msgspec.structs import replace

from allotment.engine.evicted import evicted_for
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.gains import Gain, MoveFor
from allotment.model.ids import JobId
from allotment.model.quantity import MINUTE, SECOND, Millis
from allotment.model.reports import PaceReport
from allotment.model.tenancy import Tenant
from allotment.policies.rescheduling.migrating import EVERY
from allotment.policies.rescheduling.predicting import by_moving, pays
from allotment.service.gain_words import move_words
from tests.support.builders import a_config, a_job
from tests.unit.policies.test_migrating import Moving, pair, us

LONG = 10 * 60 * MINUTE


def tells(world: Moving, job: JobId, rate: int, left_ms: int = LONG) -> None:
    attempt = world.job(job).attempts[-1]
    world.tell(PaceReport(job, attempt.no, len(attempt.slots), rate, left_ms))


def gain_of(world: Moving, job: JobId) -> Gain | None:
    """Return for what a job was told to go."""
    stop = world.job(job).attempts[-1].stop
    return stop.gain if stop is not None else None


def apart() -> tuple[Moving, JobId, JobId]:
    """Return a world with a gang on two nodes, and a job on the second that may leave."""
    world = Moving(nodes=2, devices=2)
    first = [world.started(a_job().gpus(1)) for _ in range(3)]
    world.ends(first[0])
    job = world.started(pair())
    assert world.nodes_of(job) == [0, 1]
    world.all_save()
    return world, job, first[2]


def test_a_gang_that_comes_together_is_predicted_to_be_faster_as_others_were() -> None:
    world, job, other = apart()
    tells(world, job, 850)
    world.ends(other)
    world.later(SECOND)
    gain = gain_of(world, job)
    assert gain is not None
    assert (gain.tasks, gain.rate, gain.expected, gain.why) == (2, 850, 1_000, MoveFor.NEARER)
    assert "moves closer together: 1,000 steps an hour are expected, 850" in move_words(gain)


def test_its_own_rates_count_more_and_where_it_gained_nothing_it_stays() -> None:
    world, job, other = apart()
    tells(world, job, 850)
    gang = world.state.cluster.gangs[job]
    gauge = gang.gauge
    assert gauge is not None
    slots = tuple(replace(slot, node=gang.slots[0].node) for slot in gang.slots)
    for measured, is_worth_it in ((850, False), (1_700, True)):
        gang.gauge = replace(gauge, on_nodes=((1, measured), (2, 850)))
        gain = by_moving(gang, slots, MoveFor.NEARER, world.now)
        assert gain is not None
        assert gain.expected == measured
        assert pays(gang, gain, world.now, save_when_told=True) is is_worth_it
    gang.gauge = replace(gauge, on_nodes=((1, 850), (2, 850)))
    world.ends(other)
    world.later(SECOND)
    assert world.goes(job) is None


def test_a_gang_that_is_nearly_done_stays_apart() -> None:
    """It has ten seconds to go; the restart costs a second, and a fifteenth of ten is less."""
    world = Moving(nodes=2, devices=2)
    first = [world.started(a_job().gpus(1)) for _ in range(3)]
    world.ends(first[0])
    job = world.submit(pair().of("us").retry(0))
    world.cycle()
    world.wait(SECOND)
    world.runs(job)
    world.wait(MINUTE)
    world.saves(job)
    tells(world, job, 850, left_ms=10 * SECOND)
    world.ends(first[2])
    world.later(SECOND)
    assert world.goes(job) is None
    world.wait(5 * MINUTE)
    world.saves(job, 2)
    tells(world, job, 700, left_ms=LONG)
    world.later(EVERY)
    assert world.goes(job) is not None


def moved(left_ms: int = LONG) -> tuple[Moving, JobId]:
    """Return a world with a job that left a nearly empty node, 1, and is slower on node 0."""
    world = Moving(nodes=2, devices=4)
    first = [world.started(a_job().gpus(1)) for _ in range(5)]
    world.ends(first[0])
    job = first[4]
    world.all_save()
    tells(world, job, 1_000)
    world.later(SECOND)
    gain = gain_of(world, job)
    assert gain is not None
    assert (gain.expected, gain.why) == (1_000, MoveFor.ROOM)
    world.is_gone(job)
    world.wait(SECOND)
    world.saves(job, 3)
    tells(world, job, 700, left_ms)
    return world, job


def test_a_job_that_is_slower_where_it_went_goes_back_and_stays_there() -> None:
    world, job = moved()
    world.later(EVERY)
    gain = gain_of(world, job)
    assert (world.goes(job), gain) == ([1], Gain(1, 700, 1_000, Millis(EVERY), MoveFor.BACK))
    told = evicted_for(world.state, world.job(job))
    assert told == "It was faster at its old place, and continues there."
    world.is_gone(job)
    world.wait(SECOND)
    world.saves(job, 4)
    tells(world, job, 500)
    for _ in range(3):
        world.later(MINUTE)
        assert world.goes(job) is None, "it went back once, whatever came of it"
    gains = [r.event for r in world.log if isinstance(r.event, e.GainMeasured)]
    assert [(g.rate, g.before, g.expected, g.kept) for g in gains] == [
        (700, 1_000, 1_000, False),
        (500, 700, 1_000, False),
    ]


@pytest.mark.parametrize("left_ms", [LONG, SECOND])
def test_it_does_not_go_back_to_a_place_that_is_taken_or_if_it_does_not_pay(
    left_ms: int,
) -> None:
    world, job = moved(left_ms)
    if left_ms == LONG:
        world.started(a_job().gpus(4))
    world.later(EVERY)
    assert world.goes(job) is None


def test_it_does_not_go_back_to_a_node_that_there_is_no_more() -> None:
    world, job = moved()
    world.do(c_config(us(4)))
    world.later(EVERY)
    assert world.goes(job) is None


def c_config(tenant: Tenant) -> c.ApplyConfig:
    return c.ApplyConfig(a_config(tenant, nodes=1, devices=4))
