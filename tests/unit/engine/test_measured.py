"""What an engine's accounts say of a task after its end."""

from allotment.model import events as e
from allotment.model.diagnosis import GpuUse
from allotment.model.ids import AttemptNo, TaskIndex, TaskKey
from allotment.model.reports import UseReport
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

USED = GpuUse(850, 1 << 30)


def test_it_is_kept_with_its_own_attempt_once_and_only_of_what_ended() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job().retry(1))
    world.cycle()
    world.runs(job)
    first = UseReport(TaskKey(job, AttemptNo(1), TaskIndex(0)), USED)
    world.tell(first)
    world.ends(job, 1)
    for report in (first, first, UseReport(TaskKey(job, AttemptNo(9), TaskIndex(0)), USED)):
        world.tell(report)
    (attempt,) = world.job(job).attempts
    ended = attempt.tasks[TaskIndex(0)].exit
    assert ended is not None
    assert (ended.code, ended.usage.gpu) == (1, USED)
    measured = [r.event for r in world.log if isinstance(r.event, e.TaskMeasured)]
    assert measured == [e.TaskMeasured(job, AttemptNo(1), TaskIndex(0), USED)]
