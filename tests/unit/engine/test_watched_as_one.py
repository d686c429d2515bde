"""How gangs end that were watched as one, and orders that the books have lost."""

import pytest

from allotment.engine.completion import UNEXPLAINED
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.ids import AttemptNo
from allotment.model.lifecycle import JobState as S
from allotment.model.reasons import StopCause
from allotment.model.reports import GangReport, Seen, TaskReport
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import PERMANENT, World


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 4)))


@pytest.mark.parametrize(("told", "kept"), [(PERMANENT, PERMANENT), (None, UNEXPLAINED)])
def test_what_is_told_of_a_failure_is_kept(
    world: World, told: Diagnosis | None, kept: Diagnosis
) -> None:
    job = world.submit(a_job().tasks(2).retry(0))
    world.cycle()
    world.tell(GangReport(job, AttemptNo(1), Seen.RUNNING))
    world.tell(GangReport(job, AttemptNo(1), Seen.ENDED, Exit(code=1), told))
    assert world.is_(job) is S.FAILED
    assert world.job(job).diagnosis == kept


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (StopCause.CANCELLED, S.CANCELLED),
        (StopCause.EVICTED, S.QUEUED),
        (StopCause.RUN_TIME, S.TIMED_OUT),
        (StopCause.NODE_LOST, S.FAILED),
        (None, S.FAILED),
    ],
)
def test_a_task_knows_for_what_it_was_told_to_stop(
    world: World, cause: StopCause | None, state: S
) -> None:
    job = world.submit(a_job().retry(0))
    world.cycle()
    world.runs(job)
    (key,) = world.job(job).task_keys()
    ended = TaskReport(key, Seen.ENDED, 1, exit=Exit(143), stopped_for=cause)
    world.tell(ended)
    assert world.is_(job) is state
