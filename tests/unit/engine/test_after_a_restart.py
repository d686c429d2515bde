"""What is asked of the engines again after a restart: all that may not have reached them."""

from allotment.engine.react import pending_effects
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def a_gang() -> tuple[World, JobId]:
    world = World(a_config(a_tenant("vision", 8)))
    job = world.submit(a_job().tasks(2).gpus(1).checkpointing("USR1", 5_000))
    world.cycle()
    return world, job


def asked(world: World) -> list[f.AnyEffect]:
    return [each for each in pending_effects(world.state, world.now) if not _is_of_a_node(each)]


def _is_of_a_node(effect: f.AnyEffect) -> bool:
    return isinstance(effect, f.OpenNode | f.CloseNode)


def keys_of(job: JobId) -> list[TaskKey]:
    return [TaskKey(job, AttemptNo(1), TaskIndex(index)) for index in range(2)]


def test_a_gang_that_starts_is_launched_again_as_far_as_it_is_not_up() -> None:
    world, job = a_gang()
    first, second = keys_of(job)
    (launch,) = asked(world)
    assert isinstance(launch, f.LaunchGang)
    assert launch.tasks == (0, 1)
    world.tell(TaskReport(first, Seen.READY))
    (launch,) = asked(world)
    assert isinstance(launch, f.LaunchGang)
    assert launch.tasks == (1,)
    world.tell(TaskReport(second, Seen.READY))
    assert [type(each) for each in asked(world)] == [f.OpenBarrier]


def test_a_gang_that_is_told_to_go_has_what_is_left_of_its_grace() -> None:
    world, job = a_gang()
    world.runs(job)
    world.do(c.CancelJob(job))
    world.wait(2_000)
    stops = [
        f.StopTask(key, "TERM", Millis(3_000), StopCause.CANCELLED) for key in keys_of(job)
    ]
    assert asked(world) == stops
    world.task_ends(keys_of(job)[0], 143)
    assert asked(world) == stops[1:]
    world.wait(9_000)
    (late,) = asked(world)
    assert isinstance(late, f.StopTask)
    assert late.grace_ms == 0


def test_a_suspended_gang_is_frozen_and_a_running_one_is_not() -> None:
    world, job = a_gang()
    world.runs(job)
    assert asked(world) == [f.ThawTask(key) for key in keys_of(job)]
    world.do(c.SuspendJob(job))
    assert asked(world) == [f.FreezeGang(tuple(keys_of(job)), 1)]


def test_of_tasks_that_a_gang_does_not_have_nothing_is_believed() -> None:
    world, job = a_gang()
    world.runs(job)
    seen = len(world.log)
    world.tell(TaskReport(TaskKey(job, AttemptNo(1), TaskIndex(2)), Seen.RUNNING, pid=1))
    assert len(world.log) == seen
